"""Reductions to the maximum and the minimum that keep what is not a number, as ONNX's runtimes and PyTorch do.

TVM's own lose it, and start from the largest finite numbers, so that infinities get lost too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tvm import relax, te, tirx

from nnefc.kernel_calls import call_te
from nnefc.operators.reducers import extreme

__all__ = ["REDUCTIONS"]


_Legalization: TypeAlias = "Callable[[relax.BlockBuilder, relax.Call], relax.Expr]"


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

    return call_te(builder, compute, x, name="max" if maximum else "min")


REDUCTIONS: Mapping[str, _Legalization] = {
    "relax.max": _maximum,
    "relax.min": _minimum,
}
"""How `relax.transform.LegalizeOps` makes computations of these operators."""
