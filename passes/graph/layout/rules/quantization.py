"""Rewrites quantization and dequantization of blocked tensors, with per-channel scales in blocks.

q = quantize(x, s[C], z[C], axis=1)     →     q[n, b, y, x, i] = cut(round(x[n, b, y, x, i] / s[b, i]) + z[b, i])
"""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from nnefc.passes.compute.dot.quantize_dequantize import dequantized, quantized
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.rewriter import array_of, constant, is_call, is_constant

__all__ = ["RULES"]


def _quantization(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    data, *parameters = call.args
    layout = layouts.layout_of(data)
    if layout is None or not all(map(is_constant, parameters)):
        return None
    scale, zero = map(array_of, parameters)
    if scale.size == zero.size == 1:
        whole = [constant(array.reshape(())) for array in (scale, zero)]
        return layouts.like(data, layouts.builder.emit(relax.Call(call.op, [data, *whole], call.attrs)))
    if int(call.attrs.axis) % len(layouts.row_major_shape(data)) != 1:
        return None
    scales, zeros = (_in_slots(array, layout, fill) for array, fill in ((scale, 1), (zero, 0)))
    dtype = str(call.attrs.out_dtype) if is_call(call, "quantize") else None

    def compute(x: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        def element(*index: tirx.Var) -> tirx.Expr:
            own, *tail = (tensor(index[1], index[-1]) for tensor in tensors)
            moved = tail[0] if tail else None
            return dequantized(x(*index), own, moved) if dtype is None else quantized(x(*index), own, moved, dtype)

        return te.compute(x.shape, element, name=name)

    name = "dequantize" if dtype is None else "quantize"
    operands = [constant(scales), *([constant(zeros)] if zeros.any() else [])]
    return layouts.like(data, layouts.emit(compute, data, *operands, name=name))


def _in_slots(array: np.ndarray, layout: Blocked, fill: int) -> np.ndarray:
    """Returns parameters of channels as `[blocks, block]`; empty slots get `fill`."""
    order = np.asarray(layout.order)
    found = np.broadcast_to(array, layout.channels)[np.maximum(order, 0)]
    return np.where(order >= 0, found, np.asarray(fill, array.dtype)).reshape(-1, layout.size)


RULES: dict[str, LayoutRule] = dict.fromkeys(("dequantize", "quantize"), _quantization)
