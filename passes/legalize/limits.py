"""`relu`, `clip`, maxima and minima that leave what is not a number as it is, as ONNX's runtimes and PyTorch do.

`max(a, b)` is `a if a > b else b`: of TVM's own `max(x, 0)` the result is 0. With the operands in the other order it is
the element itself, at the same cost.

    relu(x)              →      max(0, x)
    clip(x, a, b)        →      min(b, max(a, x))

TVM's reductions to the maximum and the minimum start from the largest finite numbers, so that infinities get lost too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tvm import relax, te, tirx

from nnefc.operators.reducers import extreme

__all__ = ["LIMITS"]


_Legalization: TypeAlias = "Callable[[relax.BlockBuilder, relax.Call], relax.Expr]"


def _relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return _each(builder, call, lambda x: _at_least(x, 0.0), "relu")


def _clip(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    low, high = (float(bound.value) for bound in call.args[1:])
    return _each(builder, call, lambda x: _at_most(_at_least(x, low), high), "clip")


def _maximum(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return _reduction(builder, call, maximum=True)


def _minimum(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return _reduction(builder, call, maximum=False)


def _reduction(builder: relax.BlockBuilder, call: relax.Call, maximum: bool) -> relax.Expr:
    (x,) = call.args
    if not str(x.ty.dtype).startswith(("float", "bfloat")):
        return call.op.get_attr("FLegalize")(builder, call)
    rank = len(x.ty.shape)
    axes = range(rank) if call.attrs.axis is None else sorted(int(axis) % rank for axis in call.attrs.axis)

    def compute(x: te.Tensor) -> te.Tensor:
        along = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in axes}
        kept = [axis for axis in range(rank) if call.attrs.keepdims or axis not in along]

        def element(*index: tirx.Var) -> tirx.Expr:
            place = {**dict(zip(kept, index, strict=True)), **along}
            return extreme(maximum)(x(*(place[axis] for axis in range(rank))), axis=list(along.values()))

        return te.compute([1 if axis in along else x.shape[axis] for axis in kept], element, name="extreme")

    return builder.call_te(compute, x, primfunc_name_hint="max" if maximum else "min")


def _each(
    builder: relax.BlockBuilder, call: relax.Call, element: Callable[[tirx.Expr], tirx.Expr], name: str
) -> relax.Expr:
    (x, *_) = call.args
    if not str(x.ty.dtype).startswith(("float", "bfloat")):
        return call.op.get_attr("FLegalize")(builder, call)

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *index: element(x(*index)), name=name)

    return builder.call_te(compute, x, primfunc_name_hint=name)


def _at_least(x: tirx.Expr, low: float) -> tirx.Expr:
    return tirx.Max(tirx.const(low, x.ty.dtype), x)


def _at_most(x: tirx.Expr, high: float) -> tirx.Expr:
    return tirx.Min(tirx.const(high, x.ty.dtype), x)


LIMITS: Mapping[str, _Legalization] = {
    "relax.nn.relu": _relu,
    "relax.clip": _clip,
    "relax.max": _maximum,
    "relax.min": _minimum,
}
"""How `relax.transform.LegalizeOps` makes computations of these operators."""
