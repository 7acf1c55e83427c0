"""Legalizes concatenations and splits with contiguous parts as views, which the memory plan may alias without a copy.

concat((a, b), axis)      →      call_tir(concatenate {in place}, (a, b))      # nothing varies before the axis
split(x, [8], axis)       →      call_tir(split {in place}, (x,))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TypeAlias

from tvm import relax, te, topi

from nnefc.ir.attributes import CONCATENATION, SPLIT
from nnefc.ir.kernel_calls import call_te
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import shape_of
from nnefc.symbolic.dims import dimension, is_known

__all__ = ["WHOLE_SLICES"]

_Legalization: TypeAlias = "Callable[[relax.BlockBuilder, relax.Call], relax.Expr]"


def _concatenation(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    parts, axis = call.args[0], call.attrs.axis
    if not isinstance(parts, relax.Tuple) or axis is None or not _is_first(call, int(axis)):
        return call.op.get_attr("FLegalize")(builder, call)
    attrs = {FUSION: OpPattern.OPAQUE, CONCATENATION: True}
    return call_te(builder, _concatenate, *parts.fields, int(axis), name="concatenate", attrs=attrs)


def _concatenate(*args: te.Tensor | int) -> te.Tensor:
    *tensors, axis = args
    return topi.concatenate(tensors, axis)


def _split(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    data, axis = call.args[0], int(call.attrs.axis)
    sizes = [dimension(part.shape[axis]) for part in call.ty.fields]
    if not _is_first(data, axis) or not is_known(*sizes):
        return call.op.get_attr("FLegalize")(builder, call)
    seams = tuple(accumulate(sizes))[:-1]
    attrs = {FUSION: OpPattern.OPAQUE, SPLIT: True}
    return call_te(builder, topi.split, data, seams, axis, name="split", attrs=attrs)


def _is_first(tensor: relax.Expr, axis: int) -> bool:
    """Whether the axes before this one all have size 1."""
    shape = shape_of(tensor)
    return all(size == 1 for size in shape[: axis % len(shape)])


WHOLE_SLICES: Mapping[str, _Legalization] = {"relax.concat": _concatenation, "relax.split": _split}
"""The legalizations of these operators, for `relax.transform.LegalizeOps`."""
