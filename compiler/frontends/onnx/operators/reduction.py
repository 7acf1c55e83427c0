"""Reductions over axes, positions of extremes, softmax and its kin, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary, elementwise, unary
from nnefc.frontends.onnx.operators.tensors import (
    cast,
    dtype_of,
    input_at,
    integers,
    is_float,
    known,
    normal_axes,
    normal_axis,
    required_value,
    reshaped,
    scalar_type,
    shape_of,
    value_of,
)
from nnefc.operators.activation import Softmax

__all__ = ["mean", "reduce_with"]


@dataclass(frozen=True)
class _Reduction:
    """How a reduction is built: `before` each item, `reduce` over them, `after` the result, and that of no items.

    Without `reduce` it is a maximum or minimum, which start from the result of no items. (Relax's start from the
    largest finite numbers, so infinities get lost.)
    """

    reduce: Callable[..., relax.Expr] | None
    empty: Callable[[str], Any]
    before: Callable[[Context, Value], Value] = lambda _ctx, x: x
    after: Callable[[Context, Value], Value] = lambda _ctx, x: x


def _lowest(dtype: str) -> Any:
    if dtype == "bool":
        return False
    return -np.inf if is_float(dtype) else np.iinfo(dtype).min


def _highest(dtype: str) -> Any:
    if dtype == "bool":
        return True
    return np.inf if is_float(dtype) else np.iinfo(dtype).max


def _square(ctx: Context, x: Value) -> Value:
    return binary(ctx, "Mul", x, x)


def _absolute(ctx: Context, x: Value) -> Value:
    return unary(ctx, "Abs", x)


def _root(ctx: Context, x: Value) -> Value:
    return unary(ctx, "Sqrt", x)


def _log(ctx: Context, x: Value) -> Value:
    return unary(ctx, "Log", x)


_REDUCTIONS: dict[str, tuple[_Reduction, tuple[int, ...]]] = {
    "ReduceSum": (_Reduction(relax.op.sum, lambda d: 0), (1, 11, 13)),
    "ReduceMean": (_Reduction(relax.op.mean, lambda d: np.nan), (1, 11, 13, 18)),
    "ReduceProd": (_Reduction(relax.op.prod, lambda d: 1), (1, 11, 13, 18)),
    "ReduceMax": (_Reduction(None, _lowest), (1, 11, 12, 13, 18, 20)),
    "ReduceMin": (_Reduction(None, _highest), (1, 11, 12, 13, 18, 20)),
    "ReduceL1": (_Reduction(relax.op.sum, lambda d: 0, before=_absolute), (1, 11, 13, 18)),
    "ReduceL2": (_Reduction(relax.op.sum, lambda d: 0, before=_square, after=_root), (1, 11, 13, 18)),
    "ReduceSumSquare": (_Reduction(relax.op.sum, lambda d: 0, before=_square), (1, 11, 13, 18)),
    "ReduceLogSum": (_Reduction(relax.op.sum, lambda d: 0, after=_log), (1, 11, 13, 18, 28)),
}


def reduce_with(ctx: Context, name: str, x: Value, axes: list[int], keepdims: bool) -> Value:
    """One of the reductions above over axes counted from the front; half floats are reduced in float32."""
    reduction, shape = _REDUCTIONS[name][0], shape_of(x)
    target = tuple(1 if axis in axes else e for axis, e in enumerate(shape) if keepdims or axis not in axes)
    dtype = dtype_of(x)
    work = {"float16": "float32", "bfloat16": "float32", "bool": "uint8"}.get(dtype, dtype)
    value = reduction.before(ctx, cast(ctx, x, work))
    if not axes:
        return cast(ctx, reduction.after(ctx, value), dtype)
    if 0 in (shape[axis] for axis in axes):
        value = known(ctx, np.full(target, reduction.empty(dtype)).astype(work))
    elif name == "ReduceMean" and not is_float(dtype):
        count = math.prod(shape[axis] for axis in axes)
        total = ctx.emit(relax.op.sum(ctx.expr(value), axes, keepdims=keepdims))
        value = binary(ctx, "Div", total, known(ctx, np.array(count).astype(work)))
    elif reduction.reduce is None:
        value = _extreme(ctx, value, axes, target, reduction.empty(work), name == "ReduceMax")
    else:
        value = ctx.emit(reduction.reduce(ctx.expr(value), axes, keepdims=keepdims))
    return cast(ctx, reduction.after(ctx, value), dtype)


def _extreme(ctx: Context, x: Value, axes: list[int], target: tuple[int, ...], start: Any, largest: bool) -> Value:
    """The largest or the smallest items along axes."""
    shape, dtype = x.shape, x.dtype
    first = tirx.const(float(start) if is_float(dtype) else int(start), dtype)
    combine = (lambda a, b: tirx.max(a, b)) if largest else (lambda a, b: tirx.min(a, b))  # TE counts arguments
    reducer = te.comm_reducer(combine, lambda _dtype: first, name="extreme")
    kept = len(target) == len(shape)

    def function(x: Any) -> Any:
        along = {axis: te.reduce_axis((0, shape[axis]), f"along{axis}") for axis in axes}

        def item(*index: Any) -> Any:
            rest = iter([i for axis, i in enumerate(index) if not kept or axis not in axes])
            return reducer(
                x(*(along[a] if a in along else next(rest) for a in range(len(shape)))), axis=list(along.values())
            )

        return te.compute(target, item, name="extreme")

    made: Value = ctx.emit_te(function, x, name="extreme")
    return made


def mean(ctx: Context, x: Value, axes: list[int]) -> Value:
    """The means along axes, which stay with the extent 1."""
    return reduce_with(ctx, "ReduceMean", x, axes, keepdims=True)


def _axes(ctx: Context, node: Node, rank: int) -> list[int] | None:
    """The axes that a node names as attribute or input, all without any; None if then nothing is to be reduced."""
    given = node.attributes.get("axes")
    if given is None and len(node.inputs) > 1:
        given = integers(ctx, node, 1, "axes")
    if given:
        return sorted(normal_axes(node, given, rank))
    return None if node.attributes.get("noop_with_empty_axes") else list(range(rank))


_KNOWN: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
}


def _lower_reduction(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    axes = _axes(ctx, node, len(shape_of(x)))
    keepdims = bool(node.attributes.get("keepdims", 1))
    array = value_of(ctx, x)
    if array is not None and array.size and node.op_type in _KNOWN and axes is not None:
        reduced = _KNOWN[node.op_type](array, axis=tuple(axes), keepdims=keepdims)
        return known(ctx, np.asarray(reduced).astype(array.dtype))
    return reduce_with(ctx, node.op_type, x, axes or [], keepdims)


for _name, (_, _since) in _REDUCTIONS.items():
    operator(_name, since=_since)(_lower_reduction)


def _zero_if_infinite(v: Any) -> Any:
    infinity, zero = tirx.const(float("inf"), scalar_type(v)), tirx.const(0, scalar_type(v))
    return tirx.Select(tirx.any(v == infinity, v == -infinity), zero, v)


@operator("ReduceLogSumExp", since=(1, 11, 13, 18, 28))
def _log_sum_exp(ctx: Context, node: Node) -> Value:
    """The largest item is taken out first, so that nothing overflows."""
    x = input_at(node, 0)
    shape, dtype = shape_of(x), dtype_of(x)
    axes = _axes(ctx, node, len(shape)) or []
    keepdims = bool(node.attributes.get("keepdims", 1))
    if not axes:
        return x
    target = tuple(1 if axis in axes else e for axis, e in enumerate(shape) if keepdims or axis not in axes)
    if 0 in (shape[axis] for axis in axes):
        return known(ctx, np.full(target, -np.inf).astype(dtype))
    wide = cast(ctx, x, "float64" if dtype == "float64" else "float32")
    largest = reduce_with(ctx, "ReduceMax", wide, axes, keepdims=True)
    finite = elementwise(ctx, _zero_if_infinite, largest, name="finite")
    powers = unary(ctx, "Exp", binary(ctx, "Sub", wide, finite))
    total = binary(ctx, "Add", unary(ctx, "Log", reduce_with(ctx, "ReduceSum", powers, axes, keepdims=True)), finite)
    return cast(ctx, reshaped(ctx, total, target), dtype)


def _arg_extreme(ctx: Context, node: Node) -> Value:
    """The position of the largest or smallest item along an axis, int64; of equal ones the first, or the last."""
    x = input_at(node, 0)
    shape, dtype = shape_of(x), dtype_of(x)
    axis = normal_axis(node, node.attributes["axis"], len(shape))
    largest, last = node.op_type == "ArgMax", bool(node.attributes.get("select_last_index"))
    worst = (te.min_value if largest else te.max_value)(dtype)

    def better(a: Any, b: Any) -> Any:
        first = a[0] >= b[0] if last else a[0] <= b[0]
        ahead = a[1] > b[1] if largest else a[1] < b[1]
        take = tirx.any(ahead, tirx.all(a[1] == b[1], first))
        return tirx.Select(take, a[0], b[0]), tirx.Select(take, a[1], b[1])

    start = -1 if last else 2**62
    reducer = te.comm_reducer(better, lambda i, v: (tirx.const(start, i), worst), name="arg_extreme")

    def function(x: Any) -> Any:
        along = te.reduce_axis((0, shape[axis]), "along")

        def item(*index: Any) -> Any:
            value = x(*index[:axis], along, *index[axis + 1 :])
            return reducer((along.var.astype("int64"), value), axis=along)

        both = te.compute((*shape[:axis], 1, *shape[axis + 1 :]), item, name=node.op_type.lower())
        return te.compute(both[0].shape, lambda *index: both[0](*index), name="position")

    found = ctx.emit_te(function, x, name=node.op_type.lower())
    return found if node.attributes["keepdims"] else reshaped(ctx, found, (*shape[:axis], *shape[axis + 1 :]))


operator("ArgMax", since=(1, 11, 12, 13))(_arg_extreme)
operator("ArgMin", since=(1, 11, 12, 13))(_arg_extreme)


# Softmax and its kin. Up to version 11 they work on a matrix: all axes from `axis` on are one.


def _as_rows(ctx: Context, node: Node) -> tuple[Value, int]:
    x = input_at(node, 0)
    shape = shape_of(x)
    axis = normal_axis(node, node.attributes["axis"], max(1, len(shape)))
    if node.version >= 13:
        return x, axis
    return reshaped(ctx, x, (math.prod(shape[:axis]), math.prod(shape[axis:]))), 1


def _lower_softmax(ctx: Context, node: Node) -> Value:
    x, axis = _as_rows(ctx, node)
    dtype = dtype_of(x)
    wide = cast(ctx, x, "float64" if dtype == "float64" else "float32")
    if 0 in shape_of(x):
        return input_at(node, 0)
    made: Value = ctx.apply(Softmax((axis,), logarithm=node.op_type == "LogSoftmax"), wide)
    return reshaped(ctx, cast(ctx, made, dtype), shape_of(input_at(node, 0)))


operator("Softmax", since=(1, 11, 13))(_lower_softmax)
operator("LogSoftmax", since=(1, 11, 13))(_lower_softmax)


@operator("Hardmax", since=(1, 11, 13))
def _hardmax(ctx: Context, node: Node) -> Value:
    """1 at the first of the largest items, 0 elsewhere."""
    x, axis = _as_rows(ctx, node)
    shape, dtype = shape_of(x), dtype_of(x)

    def better(a: Any, b: Any) -> Any:
        take = tirx.any(a[1] > b[1], tirx.all(a[1] == b[1], a[0] <= b[0]))
        return tirx.Select(take, a[0], b[0]), tirx.Select(take, a[1], b[1])

    first = te.comm_reducer(better, lambda i, v: (tirx.const(2**31 - 1, i), te.min_value(v)), name="first_largest")

    def function(x: Any) -> Any:
        along = te.reduce_axis((0, shape[axis]), "along")

        def item(*index: Any) -> Any:
            return first((along.var.astype("int32"), x(*index[:axis], along, *index[axis + 1 :])), axis=along)

        both = te.compute((*shape[:axis], 1, *shape[axis + 1 :]), item, name="largest")

        def mark(*index: Any) -> Any:
            hit = both[0](*index[:axis], 0, *index[axis + 1 :]) == index[axis].astype("int32")
            return tirx.Select(hit, tirx.const(1, dtype), tirx.const(0, dtype))

        return te.compute(shape, mark, name="hardmax")

    return reshaped(ctx, ctx.emit_te(function, x, name="hardmax"), shape_of(input_at(node, 0)))


# Running sums and products.


def _running(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    shape, dtype = shape_of(x), dtype_of(x)
    axis = normal_axis(node, int(required_value(ctx, node, 1, "axis").reshape(())[()]), len(shape))
    exclusive, reverse = bool(node.attributes["exclusive"]), bool(node.attributes["reverse"])
    scan = relax.op.cumprod if node.op_type == "CumProd" else relax.op.cumsum
    value = cast(ctx, x, "float32" if dtype in ("float16", "bfloat16") else dtype)

    def turned(value: Value) -> Value:
        return ctx.emit(relax.op.flip(ctx.expr(value), axis)) if reverse else value

    made = ctx.emit(scan(ctx.expr(turned(value)), axis, exclusive=exclusive))
    return cast(ctx, turned(made), dtype)


operator("CumSum", since=(11, 14))(_running)
operator("CumProd", since=(26,))(_running)
