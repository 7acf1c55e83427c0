"""Products of matrices, sums of products by equations, determinants, triangles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.agreement import agree
from nnefc.diagnostics import CompileError
from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, rank_of, shape_of, zeros
from nnefc.operators.dtypes import HALF_FLOATS
from nnefc.operators.elementwise import broadcast_shapes
from nnefc.operators.shape import Transpose
from nnefc.operators.statements import T, looped

__all__ = ["Determinant", "Einsum", "Gemm", "MatMul", "Triangle", "broadcasts_to", "transposed"]

_FOLDED = 1 << 16
"""Items of a constant that is computed with at once; a pass packs larger ones, transposed or not, in one go."""


def transposed(at: Emitter, x: Operand) -> Operand:
    """The last two dimensions exchanged; a vector as it is."""
    rank = rank_of(x)
    if rank < 2:
        return x
    if isinstance(x, np.ndarray) and x.size <= _FOLDED:
        return np.ascontiguousarray(x.swapaxes(-1, -2))
    return at.emit(relax.op.permute_dims(at.expr(x), [*range(rank - 2), rank - 1, rank - 2]))


def _exchanged(x: Shape, flag: bool) -> Shape:
    return (*x[:-2], x[-1], x[-2]) if flag and len(x) > 1 else x


@dataclass(frozen=True)
class MatMul(Operator):
    """Products of matrices, which are the last two dimensions; the others broadcast. `numpy.matmul`.

    A vector is a row on the left, a column on the right, and its dimension is not in the result.

    Attributes:
        transpose_a, transpose_b: whether the last two dimensions of an operand are exchanged first.
    """

    transpose_a: bool = False
    transpose_b: bool = False

    def shape(self, a: Shape, b: Shape) -> Shape:
        """`[*batch, m, n]` from `[*batch, m, k]` and `[*batch, k, n]`."""
        left, right = _exchanged(a, self.transpose_a), _exchanged(b, self.transpose_b)
        try:
            if not left or not right or not agree(left[-1], right[-2 if len(right) > 1 else 0]):
                raise ValueError
            batch = broadcast_shapes(left[:-2], right[:-2])
        except (ValueError, CompileError):
            raise CompileError(f"the matrices {list(left)} and {list(right)} do not fit each other") from None
        return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))

    def lower(self, at: Emitter, a: Operand, b: Operand) -> Operand:
        result, dtype = self.shape(shape_of(a), shape_of(b)), dtype_of(a)
        if dtype != dtype_of(b):
            raise CompileError(f"the matrices are of {dtype} and {dtype_of(b)}")
        if is_empty(shape_of(a)) or is_empty(shape_of(b)):
            return zeros(result, at.number(0, a).dtype)
        a = transposed(at, a) if self.transpose_a else a
        b = transposed(at, b) if self.transpose_b else b
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and max(a.size, b.size) <= _FOLDED:
            return np.asarray(np.matmul(a, b)).astype(a.dtype)
        left = at.reshaped(a, (1, *shape_of(a))) if rank_of(a) == 1 else a
        right = at.reshaped(b, (*shape_of(b), 1)) if rank_of(b) == 1 else b
        product = relax.op.matmul(at.expr(left), at.expr(right))
        if left is a and right is b:
            return product
        return at.reshaped(at.emit(product), result)


@dataclass(frozen=True)
class Gemm(Operator):
    """`alpha · a · b + beta · c`, the products as `MatMul`; `c` broadcasts to them. BLAS `gemm`.

    With `transpose_b` it is a linear layer of the weights `b` and the bias `c`.

    Attributes:
        alpha, beta: factors.
        transpose_a, transpose_b: whether the last two dimensions of an operand are exchanged first.
    """

    alpha: float = 1.0
    beta: float = 1.0
    transpose_a: bool = False
    transpose_b: bool = False

    @property
    def _product(self) -> MatMul:
        return MatMul(self.transpose_a, self.transpose_b)

    def shape(self, a: Shape, b: Shape, c: Shape | None = None) -> Shape:
        """That of the product."""
        result = self._product.shape(a, b)
        if c is not None and not broadcasts_to(c, result):
            raise CompileError(f"the summand {list(c)} does not broadcast to {list(result)}")
        return result

    def lower(self, at: Emitter, a: Operand, b: Operand, c: Operand | None = None) -> Operand:
        """`alpha` goes into `b` where that is constant."""
        c = None if self.beta == 0 else c
        self.shape(shape_of(a), shape_of(b), None if c is None else shape_of(c))
        inside = isinstance(b, np.ndarray)
        made = self._product.lower(at, a, _scaled(at, b, self.alpha) if inside else b)
        made = made if inside else _scaled(at, made, self.alpha)
        if c is None:
            return made
        return relax.op.add(at.expr(at.bound(made)), at.expr(at.bound(_scaled(at, c, self.beta))))


def broadcasts_to(x: Shape, target: Shape) -> bool:
    """Whether a tensor broadcasts to a shape without enlarging it."""
    pairs = zip(reversed(x), reversed(target), strict=False)
    return len(x) <= len(target) and all(size == 1 or agree(wanted, size) for size, wanted in pairs)


def _scaled(at: Emitter, x: Operand, factor: float) -> Operand:
    if factor == 1:
        return x
    if isinstance(x, np.ndarray):
        return np.asarray(x * at.number(factor, x))
    return relax.op.multiply(at.expr(at.bound(x)), at.expr(at.number(factor, x)))


@dataclass(frozen=True)
class Einsum(Operator):
    """Sums of products by an equation of letters for dimensions, as `ij,jk->ik`. `numpy.einsum`.

    Letters that are not in the result are summed over; `...` stands for any dimensions, which broadcast, as a dimension
    of size 1 does. Without `->` the result has the letters that occur once, in alphabetic order.
    """

    equation: str

    def shape(self, *shapes: Shape) -> Shape:
        """The sizes of the result's letters."""
        _, result, sizes = self._read(shapes)
        return tuple(sizes[letter] for letter in result)

    def lower(self, at: Emitter, *operands: Operand) -> Operand:
        """Two tensors whose letters sum up like a matrix product become one; all else is the plain sum of products."""
        terms, result, sizes = self._read(list(map(shape_of, operands)))
        if len(operands) == 2:
            product = _as_matmul(at, operands, terms, result, sizes)
            if product is not None:
                return product
        return at.compute(self._sum_of_products(list(map(shape_of, operands))), *operands, name="einsum")

    def _sum_of_products(self, shapes: list[Shape]) -> Callable[..., te.Tensor]:
        """The computation by definition; half floats are added up in float32."""
        terms, result, sizes = self._read(shapes)
        summed = [letter for letter in dict.fromkeys("".join(terms)) if letter not in result]

        def function(*tensors: te.Tensor) -> te.Tensor:
            dtype = str(tensors[0].dtype)
            work = "float32" if dtype in HALF_FLOATS else dtype
            axes = {letter: te.reduce_axis((0, sizes[letter]), f"sum_{i}") for i, letter in enumerate(summed)}

            def item(*index: tirx.Var) -> Any:
                place = dict(zip(result, index, strict=True)) | axes
                product: Any = tirx.const(1, work)
                for tensor, term, shape in zip(tensors, terms, shapes, strict=True):
                    at = [0 if size == 1 else place[letter] for letter, size in zip(term, shape, strict=True)]
                    product = product * tensor(*at).astype(work)
                return te.sum(product, axis=list(axes.values())) if axes else product

            sums = te.compute(tuple(sizes[letter] for letter in result), item, name="einsum")
            return sums if work == dtype else te.compute(sums.shape, lambda *i: sums(*i).astype(dtype), name="rounded")

        return function

    def _read(self, shapes: Sequence[Shape]) -> tuple[list[str], str, dict[str, int]]:
        """The letters of every term and of the result, those of the ellipsis Greek ones, and their sizes."""
        equation = "".join(self.equation.split())
        left, arrow, right = equation.partition("->")
        terms = left.split(",")
        if len(terms) != len(shapes):
            raise CompileError(f"the equation '{equation[:80]}' has {len(terms)} terms for {len(shapes)} operands")
        counts = [
            len(shape) - len(term.replace("...", "")) if "..." in term else 0
            for term, shape in zip(terms, shapes, strict=True)
        ]
        dots = "".join(chr(0x3B1 + i) for i in range(max(counts)))
        whole = [
            term.replace("...", dots[len(dots) - count :]) if count >= 0 else term
            for term, count in zip(terms, counts, strict=True)
        ]
        sizes: dict[str, int] = {}
        for term, letters, shape in zip(terms, whole, shapes, strict=True):
            if len(letters) != len(shape) or not (letters.isalpha() or not letters):
                raise CompileError(f"the term '{term[:80]}' does not fit an operand of the shape {list(shape)}")
            for letter, size in zip(letters, shape, strict=True):
                known = sizes.setdefault(letter, size)
                if 1 not in (known, size) and not agree(known, size):
                    raise CompileError(f"'{letter}' stands for {known} and for {size} in '{equation[:80]}'")
                sizes[letter] = size if known == 1 else known
        occurring = "".join(whole)
        if arrow:
            result = right.replace("...", dots)
        else:
            result = dots + "".join(sorted(c for c in set(occurring) if occurring.count(c) == 1 and c not in dots))
        if len(set(result)) != len(result) or not set(result) <= set(sizes):
            raise CompileError(f"the result of '{equation[:80]}' must have letters of the operands, each once")
        return whole, result, sizes


