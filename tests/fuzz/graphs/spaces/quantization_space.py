"""Quantized operators."""

from __future__ import annotations

import numpy as np
from steps import Rejected
from walk import Walk

from spaces.contractions_space import window_of
from spaces.declared import F, space


@space("QuantizeLinear")
def _quantize(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    zero = w.one(np.int8(w.number(-20, 20)), np.uint8(w.number(0, 200)))
    (q,) = w.add(name, x, w.constant(w.real(0.02, 0.3), F), w.constant(zero))
    if w.chance(0.7):
        return w.add("DequantizeLinear", q, w.constant(w.real(0.02, 0.3), F), w.constant(zero))
    return q


@space("DequantizeLinear")
def _dequantize(w: Walk, name: str) -> object:
    x = w.pick((np.int8, np.uint8), range(1, 5))
    zero = w.constant(w.number(0, 20), x.array.dtype) if w.chance(0.6) else None
    return w.add(name, x, w.constant(w.real(0.02, 0.3), F), zero)


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
