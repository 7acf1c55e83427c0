"""Quantized operators."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.contractions_space import window_of
from spaces.declared import DOMAIN, F, axis_of, space


@space("QuantizeLinear")
def _quantize(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    dtype, axis = w.one(np.int8, np.uint8, *[np.int16, np.uint16] * (w.opset >= 21)), _axis(w, x)
    zero = zero_of(w, x, dtype, axis)
    (q,) = w.add(name, x, _scale(w, x, axis), zero, **_along(axis))
    if w.chance(0.7):
        zero = zero if w.chance(0.5) else zero_of(w, x, dtype, axis)
        return w.add("DequantizeLinear", q, _scale(w, x, axis), zero, **_along(axis))
    return q


@space("DequantizeLinear")
def _dequantize(w: Walk, name: str) -> object:
    x = w.pick((np.int8, np.uint8, *[np.int16, np.uint16] * (w.opset >= 21)), range(1, 5))
    axis = _axis(w, x)
    zero = zero_of(w, x, x.array.dtype, axis) if w.chance(0.6) else None
    return w.add(name, x, _scale(w, x, axis), zero, **_along(axis))


def _axis(w: Walk, x: Tensor) -> int | None:
    """The axis along which each index has a scale of its own; None if the tensor has a single scale."""
    return axis_of(w, x) if w.chance(0.5) else None


def _along(axis: int | None) -> dict[str, int]:
    return {} if axis is None else {"axis": axis}


def _scale(w: Walk, x: Tensor, axis: int | None) -> Tensor:
    """The scale of a quantized tensor, or one for each index along an axis."""
    return w.constant(w.rng.uniform(0.02, 0.3, () if axis is None else x.shape[axis]).astype(F))


def zero_of(w: Walk, x: Tensor, dtype: npt.DTypeLike, axis: int | None) -> Tensor:
    """Zero points that numbers of both signs are around."""
    low, high = (-20, 21) if np.dtype(dtype).kind == "i" else (0, 201)
    return w.constant(w.rng.integers(low, high, () if axis is None else x.shape[axis]).astype(dtype))


@space("QLinearConv", "com.microsoft.QLinearConv")
def _convolve_quantized(w: Walk, name: str) -> object:
    x = w.pick((np.uint8, np.int8), [3, 4, 4])
    attributes = window_of(w, x)
    attributes.pop("auto_pad", None)
    last = w.number(0, 1) if name != "QLinearConv" else 0
    channels = x.shape[-1 if last else 1]
    if name != "QLinearConv":
        if w.floats != F:
            raise Rejected("of float32 alone")
        attributes |= {"channels_last": last, "domain": DOMAIN}
    groups = w.one(1, 1, 1, channels, *(g for g in (2, 3, 4) if channels % g == 0))
    outputs = groups * w.one(1, 2, 4, 8) if groups > 1 else w.size()
    shape = (outputs, channels // groups, *attributes["kernel_shape"])
    weight = w.constant(w.rng.integers(-90, 91, shape).astype(np.int8))
    each = 0 if w.chance(0.6) else None
    zero = w.constant(np.zeros(() if each is None else outputs, np.int8))
    bias = w.constant(w.rng.integers(-900, 900, outputs).astype(np.int32)) if w.chance(0.6) else None
    inner = float(np.sqrt(np.prod(shape[1:])))
    return w.add(
        "QLinearConv",
        x,
        _scale(w, x, None),
        zero_of(w, x, x.array.dtype, None),
        weight,
        _scale(w, weight, each),
        zero,
        w.constant(w.real(0.2, 0.6) * inner, F),
        zero_of(w, x, x.array.dtype, None),
        bias,
        group=groups,
        **attributes,
    )


@space("QLinearMatMul")
def _multiply_quantized(w: Walk, name: str) -> object:
    a = w.pick((np.uint8, np.int8), range(2, 5))
    b = w.constant(w.rng.integers(-90, 91, (a.shape[-1], w.size())).astype(np.int8))
    scale = w.constant(w.real(0.2, 0.6) * float(np.sqrt(max(1, a.shape[-1]))), F)
    kind = a.array.dtype
    scaled = (_scale(w, a, None), zero_of(w, a, kind, None), b, _scale(w, b, None), zero_of(w, b, np.int8, None))
    return w.add(name, a, *scaled, scale, zero_of(w, a, kind, None))


@space("MatMulNBits")
def _multiply_blocks(w: Walk, name: str) -> object:
    a = w.pick(ranks=range(2, 4))
    bits, size, k, n = w.one(4, 4, 8), w.one(16, 32, 64), a.shape[-1], w.size()
    blocks = -(-k // size)
    packed = w.rng.integers(0, 256, (n, blocks, size * bits // 8)).astype(np.uint8)
    scales = w.rng.uniform(0.5, 1.5, n * blocks) / ((1 << (bits - 2)) * np.sqrt(k))
    zeros = None
    if w.chance(0.4):
        zeros = w.constant(w.rng.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8))
    return w.add(
        name,
        a,
        w.constant(packed),
        w.constant(scales.astype(F)),
        zeros,
        domain=DOMAIN,
        K=k,
        N=n,
        bits=bits,
        block_size=size,
    )


@space("ConvInteger")
def _convolve_integers(w: Walk, name: str) -> object:
    x = w.pick((np.uint8,), [4])
    attributes = window_of(w, x)
    weight = w.rng.integers(-90, 90, (w.size(), x.shape[1], *attributes["kernel_shape"])).astype(np.int8)
    zero = w.constant(w.number(0, 200), np.uint8) if w.chance(0.6) else None
    return w.add(name, x, w.constant(weight), zero, **attributes)


@space("MatMulInteger")
def _multiply_integers(w: Walk, name: str) -> object:
    x = w.pick((np.uint8, np.int8), range(2, 4))
    weight = w.rng.integers(-90, 90, (x.shape[-1], w.size())).astype(np.int8)
    zero = w.constant(w.number(0, 100), x.array.dtype) if w.chance(0.6) else None
    return w.add(name, x, w.constant(weight), zero)


@space("DynamicQuantizeLinear")
def _quantize_dynamically(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 4))
    if not x.exact.any():
        raise Rejected("the standard divides by zero, and all answer otherwise")
    return w.add(name, x, outputs=3)