def _as_matmul(
    at: Emitter, operands: Sequence[Operand], terms: list[str], result: str, sizes: dict[str, int]
) -> Operand | None:
    """`batch` letters are in all three, `rows` in the first and the result, `columns` in the second and the result."""
    left, right = terms
    if any(len(set(term)) != len(term) for term in (left, right)):
        return None
    if any(shape_of(v) != tuple(sizes[c] for c in t) for v, t in zip(operands, terms, strict=True)):
        return None
    batch = [c for c in result if c in left and c in right]
    rows = [c for c in result if c in left and c not in right]
    columns = [c for c in result if c in right and c not in left]
    summed = [c for c in left if c not in result]
    if not summed or set(summed) != {c for c in right if c not in result}:
        return None

    def size(letters: list[str]) -> int:
        return math.prod(sizes[c] for c in letters)

    def arranged(x: Operand, term: str, order: list[str], shape: Shape) -> Operand:
        return at.reshaped(at.apply(Transpose(tuple(term.index(c) for c in order)), x), shape)

    outer = tuple(sizes[c] for c in batch)
    a = arranged(operands[0], left, [*batch, *rows, *summed], (*outer, size(rows), size(summed)))
    b = arranged(operands[1], right, [*batch, *summed, *columns], (*outer, size(summed), size(columns)))
    order = [*batch, *rows, *columns]
    product = at.reshaped(at.apply(MatMul(), a, b), tuple(sizes[c] for c in order))
    return Transpose(tuple(order.index(c) for c in result)).lower(at, product)


