"""Matrix products, determinants, triangular parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, rank_of, shape_of, zeros
from nnefc.operators.dtypes import FLOAT16_TYPES
from nnefc.operators.math.elementwise import broadcast_shapes, fitted
from nnefc.operators.statements import T, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.broadcasting import fits
from nnefc.symbolic.unification import unify_dims

__all__ = ["Determinant", "Gemm", "MatMul", "Triangle", "broadcasts_to", "transposed"]

_FOLDED = 1 << 16
"""Elements of a constant that is computed with at once; a pass packs larger ones, transposed or not, in one go."""


def transposed(ctx: Emitter, x: Operand) -> Operand:
    """The last two dimensions exchanged; a vector as it is."""
    rank = rank_of(x)
    if rank < 2:
        return x
    if isinstance(x, np.ndarray) and x.size <= _FOLDED:
        return np.ascontiguousarray(x.swapaxes(-1, -2))
    return ctx.emit(relax.op.permute_dims(ctx.expr(x), [*range(rank - 2), rank - 1, rank - 2]))


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
            if not left or not right or not unify_dims(left[-1], right[-2 if len(right) > 1 else 0]):
                raise ValueError
            batch = broadcast_shapes(left[:-2], right[:-2])
        except (ValueError, CompileError):
            raise CompileError(f"the matrices {list(left)} and {list(right)} do not fit each other") from None
        return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))

    def lower(self, ctx: Emitter, a: Operand, b: Operand) -> Operand:
        result, dtype = self.shape(shape_of(a), shape_of(b)), dtype_of(a)
        if dtype != dtype_of(b):
            raise CompileError(f"the matrices are of {dtype} and {dtype_of(b)}")
        if is_empty(shape_of(a)) or is_empty(shape_of(b)):
            return zeros(result, ctx.number(0, a).dtype)
        a = transposed(ctx, a) if self.transpose_a else a
        b = transposed(ctx, b) if self.transpose_b else b
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and max(a.size, b.size) <= _FOLDED:
            return np.asarray(np.matmul(a, b)).astype(a.dtype)
        left = ctx.reshaped(a, (1, *shape_of(a))) if rank_of(a) == 1 else a
        right = ctx.reshaped(b, (*shape_of(b), 1)) if rank_of(b) == 1 else b
        batch = result[: max(rank_of(left), rank_of(right)) - 2]
        left, right = (fitted(ctx, x, (*batch, *shape_of(x)[-2:])) for x in (left, right))
        product = relax.op.matmul(ctx.expr(left), ctx.expr(right))
        if rank_of(a) > 1 and rank_of(b) > 1:
            return product
        return ctx.reshaped(ctx.emit(product), result)


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
        """Return the shape of the product."""
        result = self._product.shape(a, b)
        if c is not None and not broadcasts_to(c, result):
            raise CompileError(f"the summand {list(c)} does not broadcast to {list(result)}")
        return result

    def lower(self, ctx: Emitter, a: Operand, b: Operand, c: Operand | None = None) -> Operand:
        """`alpha` goes into `b` where that is constant."""
        c = None if self.beta == 0 else c
        self.shape(shape_of(a), shape_of(b), None if c is None else shape_of(c))
        inside = isinstance(b, np.ndarray)
        made = self._product.lower(ctx, a, _scaled(ctx, b, self.alpha) if inside else b)
        made = made if inside else _scaled(ctx, made, self.alpha)
        if c is None:
            return made
        made = ctx.bound(made)
        summand = ctx.bound(fitted(ctx, ctx.bound(_scaled(ctx, c, self.beta)), shape_of(made)))
        return relax.op.add(ctx.expr(made), ctx.expr(summand))


def broadcasts_to(x: Shape, target: Shape) -> bool:
    """Returns whether a tensor broadcasts to a shape without enlarging it."""
    pairs = zip(reversed(x), reversed(target), strict=False)
    return len(x) <= len(target) and all(fits(size, wanted) for size, wanted in pairs)


def _scaled(ctx: Emitter, x: Operand, factor: float) -> Operand:
    if factor == 1:
        return x
    if isinstance(x, np.ndarray):
        return np.asarray(x * ctx.number(factor, x))
    return relax.op.multiply(ctx.expr(ctx.bound(x)), ctx.expr(ctx.number(factor, x)))


@dataclass(frozen=True)
class Triangle(Operator):
    """Matrices with zeros above a diagonal, or below it. `numpy.tril`, `numpy.triu`.

    Attributes:
        upper: whether what is on the diagonal and above is kept; else what is on it and below.
        diagonal: how far it is to the right of the main one, unless an operand without axes says so.
    """

    upper: bool
    diagonal: int = 0

    def shape(self, x: Shape, diagonal: Shape = ()) -> Shape:
        """Return the shape of the first operand."""
        if len(x) < 2:
            raise CompileError(f"{list(x)} is not a matrix")
        return x

    def lower(self, ctx: Emitter, x: Operand, diagonal: Operand | None = None) -> Operand:
        shape = self.shape(shape_of(x))
        if isinstance(x, np.ndarray) and diagonal is None:
            return (np.triu if self.upper else np.tril)(x, self.diagonal)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            right = index[-1].astype("int64") - index[-2].astype("int64")
            first = self.diagonal if diagonal is None else tensors[1]().astype("int64")
            kept = right >= first if self.upper else right <= first
            return tirx.Select(kept, tensors[0](*index), tirx.const(0, dtype_of(x)))

        return ctx.elements(shape, element, x, *([] if diagonal is None else [diagonal]), name="triangle")


@dataclass(frozen=True)
class Determinant(Operator):
    """The determinants of square matrices, by elimination with pivots."""

    def shape(self, x: Shape) -> Shape:
        """Without the last two dimensions."""
        if len(x) < 2 or not unify_dims(x[-1], x[-2]):
            raise CompileError(f"{list(x)} is not a square matrix")
        return x[:-2]

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        result, dtype = self.shape(shape_of(x)), dtype_of(x)
        size, count = shape_of(x)[-1], math.prod(result)
        if dtype in FLOAT16_TYPES:
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
        return looped(ctx, write, [x], results, "det")[0]


def _pivot(work: Any, out: Any, spare: Any, m: Any, base: Any, size: int, k: Any) -> None:
    """Exchange row k with every row below that has a larger element in the column: the largest comes up."""
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
    """Subtract row k from row r, scaled so that the element in column k vanishes; that element is the last to
    change."""
    with T.serial(0, size) as back, T.If(size - 1 - back >= k), T.Then():
        c = size - 1 - back
        factor = work[base + r * size + k] / work[base + k * size + k]
        work[base + r * size + c] = work[base + r * size + c] - factor * work[base + k * size + c]
