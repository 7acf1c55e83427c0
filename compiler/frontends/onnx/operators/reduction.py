"""Reductions over axes, ArgMin and ArgMax, softmax and related operators, cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary, unary
from nnefc.frontends.onnx.operators.tensors import (
    dtype_of,
    fail,
    input_at,
    integers,
    normal_axes,
    normal_axis,
    required_value,
    shape_of,
    spell,
    tells_at_run_time,
)
from nnefc.operators.dtypes import is_float
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.reduction import (
    ArgMinMax,
    Cumulative,
    CumulativeInRun,
    Hardmax,
    LogSumExp,
    Maximum,
    Mean,
    Minimum,
    Norm,
    Product,
    Reduction,
    Sum,
)
from nnefc.operators.nn.activation import Softmax
from nnefc.operators.tensor.shape import Reshape

__all__: list[str] = []

_REDUCTIONS: dict[str, tuple[Callable[[tuple[int, ...], bool], Reduction], tuple[int, ...]]] = {
    "ReduceSum": (Sum, (1, 11, 13)),
    "ReduceMean": (Mean, (1, 11, 13, 18)),
    "ReduceProd": (Product, (1, 11, 13, 18)),
    "ReduceMax": (Maximum, (1, 11, 12, 13, 18, 20)),
    "ReduceMin": (Minimum, (1, 11, 12, 13, 18, 20)),
    "ReduceL1": (partial(Norm, order=1), (1, 11, 13, 18)),
    "ReduceL2": (partial(Norm, order=2), (1, 11, 13, 18)),
    "ReduceSumSquare": (Sum, (1, 11, 13, 18)),
    "ReduceLogSum": (Sum, (1, 11, 13, 18, 28)),
    "ReduceLogSumExp": (LogSumExp, (1, 11, 13, 18, 28)),
}


def _lower_reduction(ctx: Context, node: Node) -> Value:
    x, name = input_at(node, 0), node.op_type
    axes = tuple(_axes(ctx, node, x.rank))
    x = binary(ctx, "Mul", x, x) if name == "ReduceSumSquare" else x
    made: Value = ctx.apply(_REDUCTIONS[name][0](axes, bool(node.attributes.get("keepdims", 1))), x)
    return _logarithm(ctx, made) if name == "ReduceLogSum" else made


def _logarithm(ctx: Context, x: Value) -> Value:
    """Returns the logarithm of `x`; of integers, without its fraction."""
    if is_float(dtype_of(x)):
        return unary(ctx, "Log", x)
    made: Value = ctx.apply(Cast(dtype_of(x)), unary(ctx, "Log", ctx.apply(Cast("float64"), x)))
    return made


def _axes(ctx: Context, node: Node, rank: int) -> list[int]:
    """The axes that a node names as attribute or input; without any all of them, or none where it says so."""
    given = node.attributes.get("axes")
    if given is None and len(node.inputs) > 1:
        given = integers(ctx, node, 1, "axes")
    if given:
        return sorted(normal_axes(node, given, rank))
    return [] if node.attributes.get("noop_with_empty_axes") else list(range(rank))


for _name, (_, _since) in _REDUCTIONS.items():
    operator(_name, since=_since)(_lower_reduction)


@operator("ArgMax", since=(1, 11, 12, 13))
@operator("ArgMin", since=(1, 11, 12, 13))
def _arg_min_max(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    axes = (normal_axis(node, node.attributes["axis"], x.rank),)
    largest, last = node.op_type == "ArgMax", bool(node.attributes.get("select_last_index"))
    made: Value = ctx.apply(ArgMinMax(axes, bool(node.attributes["keepdims"]), largest, last), x)
    return made


# Softmax and its kin. Up to version 11 they work on a matrix: all axes from `axis` on are one.


def _as_rows(ctx: Context, node: Node) -> tuple[Value, int]:
    x = input_at(node, 0)
    shape = shape_of(x)
    axis = normal_axis(node, node.attributes["axis"], max(1, len(shape)))
    if node.version >= 13:
        return x, axis
    return ctx.apply(Reshape((math.prod(shape[:axis]), math.prod(shape[axis:]))), x), 1


def _lower_softmax(ctx: Context, node: Node) -> Any:
    x, axis = _as_rows(ctx, node)
    dtype = dtype_of(x)
    wide = ctx.apply(Cast("float64" if dtype == "float64" else "float32"), x)
    if 0 in shape_of(x):
        return input_at(node, 0)
    made: Value = ctx.apply(Softmax((axis,), logarithm=node.op_type == "LogSoftmax"), wide)
    return ctx.apply(Reshape(shape_of(input_at(node, 0))), ctx.apply(Cast(dtype), made))


operator("Softmax", since=(1, 11, 13))(_lower_softmax)
operator("LogSoftmax", since=(1, 11, 13))(_lower_softmax)


@operator("Hardmax", since=(1, 11, 13))
def _hardmax(ctx: Context, node: Node) -> Any:
    x, axis = _as_rows(ctx, node)
    return ctx.apply(Reshape(shape_of(input_at(node, 0))), ctx.apply(Hardmax(axis), x))


@operator("CumSum", since=(11, 14))
@operator("CumProd", since=(26,))
def _running(ctx: Context, node: Node) -> Any:
    x, axis = input_at(node, 0), input_at(node, 1)
    how = (node.op_type == "CumProd", bool(node.attributes["exclusive"]), bool(node.attributes["reverse"]))
    if tells_at_run_time(ctx, node, 1):
        if math.prod(axis.shape) != 1:
            raise fail(node, f"the axis {spell(axis.shape)} is not one number")
        return ctx.apply(CumulativeInRun(*how), x, axis)
    known = int(required_value(ctx, node, 1, "axis").reshape(())[()])
    return ctx.apply(Cumulative(normal_axis(node, known, x.rank), *how), x)
