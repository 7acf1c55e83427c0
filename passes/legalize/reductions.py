"""Legalizes max and min reductions that propagate NaN, as ONNX runtimes and PyTorch do.

TVM's own reductions drop NaN, and start from the largest finite numbers, so that they also lose infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tvm import relax, te, tirx

from nnefc.ir.kernel_calls import call_te
from nnefc.operators.math.reducers import min_or_max_of

__all__ = ["REDUCTIONS", "reduce_axes"]


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

    over, keepdims = min_or_max_of(maximum), bool(call.attrs.keepdims)
    return call_te(builder, lambda x: reduce_axes(x, axes, over, keepdims), x, name="max" if maximum else "min")


def reduce_axes(data: te.Tensor, axes: Sequence[int], over: Callable[..., tirx.Expr], keepdims: bool) -> te.Tensor:
    """Reduces some axes of `data` by a reducer; with `keepdims` they stay, with size 1."""
    along = {axis: te.reduce_axis((0, data.shape[axis]), f"k{axis}") for axis in axes}
    rank = len(data.shape)
    kept = [axis for axis in range(rank) if keepdims or axis not in along]

    def element(*index: tirx.Var) -> tirx.Expr:
        position = {**dict(zip(kept, index, strict=True)), **along}
        return over(data(*(position[axis] for axis in range(rank))), axis=list(along.values()))

    return te.compute([1 if axis in along else data.shape[axis] for axis in kept], element, name="reduced")


REDUCTIONS: Mapping[str, _Legalization] = {
    "relax.max": _maximum,
    "relax.min": _minimum,
}
"""The legalizations of these operators, for `relax.transform.LegalizeOps`."""
