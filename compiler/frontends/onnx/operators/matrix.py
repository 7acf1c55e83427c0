"""Matrix products: MatMul, Gemm, Einsum; Det, Trilu and EyeLike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary, broadcast_shapes
from nnefc.frontends.onnx.operators.loops import T, looped
from nnefc.frontends.onnx.operators.tensors import (
    cast,
    compute,
    dtype_of,
    fail,
    has_input,
    input_at,
    known,
    known_arrays,
    permuted,
    required_value,
    reshaped,
    shape_of,
    spell,
    value_of,
)

__all__ = ["matmul"]

_FOLDED = 1 << 16  # elements of a constant that operations of constants are done at once for


def matmul(ctx: Context, a: Value, b: Value) -> Value:
    """The product of matrices as NumPy's `@`: vectors are rows and columns, further axes broadcast.

    Half floats are summed up in float32.
    """
    left, right, dtype = shape_of(a), shape_of(b), dtype_of(a)
    if not left or not right or left[-1] != right[-2 if len(right) > 1 else 0]:
        raise fail(None, f"the matrices {spell(left)} and {spell(right)} do not fit each other")
    arrays = known_arrays([a, b])
    if arrays is not None and max(array.size for array in arrays) <= _FOLDED:
        return known(ctx, np.matmul(arrays[0], arrays[1]).astype(dtype))
    if len(left) == 1:
        product = matmul(ctx, reshaped(ctx, a, (1, *left)), b)
        shape = shape_of(product)
        return reshaped(ctx, product, shape[:-1] if len(right) == 1 else (*shape[:-2], shape[-1]))
    if len(right) == 1:
        return reshaped(ctx, matmul(ctx, a, reshaped(ctx, b, (*right, 1))), left[:-1])
    shape = (*broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    if 0 in left or 0 in right:
        return known(ctx, np.zeros(shape, dtype))
    if dtype in ("float16", "bfloat16"):
        return cast(ctx, matmul(ctx, cast(ctx, a, "float32"), cast(ctx, b, "float32")), dtype)
    return ctx.emit(relax.op.matmul(ctx.expr(a), ctx.expr(b)))


@operator("MatMul", since=(1, 9, 13))
def _matmul(ctx: Context, node: Node) -> Value:
    return matmul(ctx, input_at(node, 0), input_at(node, 1))


@operator("Gemm", since=(1, 6, 7, 9, 11, 13))
def _gemm(ctx: Context, node: Node) -> Value:
    """`alpha` goes into the second matrix where that is constant."""
    a, b = input_at(node, 0), input_at(node, 1)
    if len(shape_of(a)) != 2 or len(shape_of(b)) != 2:
        raise fail(node, f"{spell(shape_of(a))} and {spell(shape_of(b))} are not both matrices")
    a = permuted(ctx, a, [1, 0]) if node.attributes["transA"] else a
    alpha, beta = node.attributes["alpha"], node.attributes["beta"]
    inside = alpha != 1 and value_of(ctx, b) is not None
    b = _scaled(ctx, b, alpha) if inside else b
    b = _transposed(ctx, b) if node.attributes["transB"] else b
    product = matmul(ctx, a, b) if inside else _scaled(ctx, matmul(ctx, a, b), alpha)
    if not has_input(node, 2) or beta == 0:
        return product
    c = _scaled(ctx, input_at(node, 2), beta)
    if broadcast_shapes(shape_of(product), shape_of(c)) != shape_of(product):
        raise fail(node, f"C {spell(shape_of(c))} does not broadcast to {spell(shape_of(product))}")
    return binary(ctx, "Add", product, c)


def _transposed(ctx: Context, x: Value) -> Value:
    """A matrix transposed; a large constant by an operation, for a pass packs it in one go."""
    if x.array is None or x.array.size <= _FOLDED:
        return permuted(ctx, x, [1, 0])
    return ctx.emit(relax.op.permute_dims(ctx.expr(x), [1, 0]), x.dtype)


def _scaled(ctx: Context, x: Value, factor: float) -> Value:
    if factor == 1:
        return x
    return binary(ctx, "Mul", x, known(ctx, np.array(factor).astype(dtype_of(x))))


@operator("Einsum", since=(12, 28))
def _einsum(ctx: Context, node: Node) -> Value:
    """Two tensors whose letters sum up like a matrix product become one; all else is the plain sum of products."""
    values = [input_at(node, i) for i in range(len(node.inputs))]
    terms, result, extents = _parse_equation(node, [shape_of(value) for value in values])
    if len(values) == 2:
        product = _as_matmul(ctx, values, terms, result, extents)
        if product is not None:
            return product
    dtype = dtype_of(values[0])
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    summed = [letter for letter in dict.fromkeys("".join(terms)) if letter not in result]

    def function(*tensors: Any) -> Any:
        axes = {letter: te.reduce_axis((0, extents[letter]), f"sum_{i}") for i, letter in enumerate(summed)}

        def item(*index: Any) -> Any:
            place = dict(zip(result, index, strict=True)) | axes
            product: Any = tirx.const(1, work)
            for tensor, term in zip(tensors, terms, strict=True):
                at = [0 if int(e) == 1 else place[letter] for e, letter in zip(tensor.shape, term, strict=True)]
                product = product * tensor(*at).astype(work)
            return te.sum(product, axis=list(axes.values())) if axes else product

        return te.compute(tuple(extents[letter] for letter in result), item, name="einsum")

    return cast(ctx, ctx.emit_te(function, *values, name="einsum"), dtype)


def _parse_equation(node: Node, shapes: list[tuple[int, ...]]) -> tuple[list[str], str, dict[str, int]]:
    """The letters of every term and of the result, the ellipsis as capital-free private letters, and their extents.

    Raises:
        CompileError: the equation does not fit the operands.
    """
    equation = "".join(str(node.attributes["equation"]).split())
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise fail(node, f"the equation '{equation}' has {len(terms)} terms for {len(shapes)} operands")
    widest = 0
    for term, shape in zip(terms, shapes, strict=True):
        if "..." in term:
            widest = max(widest, len(shape) - len(term.replace("...", "")))
    dots = [chr(0x3B1 + i) for i in range(widest)]
    spelled = []
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        count = len(shape) - len(term.replace("...", "")) if "..." in term else 0
        whole = term.replace("...", "".join(dots[len(dots) - count :]) if count else "")
        if len(whole) != len(shape) or (not whole.replace(".", "a").isalpha() and whole):
            raise fail(node, f"the term '{term}' does not fit an operand of the shape {spell(shape)}")
        for letter, extent in zip(whole, shape, strict=True):
            if extents.setdefault(letter, extent) not in (1, extent) and extent != 1:
                raise fail(node, f"'{letter}' stands for {extents[letter]} and for {extent} in '{equation}'")
            extents[letter] = max(extents[letter], extent) if extent != 0 else 0
        spelled.append(whole)
    if arrow:
        result = right.replace("...", "".join(dots))
    else:
        counts = "".join(spelled)
        result = "".join(dots) + "".join(sorted({c for c in counts if counts.count(c) == 1 and c not in dots}))
    if any(letter not in extents for letter in result):
        raise fail(node, f"the result of '{equation}' has a letter that no operand has")
    return spelled, result, extents


def _as_matmul(
    ctx: Context, values: list[Value], terms: list[str], result: str, extents: dict[str, int]
) -> Value | None:
    """`batch` letters are in all three, `rows` in the first and the result, `columns` in the second and the result."""
    left, right = terms
    if any(len(set(term)) != len(term) for term in (left, right, result)):
        return None
    if any(shape_of(v) != tuple(extents[c] for c in t) for v, t in zip(values, terms, strict=True)):
        return None
    batch = [c for c in result if c in left and c in right]
    rows = [c for c in result if c in left and c not in right]
    columns = [c for c in result if c in right and c not in left]
    summed = [c for c in left if c not in result]
    if not summed or set(summed) != {c for c in right if c not in result} or 0 in extents.values():
        return None

    def size(letters: list[str]) -> int:
        return math.prod(extents[c] for c in letters)

    def arranged(value: Value, term: str, order: list[str], shape: tuple[int, ...]) -> Value:
        return reshaped(ctx, permuted(ctx, value, [term.index(c) for c in order]), shape)

    outer = tuple(extents[c] for c in batch)
    a = arranged(values[0], left, [*batch, *rows, *summed], (*outer, size(rows), size(summed)))
    b = arranged(values[1], right, [*batch, *summed, *columns], (*outer, size(summed), size(columns)))
    product = reshaped(ctx, matmul(ctx, a, b), tuple(extents[c] for c in (*batch, *rows, *columns)))
    order = [*batch, *rows, *columns]
    return permuted(ctx, product, [order.index(c) for c in result])


@operator("Trilu", since=(14,))
def _trilu(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    if len(shape_of(x)) < 2:
        raise fail(node, f"{spell(shape_of(x))} is not a matrix")
    k = int(required_value(ctx, node, 1, "k").reshape(())[()]) if has_input(node, 1) else 0
    array, upper = value_of(ctx, x), bool(node.attributes["upper"])
    if array is not None:
        return known(ctx, np.triu(array, k) if upper else np.tril(array, k))

    def item(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        row, column = index[-2].astype("int64"), index[-1].astype("int64")
        kept = column - row >= k if upper else column - row <= k
        return tirx.Select(kept, tensors[0](*index), tirx.const(0, dtype_of(x)))

    return compute(ctx, shape_of(x), item, x, name="trilu")


def _eliminate(work: Any, base: Any, size: int, k: Any, r: Any) -> None:
    """Subtract row k from row r, scaled so that the item in column k vanishes; that item is the last to change."""
    with T.serial(0, size) as back, T.If(size - 1 - back >= k), T.Then():
        c = size - 1 - back
        factor = work[base + r * size + k] / work[base + k * size + k]
        work[base + r * size + c] = work[base + r * size + c] - factor * work[base + k * size + c]


@operator("Det", since=(11, 22))
def _det(ctx: Context, node: Node) -> Value:
    """By elimination with pivots."""
    x = input_at(node, 0)
    shape, dtype = shape_of(x), dtype_of(x)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise fail(node, f"{spell(shape)} is not a square matrix")
    size, count = shape[-1], math.prod(shape[:-2])
    if dtype in ("float16", "bfloat16"):
        raise fail(node, f"the determinant of {dtype} is not supported")

    def write(x: Any, out: Any, work: Any, spare: Any) -> None:
        zero = tirx.const(0, dtype)
        with T.serial(0, count * size * size) as i:
            work[i] = x[i]
        with T.serial(0, count) as m:
            out[m] = tirx.const(1, dtype)
            base = m * (size * size)
            with T.serial(0, size) as k:
                # Rows are exchanged with every row below that has a larger item in the column: the largest comes up.
                with (
                    T.serial(0, size) as r,
                    T.If(tirx.all(r > k, tirx.abs(work[base + r * size + k]) > tirx.abs(work[base + k * size + k]))),
                    T.Then(),
                ):
                    out[m] = zero - out[m]
                    with T.serial(0, size) as c:
                        here, there = base + k * size + c, base + r * size + c
                        spare[0] = work[here]
                        work[here] = work[there]
                        work[there] = spare[0]
                out[m] = out[m] * work[base + k * size + k]
                with T.serial(0, size) as r, T.If(tirx.all(r > k, work[base + k * size + k] != zero)), T.Then():
                    _eliminate(work, base, size, k, r)

    return looped(ctx, write, [x], [(shape[:-2], dtype), (shape, dtype), ((1,), dtype)], "det")[0]
