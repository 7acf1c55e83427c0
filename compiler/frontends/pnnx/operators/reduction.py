"""Reductions over dimensions, and running sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.lowering import Lowering, Tensor, dtype_of, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import DType, Ints, Result, axis_of, need_real, operator
from nnefc.frontends.pnnx.operators.elementwise import apply
from nnefc.frontends.pnnx.promotion import category

__all__: list[str] = []


def _axes(input: Tensor, dim: Sequence[int] | None) -> list[int]:
    """The axes; all of them where none is given."""
    rank = rank_of(input)
    axes = list(range(rank)) if not dim else [axis_of(i, rank) for i in dim]
    if len(set(axes)) != len(axes):
        raise CompileError(f"a dimension is named twice in {list(dim or ())}")
    if not rank:
        return []
    if any(shape_of(input)[axis] == 0 for axis in axes):
        raise CompileError("a dimension is empty")
    return axes


def _summable(at: Lowering, input: Tensor, dtype: str | None) -> relax.Expr:
    """Sums and products of integers are 64 bits wide."""
    wanted = dtype or ("int64" if category(dtype_of(input)) < 2 else dtype_of(input))
    return at.expr(input) if dtype_of(input) == wanted else at.emit(at.convert(input, wanted))


def _reduced(at: Lowering, operation: Callable[..., Any], x: relax.Expr, axes: list[int], keepdim: bool) -> relax.Expr:
    return operation(x, axes, keepdims=keepdim) if axes else x


@operator("torch.sum", "Tensor.sum")
def _sum(
    at: Lowering, input: Tensor, dim: Ints | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Result:
    return _reduced(at, relax.op.sum, _summable(at, input, dtype), _axes(input, dim), keepdim)


@operator("torch.mean", "Tensor.mean")
def _mean(
    at: Lowering, input: Tensor, dim: Ints | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Result:
    x = at.expr(input) if dtype is None else at.emit(at.convert(input, dtype))
    need_real(x)
    return _reduced(at, relax.op.mean, x, _axes(input, dim), keepdim)


@operator("torch.prod", "Tensor.prod")
def _prod(
    at: Lowering, input: Tensor, dim: int | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Result:
    axes = _axes(input, None if dim is None else [dim])
    return _reduced(at, relax.op.prod, _summable(at, input, dtype), axes, keepdim)


@operator("torch.amax", "Tensor.amax")
def _amax(at: Lowering, input: Tensor, dim: Ints | None = None, keepdim: bool = False) -> Result:
    if dtype_of(input) == "bool":
        return _truth(at, input, dim, keepdim, every=False)
    return _extreme(at, at.expr(input), _axes(input, dim), keepdim, largest=True)


@operator("torch.amin", "Tensor.amin")
def _amin(at: Lowering, input: Tensor, dim: Ints | None = None, keepdim: bool = False) -> Result:
    if dtype_of(input) == "bool":
        return _truth(at, input, dim, keepdim, every=True)
    return _extreme(at, at.expr(input), _axes(input, dim), keepdim, largest=False)


def _extreme(at: Lowering, x: relax.Expr, axes: list[int], keepdim: bool, largest: bool) -> relax.Expr:
    """The largest or least elements along `axes`; not a number where one is none, as in PyTorch."""
    if not axes or category(dtype_of(x)) != 2:
        return _reduced(at, relax.op.max if largest else relax.op.min, x, axes, keepdim)
    shape = shape_of(x)

    def pick(left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
        return tirx.Select(tirx.any(left > right if largest else left < right, tirx.isnan(left)), left, right)

    reducer = te.comm_reducer(pick, lambda dtype: _worst(dtype, largest), name="extreme")

    def compute(x: te.Tensor) -> te.Tensor:
        along = {axis: te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in axes}

        def element(*place: tirx.Var) -> Any:
            rest = iter([i for axis, i in enumerate(place) if axis not in along] if keepdim else place)
            source = [along[axis] if axis in along else next(rest) for axis in range(len(shape))]
            return reducer(x(*source), axis=list(along.values()))

        kept = [1 if axis in along else extent for axis, extent in enumerate(shape)]
        result = kept if keepdim else [extent for axis, extent in enumerate(shape) if axis not in along]
        return te.compute(result, element, name="extreme")

    return at.compute(compute, x, name="extreme")


def _worst(dtype: str, largest: bool) -> tirx.Expr:
    """What no element is worse than."""
    if category(str(dtype)) == 2:
        return tirx.const(-math.inf if largest else math.inf, dtype)
    return (tirx.min_value if largest else tirx.max_value)(dtype)


@operator("torch.argmax", "Tensor.argmax")
def _argmax(at: Lowering, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Result:
    return _place(at, input, dim, keepdim, largest=True)


@operator("torch.argmin", "Tensor.argmin")
def _argmin(at: Lowering, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Result:
    return _place(at, input, dim, keepdim, largest=False)


def _place(at: Lowering, input: Tensor, dim: int | None, keepdim: bool, largest: bool) -> relax.Expr:
    """Where the largest or least element is: the first such place. What is not a number is beyond all others."""
    shape = shape_of(input)
    if dtype_of(input) == "bool":
        raise CompileError("truth values have no largest one")
    _axes(input, None if dim is None else [dim])
    if dim is None or not shape:
        flat = at.emit(relax.op.reshape(at.expr(input), (math.prod(shape),)))
        found = _place_along(at, flat, 0, largest)
        return relax.op.reshape(found, (1,) * len(shape) if keepdim else ())
    axis = axis_of(dim, len(shape))
    found = _place_along(at, at.expr(input), axis, largest)
    return found if keepdim else relax.op.squeeze(found, axis)


def _place_along(at: Lowering, x: relax.Expr, axis: int, largest: bool) -> relax.Var:
    shape = shape_of(x)

    def pick(left: Any, right: Any) -> tuple[tirx.Expr, tirx.Expr]:
        better = left[1] > right[1] if largest else left[1] < right[1]
        same = left[1] == right[1]
        if category(dtype_of(x)) == 2:
            none, other = tirx.isnan(left[1]), tirx.isnan(right[1])
            better, same = tirx.any(better, tirx.all(none, tirx.Not(other))), tirx.any(same, tirx.all(none, other))
        keep = tirx.any(better, tirx.all(same, left[0] < right[0]))
        return tirx.Select(keep, left[0], right[0]), tirx.Select(keep, left[1], right[1])

    reducer = te.comm_reducer(pick, lambda i, v: (tirx.const(1 << 62, i), _worst(v, largest)), name="pick")

    def compute(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, shape[axis]), "k")

        def element(*place: tirx.Var) -> Any:
            value = x(*place[:axis], k, *place[axis + 1 :])
            return reducer((k.var.astype("int64"), value), axis=[k])

        return te.compute((*shape[:axis], 1, *shape[axis + 1 :]), element, name="place")[0]

    return at.emit(at.compute(compute, x, name="place"))


def _extremum(at: Lowering, input: Tensor, dim: int | None, keepdim: bool, largest: bool) -> Result:
    if dtype_of(input) == "bool":
        raise CompileError("truth values have no largest one")
    axes = _axes(input, None if dim is None else [dim])
    value = _extreme(at, at.expr(input), axes, keepdim, largest)
    if dim is None or at.results == 1:
        return value if dim is None else (value, _place(at, input, dim, keepdim, largest))[0]
    return value, _place(at, input, dim, keepdim, largest)


@operator("torch.max")
def _max(
    at: Lowering, input: Tensor, other: Tensor | None = None, dim: int | None = None, keepdim: bool = False
) -> Result:
    return _extremum(at, input, dim, keepdim, True) if other is None else apply(at, "max", input, other)


@operator("torch.min")
def _min(
    at: Lowering, input: Tensor, other: Tensor | None = None, dim: int | None = None, keepdim: bool = False
) -> Result:
    return _extremum(at, input, dim, keepdim, False) if other is None else apply(at, "min", input, other)


def _variance(at: Lowering, input: Tensor, dim: Ints | None, correction: float, keepdim: bool) -> relax.Expr:
    need_real(input)
    x, axes = at.expr(input), _axes(input, dim)
    if not axes:
        raise CompileError("a single number has no variance")
    count = math.prod(shape_of(input)[axis] for axis in axes) - correction
    if count <= 0:
        raise CompileError("there are too few elements for a variance")
    mean = at.emit(relax.op.mean(x, axes, keepdims=True))
    centred = at.emit(relax.op.subtract(x, mean))
    total = at.emit(relax.op.sum(at.emit(relax.op.multiply(centred, centred)), axes, keepdims=keepdim))
    return at.emit(relax.op.multiply(total, at.expr(np.array(1 / count, dtype_of(input)))))


def _correction(unbiased: bool | None, correction: int | float | None) -> float:
    if correction is not None:
        return float(correction)
    return 0.0 if unbiased is False else 1.0


@operator("torch.var", "Tensor.var")
def _var(
    at: Lowering,
    input: Tensor,
    dim: Ints | None = None,
    unbiased: bool | None = None,
    correction: int | float | None = None,
    keepdim: bool = False,
) -> Result:
    return _variance(at, input, dim, _correction(unbiased, correction), keepdim)


@operator("torch.std", "Tensor.std")
def _std(
    at: Lowering,
    input: Tensor,
    dim: Ints | None = None,
    unbiased: bool | None = None,
    correction: int | float | None = None,
    keepdim: bool = False,
) -> Result:
    return relax.op.sqrt(_variance(at, input, dim, _correction(unbiased, correction), keepdim))


@operator("torch.logsumexp")
def _logsumexp(at: Lowering, input: Tensor, dim: Ints, keepdim: bool = False) -> Result:
    need_real(input)
    x, axes = at.expr(input), _axes(input, dim)
    if not axes:
        return x
    largest = at.emit(relax.op.max(x, axes, keepdims=True))
    # Where all are infinite, what is taken away must be finite.
    infinite = apply(at, "lt", apply(at, "abs", largest), float("inf"))
    shift = at.emit(relax.op.where(infinite, largest, at.expr(np.zeros((), dtype_of(x)))))
    powers = at.emit(relax.op.exp(at.emit(relax.op.subtract(x, shift))))
    total = at.emit(relax.op.log(at.emit(relax.op.sum(powers, axes, keepdims=True))))
    made = at.emit(relax.op.add(total, shift))
    return made if keepdim else relax.op.squeeze(made, axes)


@operator("torch.norm", "Tensor.norm", limits="the norms 1, 2, inf, -inf and other finite ones but 0")
def _norm(
    at: Lowering, input: Tensor, p: int | float | str | None = 2, dim: Ints | None = None, keepdim: bool = False
) -> Result:
    need_real(input)
    order = 2.0 if p is None or p == "fro" else p
    if isinstance(order, str) or order == 0:
        raise CompileError(f"the norm {p} is not supported")
    x, axes = at.expr(input), _axes(input, dim)
    magnitude = at.emit(relax.op.abs(x))
    if not axes:
        return magnitude
    if math.isinf(order):
        return _reduced(at, relax.op.max if order > 0 else relax.op.min, magnitude, axes, keepdim)
    if order == 1:
        return relax.op.sum(magnitude, axes, keepdims=keepdim)
    powers = apply(at, "pow", magnitude, float(order))
    return apply(at, "pow", at.emit(relax.op.sum(at.expr(powers), axes, keepdims=keepdim)), 1 / float(order))


# Running sums and products.


def _running(at: Lowering, input: Tensor, dim: int, dtype: str | None, scan: Callable[..., relax.Expr]) -> Result:
    x = _summable(at, input, dtype)
    rank, own = len(shape_of(x)), dtype_of(x)
    if not rank:
        return x
    if own not in ("float16", "bfloat16"):
        return scan(x, axis_of(dim, rank))
    return at.convert(at.emit(scan(at.emit(at.convert(x, "float32")), axis_of(dim, rank))), own)


@operator("torch.cumsum", "Tensor.cumsum")
def _cumsum(at: Lowering, input: Tensor, dim: int, dtype: DType | None = None) -> Result:
    return _running(at, input, dim, dtype, relax.op.cumsum)


@operator("torch.cumprod", "Tensor.cumprod")
def _cumprod(at: Lowering, input: Tensor, dim: int, dtype: DType | None = None) -> Result:
    return _running(at, input, dim, dtype, relax.op.cumprod)


def _truth(at: Lowering, input: Tensor, dim: Ints | None, keepdim: bool, every: bool) -> relax.Expr:
    """Whether every element, or any, is not zero: as the least or largest of zeros and ones."""
    ones = at.emit(relax.op.astype(at.emit(at.convert(input, "bool")), "int32"))
    made = _reduced(at, relax.op.min if every else relax.op.max, ones, _axes(input, dim), keepdim)
    return at.convert(at.emit(made), "bool")


@operator("torch.all", "Tensor.all")
def _all(at: Lowering, input: Tensor, dim: Ints | None = None, keepdim: bool = False) -> Result:
    return _truth(at, input, dim, keepdim, every=True)


@operator("torch.any", "Tensor.any")
def _any(at: Lowering, input: Tensor, dim: Ints | None = None, keepdim: bool = False) -> Result:
    return _truth(at, input, dim, keepdim, every=False)
