"""Operators of onnxruntime's domain that its quantizers write."""

from __future__ import annotations

import numpy as np
from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.contractions_space import window_of
from spaces.declared import DOMAIN, F, axes_of, axis_of, computed_indices, some, space, weight
from spaces.quantization_space import zero_of


def _scale(w: Walk, low: float, high: float) -> Tensor:
    return w.constant(w.real(low, high), F, is_float32=True)


def _quantized(w: Walk, ranks: range = range(1, 5)) -> list[Tensor]:
    """A tensor of 8 bits with its scale and its zero point."""
    x = w.pick((np.uint8, np.int8), ranks)
    return [x, _scale(w, 0.02, 0.3), zero_of(w, x, x.array.dtype, None)]


@space("QLinearAdd", "QLinearMul")
def _linear_pair(w: Walk, name: str) -> object:
    a = _quantized(w)
    (x, _, _) = a
    b = w.fitting(x)
    kind = x.array.dtype
    own = _scale(w, 0.02, 0.3), zero_of(w, b, kind, None)
    factor = 5 if name == "QLinearMul" else 1
    return w.add(name, *a, b, *own, _scale(w, 0.2 * factor, 0.8 * factor), zero_of(w, x, kind, None), domain=DOMAIN)


@space("QLinearSigmoid", "QLinearLeakyRelu")
def _linear_function(w: Walk, name: str) -> object:
    a = _quantized(w)
    zero = zero_of(w, a[0], a[0].array.dtype, None)
    scale = _scale(w, 0.004, 0.02) if name == "QLinearSigmoid" else _scale(w, 0.1, 0.5)
    given = some(w, alpha=w.real(0.05, 0.5)) if name == "QLinearLeakyRelu" else {}
    return w.add(name, *a, scale, zero, domain=DOMAIN, **given)


@space("QLinearGlobalAveragePool")
def _linear_mean(w: Walk, name: str) -> object:
    a = _quantized(w, range(4, 5))
    if not a[0].array.size:
        raise Rejected("no integer is the mean of nothing")
    return w.add(name, *a, _scale(w, 0.02, 0.2), zero_of(w, a[0], a[0].array.dtype, None), domain=DOMAIN)


@space("MatMulIntegerToFloat")
def _integer_product(w: Walk, name: str) -> object:
    a = w.pick((np.uint8, np.int8), range(2, 5))
    b = w.constant(w.rng.integers(-90, 91, (a.shape[-1], w.size())).astype(np.int8))
    zero = zero_of(w, a, a.array.dtype, None) if w.chance(0.7) else None
    bias = weight(w, w.random(b.shape[-1:])) if w.chance(0.5) else None
    if w.floats != F:
        raise Rejected("of float32 alone")
    scales = [_scale(w, 0.005, 0.05) for _ in range(2)]
    return w.add(name, a, b, *scales, zero, None, bias, domain=DOMAIN)


@space("DynamicQuantizeMatMul")
def _dynamic_product(w: Walk, name: str) -> object:
    a = w.pick(ranks=range(2, 5))
    if a.array.dtype != F or not a.array.size:
        raise Rejected("of float32 alone")
    b = w.constant(w.rng.integers(-90, 91, (a.shape[-1], w.size())).astype(np.int8))
    zero = w.constant(0, np.int8) if w.chance(0.5) else None
    bias = weight(w, w.random(b.shape[-1:])) if w.chance(0.5) else None
    return w.add(name, a, b, _scale(w, 0.005, 0.05), zero, bias, domain=DOMAIN)


@space("QLinearConcat")
def _linear_concatenation(w: Walk, name: str) -> object:
    first = _quantized(w)
    (x, _, _) = first
    axis = w.number(0, x.array.ndim - 1)
    parts = list(first)
    for _ in range(w.number(0, 2)):
        shape = (*x.shape[:axis], w.size(), *x.shape[axis + 1 :])
        other = w.constant(w.random(shape, x.array.dtype))
        parts += [other, _scale(w, 0.02, 0.3), zero_of(w, other, x.array.dtype, None)]
    return w.add(name, _scale(w, 0.1, 0.5), zero_of(w, x, x.array.dtype, None), *parts, domain=DOMAIN, axis=axis)


@space("QLinearSoftmax")
def _linear_softmax(w: Walk, name: str) -> object:
    a = _quantized(w)
    zero = zero_of(w, a[0], a[0].array.dtype, None)
    return w.add(name, *a, _scale(w, 0.004, 0.02), zero, domain=DOMAIN, axis=w.number(-a[0].array.ndim, -1), opset=13)


@space("QLinearWhere")
def _linear_choice(w: Walk, name: str) -> object:
    a = _quantized(w)
    (x, _, _) = a
    b = w.fitting(x)
    zeros = [zero_of(w, b, x.array.dtype, None) for _ in range(2)]
    condition = w.fitting(w.pick([np.bool_], ranks=[x.array.ndim]))
    return w.add(name, condition, *a, b, _scale(w, 0.02, 0.3), zeros[0], _scale(w, 0.02, 0.3), zeros[1], domain=DOMAIN)


