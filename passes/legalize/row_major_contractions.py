"""Legalizes convolutions and matrix products on row-major tensors, for targets without blocked layouts.

conv2d(x, W)              →      convolve_row_major(x, pack_row_major(W))
conv2d_transpose(x, W)    →      interleave_row_major(convolve_row_major(x, phases of W))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tvm import relax

from nnefc.ir.kernel_calls import call_te
from nnefc.operators.nn.convolution import gather_transposed
from nnefc.operators.nn.window import Window
from nnefc.passes.compute.fp16_matmul import multiply_row_major
from nnefc.passes.compute.row_major_convolution import (
    convolve_row_major,
    interleave_row_major,
    pack_row_major,
    pack_row_major_array,
)
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.layout.rules.convolution import integers, split_padding
from nnefc.passes.graph.layout.rules.deconvolution import phases_of
from nnefc.passes.graph.rewriter import array_of, constant, is_constant, shape_of

__all__ = ["CONTRACTIONS"]

_Legalization: TypeAlias = "Callable[[relax.BlockBuilder, relax.Call], relax.Expr]"

_FUSABLE = {FUSION: OpPattern.OUT_FUSABLE}


def _convolution(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    data, filters = call.args
    attrs = call.attrs
    if not _is_row_major(attrs, len(shape_of(data)) - 2):
        return call.op.get_attr("FLegalize")(builder, call)
    packed = (
        constant(pack_row_major_array(array_of(filters)))
        if is_constant(filters)
        else builder.emit(call_te(builder, pack_row_major, filters, name="pack_filter"))
    )
    before, after = split_padding(attrs.padding, len(shape_of(data)) - 2)
    return call_te(
        builder,
        convolve_row_major,
        data,
        packed,
        before,
        after,
        integers(attrs.strides),
        integers(attrs.dilation),
        int(attrs.groups),
        str(call.ty.dtype),
        name="convolution",
        attrs=_FUSABLE,
    )


def _deconvolution(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    data, filters = call.args
    attrs = call.attrs
    rank = len(shape_of(data)) - 2
    if not _is_row_major(attrs, rank):
        return call.op.get_attr("FLegalize")(builder, call)
    before, after = split_padding(attrs.padding, rank)
    strides, dilation, groups = integers(attrs.strides), integers(attrs.dilation), int(attrs.groups)
    outputs, dtype = shape_of(call)[2:], str(call.ty.dtype)
    if is_constant(filters) and groups == 1 and all(step == 1 for step in dilation):
        phases = phases_of(array_of(filters), shape_of(data)[2:], outputs, strides, before, 1)
        if phases is not None:
            made = call_te(
                builder,
                convolve_row_major,
                data,
                constant(pack_row_major_array(phases.filters)),
                phases.sliding.before,
                phases.sliding.after,
                phases.sliding.strides,
                phases.sliding.dilation,
                1,
                dtype,
                name="deconvolution_phases",
                attrs=_FUSABLE,
            )
            way = phases.way
            if way.is_identity:
                return made
            return call_te(
                builder,
                lambda phases: interleave_row_major(phases, way.strides, way.before, way.outputs),
                builder.emit(made),
                name="interleave",
            )
    window = Window(shape_of(filters)[2:], strides, dilation, tuple(zip(before, after, strict=True)))
    return call_te(
        builder,
        lambda x, weights: gather_transposed(x, weights, window, groups, outputs, dtype),
        data,
        filters,
        name="deconvolution",
        attrs=_FUSABLE,
    )


def _matmul(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    left, right = call.args
    ranks = [len(shape_of(side)) for side in (left, right)]
    if str(left.ty.dtype) not in ("float16", "bfloat16") or min(ranks) < 2:
        return call.op.get_attr("FLegalize")(builder, call)
    return call_te(
        builder,
        multiply_row_major,
        left,
        right,
        str(call.ty.dtype),
        name="matmul",
        attrs=_FUSABLE,
    )


def _is_row_major(attrs: relax.Attrs, rank: int) -> bool:
    """Whether channels come before the spatial dimensions, in the data, in the filter and in the result."""
    spatial = "DHW"[3 - rank :] if rank > 1 else "W"
    layout = f"NC{spatial}"
    return (
        str(attrs.data_layout) == layout
        and str(attrs.out_layout) in ("", layout)
        and (str(attrs.kernel_layout) in (f"OI{spatial}", f"IO{spatial}"))
    )


CONTRACTIONS: Mapping[str, _Legalization] = {
    **{f"relax.nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d_transpose": _deconvolution for rank in (1, 2, 3)},
    "relax.matmul": _matmul,
}
"""The legalizations of these operators, for `relax.transform.LegalizeOps`."""