@dataclass(frozen=True)
class Triangle(Operator):
    """Matrices with zeros above a diagonal, or below it. `numpy.tril`, `numpy.triu`.

    Attributes:
        upper: whether what is on the diagonal and above is kept; else what is on it and below.
        diagonal: how far it is to the right of the main one.
    """

    upper: bool
    diagonal: int = 0

    def shape(self, x: Shape) -> Shape:
        """That of the operand."""
        if len(x) < 2:
            raise CompileError(f"{list(x)} is not a matrix")
        return x

    def lower(self, at: Emitter, x: Operand) -> Operand:
        shape = self.shape(shape_of(x))
        if isinstance(x, np.ndarray):
            return (np.triu if self.upper else np.tril)(x, self.diagonal)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            right = index[-1].astype("int64") - index[-2].astype("int64")
            kept = right >= self.diagonal if self.upper else right <= self.diagonal
            return tirx.Select(kept, tensors[0](*index), tirx.const(0, dtype_of(x)))

        return at.elements(shape, element, x, name="triangle")


@dataclass(frozen=True)
class Determinant(Operator):
    """The determinants of square matrices, by elimination with pivots."""

    def shape(self, x: Shape) -> Shape:
        """Without the last two dimensions."""
        if len(x) < 2 or not agree(x[-1], x[-2]):
            raise CompileError(f"{list(x)} is not a square matrix")
        return x[:-2]

    def lower(self, at: Emitter, x: Operand) -> Operand:
        result, dtype = self.shape(shape_of(x)), dtype_of(x)
        size, count = shape_of(x)[-1], math.prod(result)
        if dtype in HALF_FLOATS:
            raise CompileError(f"the determinant of {dtype} is not supported")

        def write(x: Any, out: Any, work: Any, spare: Any) -> None:
            zero = tirx.const(0, dtype)
            with T.serial(0, count * size * size) as i:
                work[i] = x[i]
            with T.serial(0, count) as m:
                out[m] = tirx.const(1, dtype)
                base = m * (size * size)
                with T.serial(0, size) as k:
                    _pivot(work, out, spare, m, base, size, k)
                    out[m] = out[m] * work[base + k * size + k]
                    with T.serial(0, size) as r, T.If(tirx.all(r > k, work[base + k * size + k] != zero)), T.Then():
                        _eliminate(work, base, size, k, r)

        results = [(result, dtype), (shape_of(x), dtype), ((1,), dtype)]
        return looped(at, write, [x], results, "det")[0]


def _pivot(work: Any, out: Any, spare: Any, m: Any, base: Any, size: int, k: Any) -> None:
    """Exchange row k with every row below that has a larger item in the column: the largest comes up."""
    with (
        T.serial(0, size) as r,
        T.If(tirx.all(r > k, tirx.abs(work[base + r * size + k]) > tirx.abs(work[base + k * size + k]))),
        T.Then(),
    ):
        out[m] = tirx.const(0, out.dtype) - out[m]
        with T.serial(0, size) as c:
            here, there = base + k * size + c, base + r * size + c
            spare[0] = work[here]
            work[here] = work[there]
            work[there] = spare[0]


def _eliminate(work: Any, base: Any, size: int, k: Any, r: Any) -> None:
    """Subtract row k from row r, scaled so that the item in column k vanishes; that item is the last to change."""
    with T.serial(0, size) as back, T.If(size - 1 - back >= k), T.Then():
        c = size - 1 - back
        factor = work[base + r * size + k] / work[base + k * size + k]
        work[base + r * size + c] = work[base + r * size + c] - factor * work[base + k * size + c]