@space("QGemm")
def _linear_gemm(w: Walk, name: str) -> object:
    a = _quantized(w, range(2, 3))
    transposed, other = w.number(0, 1), w.number(0, 1)
    (k, m), n = a[0].shape[:: 1 if transposed else -1], w.size()
    b = w.constant(w.rng.integers(-90, 91, (n, k) if other else (k, n)).astype(np.int8))
    bias = w.constant(w.rng.integers(-999, 1000, w.one((m, n), (n,), (1, n))).astype(np.int32))
    given = {"transA": transposed, "transB": other, **some(w, alpha=w.real(0.2, 2))}
    weights = (b, _scale(w, 0.005, 0.05), w.constant(0, np.int8), bias if w.chance(0.6) else None)
    result = (_scale(w, 0.1, 0.5), zero_of(w, a[0], a[0].array.dtype, None)) if w.chance(0.6) or w.floats != F else ()
    return w.add(name, *a, *weights, *result, domain=DOMAIN, **given)


@space("QLinearAveragePool")
def _linear_pool(w: Walk, name: str) -> object:
    a = _quantized(w, range(4, 5))
    last = w.number(0, 1)
    x = a[0]
    given = {"count_include_pad": w.number(0, 1), "channels_last": last, **window_of(w, x)}
    given.pop("dilations", None)
    return w.add(name, *a, _scale(w, 0.02, 0.2), zero_of(w, x, x.array.dtype, None), domain=DOMAIN, **given)


@space("QLinearReduceMean")
def _linear_mean_of_axes(w: Walk, name: str) -> object:
    a = _quantized(w)
    if not a[0].array.size:
        raise Rejected("no integer is the mean of nothing")
    zero = zero_of(w, a[0], a[0].array.dtype, None)
    given = {"axes": axes_of(w, a[0]), "keepdims": w.number(0, 1)}
    return w.add(name, *a, _scale(w, 0.02, 0.2), zero, domain=DOMAIN, **given)


@space("NhwcMaxPool")
def _pool_of_last(w: Walk, name: str) -> object:
    x = w.pick((np.uint8, np.int8), [4])
    return w.add(name, x, domain=DOMAIN, **window_of(w, x))


@space("com.microsoft.QuantizeLinear")
def _quantize(w: Walk, name: str) -> object:
    """And back."""
    x = w.pick(ranks=range(1, 5))
    kind = w.one(np.int8, np.uint8, np.int16, np.uint16)
    axis = axis_of(w, x) if w.chance(0.4) else None
    count, given = ((), {}) if axis is None else ((x.shape[axis],), {"axis": axis})
    scale = w.constant(w.rng.uniform(0.02, 0.3, count).astype(F))
    zero = w.constant(w.rng.integers(0, 20, count), kind)
    (q,) = w.add("QuantizeLinear", x, scale, zero, domain=DOMAIN, **given)
    return w.add("DequantizeLinear", q, scale, zero, domain=DOMAIN, **given)


@space("MulInteger")
def _product_of_integers(w: Walk, name: str) -> object:
    x = w.pick((np.uint8, np.int8), range(1, 5))
    zeros = [w.constant(w.number(0, 20), x.array.dtype) if w.chance(0.6) else None for _ in range(2)]
    return w.add(name, x, zeros[0], w.fitting(x), zeros[1], domain=DOMAIN)


@space("ReduceSumInteger")
def _sum_of_integers(w: Walk, name: str) -> object:
    x = w.pick((np.uint8, np.int8), range(1, 5))
    return w.add(name, x, domain=DOMAIN, axes=axes_of(w, x), keepdims=w.number(0, 1))


@space("MatMulInteger16")
def _wide_product(w: Walk, name: str) -> object:
    a = w.new_input((*(w.size() for _ in range(w.number(0, 2))), w.size(), w.size()), np.int16)
    b = w.constant(w.rng.integers(-3000, 3001, (a.shape[-1], w.size())), np.int16)
    return w.add(name, a, b, domain=DOMAIN)


@space("MatMulBnb4")
def _product_of_codes(w: Walk, name: str) -> object:
    if w.floats == np.float64:
        raise Rejected("of float32 and 16-bit floats")
    a, n, size = w.pick(ranks=range(2, 4)), w.size(), w.one(16, 32, 64)
    k = a.shape[-1]
    codes = w.constant(w.rng.integers(0, 256, -(-n * k // 2)), np.uint8)
    largest = w.rng.uniform(0.5, 2, -(-n * k // size)) / np.sqrt(max(1, k))
    given = {"K": k, "N": n, "block_size": size, "quant_type": w.number(0, 1)}
    return w.add(name, a, codes, w.constant(largest.astype(F)), domain=DOMAIN, **given)


@space("GatherBlockQuantized")
def _gathered(w: Walk, name: str) -> object:
    if w.floats == np.float64:
        raise Rejected("of float32 and 16-bit floats")
    bits, size, rows, blocks = w.one(4, 8), w.one(16, 32), w.number(1, 20), w.number(1, 3)
    data = w.constant(w.rng.integers(0, 256, (rows, blocks * size * bits // 8)), np.uint8)
    scales = w.constant(w.rng.uniform(0.02, 0.2, (rows, blocks)).astype(F))
    zeros = None
    if w.chance(0.5):
        zeros = w.constant(w.rng.integers(0, 256, (rows, -(-blocks * bits // 8))), np.uint8)
    indices = computed_indices(w, tuple(w.size() for _ in range(w.number(1, 2))), rows)
    given = {"bits": bits, "block_size": size, "gather_axis": 0, "quantize_axis": 1}
    return w.add(name, data, indices, scales, zeros, domain=DOMAIN, **given)
