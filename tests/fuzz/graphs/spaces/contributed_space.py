"""Operators of onnxruntime's own domain, which its optimizer and its quantizer write."""

from __future__ import annotations

from typing import Any

import numpy as np
from steps import Rejected
from walk import Tensor, Walk

from spaces.attention_space import heads_of
from spaces.contractions_space import window_of
from spaces.declared import F, reshaped, some, space, weight
from spaces.quantization_space import zero_of

_DOMAIN = "com.microsoft"
_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu")


@space("FastGelu", "QuickGelu", "BiasGelu")
def _gelu(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    bias = weight(w, w.random(x.shape[-1:])) if name == "BiasGelu" or (name == "FastGelu" and w.chance(0.5)) else None
    given = some(w, alpha=w.real(0.5, 2)) if name == "QuickGelu" else {}
    return w.add(name, x, *([bias] if bias else []), domain=_DOMAIN, **given)


@space("FusedMatMul", "TransposeMatMul")
def _fused_product(w: Walk, name: str) -> object:
    a = w.pick(ranks=range(2, 5))
    turned, other = w.number(0, 1), w.number(0, 1)
    k, n = a.shape[-2 if turned else -1], w.size()
    b = weight(w, w.random((n, k) if other else (k, n)) / np.float32(np.sqrt(max(1, k))))
    return w.add(name, a, b, domain=_DOMAIN, transA=turned, transB=other, **some(w, alpha=w.real(-2, 2)))


@space("FusedGemm")
def _fused_gemm(w: Walk, name: str) -> object:
    a = w.pick(ranks=[2])
    turned, other = w.number(0, 1), w.number(0, 1)
    k, m, n = a.shape[1 - turned], a.shape[turned], w.size()
    b = weight(w, w.random((n, k) if other else (k, n)) / np.float32(np.sqrt(max(1, k))))
    c = weight(w, w.random(w.one((m, n), (n,), (1, n)))) if w.chance(0.7) else None
    given = some(w, alpha=w.real(-2, 2), beta=w.real(-2, 2)) | _activation(w, "activation_alpha")
    return w.add(name, a, b, c, domain=_DOMAIN, transA=turned, transB=other, **given)


def _activation(w: Walk, parameter: str) -> dict[str, Any]:
    kind = w.one(*_ACTIVATIONS)
    return {"activation": kind} | ({parameter: w.real(0.05, 0.5)} if kind == "LeakyRelu" else {})


@space("FusedConv")
def _fused_convolution(w: Walk, name: str) -> object:
    x = w.pick(ranks=[4])
    attributes = window_of(w, x)
    channels, outputs = x.shape[1], w.size()
    groups = w.one(1, 1, channels) if outputs and channels and outputs % channels == 0 else 1
    shape = (outputs, channels // groups, *attributes["kernel_shape"])
    weights = weight(w, w.random(shape) / np.float32(np.sqrt(max(1, np.prod(shape[1:])))))
    bias = weight(w, w.random((outputs,))) if w.chance(0.6) else None
    kind = w.one(*_ACTIVATIONS)
    given: dict[str, Any] = {"activation": kind}
    if kind == "LeakyRelu":
        given["activation_params"] = [w.real(0.05, 0.5)]
    return w.add(name, x, weights, bias, domain=_DOMAIN, group=groups, **attributes, **given)


@space("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skipping(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3])
    size = x.shape[-1:]
    skip, gamma = weight(w, w.random(x.shape)), weight(w, w.random(size))
    beta = [weight(w, w.random(size)) if w.chance(0.6) else None] if name == "SkipLayerNormalization" else []
    bias = weight(w, w.random(size)) if w.chance(0.5) else None
    return w.add(name, x, skip, gamma, *beta, bias, domain=_DOMAIN, epsilon=w.real(1e-3, 1e-1))


@space("MultiHeadAttention")
def _attention(w: Walk, name: str) -> object:
    batch, heads, queries, keys = w.number(1, 3), w.number(1, 4), w.size(), w.size()
    width, values = (w.one(1, 2, 4, 8, 16) for _ in range(2))
    query, key, value = (
        heads_of(w, batch, heads, length, size, True)
        for length, size in ((queries, width), (keys, width), (keys, values))
    )
    bias = weight(w, w.random((heads * (2 * width + values),))) if w.chance(0.4) else None
    shape = (*(1 if w.chance(0.3) else size for size in (batch, heads)), queries, keys)
    added = weight(w, w.random(shape)) if w.chance(0.4) else None
    given = some(w, scale=w.real(0.1, 1))
    return w.add(name, query, key, value, bias, None, added, domain=_DOMAIN, num_heads=heads, **given)


@space("GroupQueryAttention")
def _grouped_attention(w: Walk, name: str) -> object:
    """All sequences of a batch are equally long."""
    if w.floats == np.float64:
        raise Rejected("of float32 and half floats")
    shared, new, past = w.number(1, 3), w.number(1, 9), w.one(0, w.number(1, 9))
    batch = 1 if past and new > 1 else w.number(1, 3)  # onnxruntime takes no others
    heads, width = shared * w.one(1, 2, 3), w.one(8, 16)
    query = heads_of(w, batch, heads, new, width, True)
    key, value = (heads_of(w, batch, shared, new, width, True) for _ in range(2))
    before = [weight(w, w.random((batch, shared, past, width))) if past else None for _ in range(2)]
    lengths = w.constant(np.full(batch, past + new - 1), np.int32), w.constant(past + new, np.int32)
    given = some(w, scale=w.real(0.1, 1), softcap=w.real(0.5, 5), local_window_size=w.number(1, 8))
    return w.add(
        name,
        *(query, key, value, *before, *lengths),
        outputs=3,
        domain=_DOMAIN,
        num_heads=heads,
        kv_num_heads=shared,
        **given,
    )


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
    return w.add(name, *a, b, *own, _scale(w, 0.2 * factor, 0.8 * factor), zero_of(w, x, kind, None), domain=_DOMAIN)


@space("QLinearSigmoid", "QLinearLeakyRelu")
def _linear_function(w: Walk, name: str) -> object:
    a = _quantized(w)
    zero = zero_of(w, a[0], a[0].array.dtype, None)
    scale = _scale(w, 0.004, 0.02) if name == "QLinearSigmoid" else _scale(w, 0.1, 0.5)
    given = some(w, alpha=w.real(0.05, 0.5)) if name == "QLinearLeakyRelu" else {}
    return w.add(name, *a, scale, zero, domain=_DOMAIN, **given)


@space("QLinearGlobalAveragePool")
def _linear_mean(w: Walk, name: str) -> object:
    a = _quantized(w, range(4, 5))
    if not a[0].array.size:
        raise Rejected("no integer is the mean of nothing")
    return w.add(name, *a, _scale(w, 0.02, 0.2), zero_of(w, a[0], a[0].array.dtype, None), domain=_DOMAIN)


@space("MatMulIntegerToFloat")
def _integer_product(w: Walk, name: str) -> object:
    a = w.pick((np.uint8, np.int8), range(2, 5))
    b = w.constant(w.rng.integers(-90, 91, (a.shape[-1], w.size())).astype(np.int8))
    zero = zero_of(w, a, a.array.dtype, None) if w.chance(0.7) else None
    bias = weight(w, w.random(b.shape[-1:])) if w.chance(0.5) else None
    if w.floats != F:
        raise Rejected("of float32 alone")
    scales = [_scale(w, 0.005, 0.05) for _ in range(2)]
    return w.add(name, a, b, *scales, zero, None, bias, domain=_DOMAIN)


@space("DynamicQuantizeMatMul")
def _dynamic_product(w: Walk, name: str) -> object:
    a = w.pick(ranks=range(2, 5))
    if a.array.dtype != F or not a.array.size:
        raise Rejected("of float32 alone")
    b = w.constant(w.rng.integers(-90, 91, (a.shape[-1], w.size())).astype(np.int8))
    zero = w.constant(0, np.int8) if w.chance(0.5) else None
    bias = weight(w, w.random(b.shape[-1:])) if w.chance(0.5) else None
    return w.add(name, a, b, _scale(w, 0.005, 0.05), zero, bias, domain=_DOMAIN)


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
    return w.add(name, _scale(w, 0.1, 0.5), zero_of(w, x, x.array.dtype, None), *parts, domain=_DOMAIN, axis=axis)


@space("QLinearSoftmax")
def _linear_softmax(w: Walk, name: str) -> object:
    a = _quantized(w)
    zero = zero_of(w, a[0], a[0].array.dtype, None)
    return w.add(name, *a, _scale(w, 0.004, 0.02), zero, domain=_DOMAIN, axis=w.number(-a[0].array.ndim, -1), opset=13)


@space("QLinearWhere")
def _linear_choice(w: Walk, name: str) -> object:
    a = _quantized(w)
    (x, _, _) = a
    b = w.fitting(x)
    zeros = [zero_of(w, b, x.array.dtype, None) for _ in range(2)]
    condition = w.fitting(w.pick([np.bool_], ranks=[x.array.ndim]))
    return w.add(name, condition, *a, b, _scale(w, 0.02, 0.3), zeros[0], _scale(w, 0.02, 0.3), zeros[1], domain=_DOMAIN)


@space("QGemm")
def _linear_gemm(w: Walk, name: str) -> object:
    a = _quantized(w, range(2, 3))
    turned, other = w.number(0, 1), w.number(0, 1)
    (k, m), n = a[0].shape[:: 1 if turned else -1], w.size()
    b = w.constant(w.rng.integers(-90, 91, (n, k) if other else (k, n)).astype(np.int8))
    bias = w.constant(w.rng.integers(-999, 1000, w.one((m, n), (n,), (1, n))).astype(np.int32))
    given = {"transA": turned, "transB": other, **some(w, alpha=w.real(0.2, 2))}
    weights = (b, _scale(w, 0.005, 0.05), w.constant(0, np.int8), bias if w.chance(0.6) else None)
    result = (_scale(w, 0.1, 0.5), zero_of(w, a[0], a[0].array.dtype, None)) if w.chance(0.6) or w.floats != F else ()
    return w.add(name, *a, *weights, *result, domain=_DOMAIN, **given)


@space("ComplexMul", "ComplexMulConj")
def _complex_product(w: Walk, name: str) -> object:
    shape = (*(w.size() for _ in range(w.number(1, 3))), 2)
    return w.add(name, reshaped(w, shape) or w.new_input(shape), weight(w, w.random(shape)), domain=_DOMAIN)


@space("CDist")
def _distances(w: Walk, name: str) -> object:
    x = w.pick(ranks=[2])
    other = weight(w, w.random((w.size(), x.shape[1])))
    return w.add(name, x, other, domain=_DOMAIN, metric=w.one("euclidean", "sqeuclidean"))


@space("BiasSoftmax")
def _biased_softmax(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(2, 5))
    last, middle = x.array.ndim - 1, w.number(0, x.array.ndim - 1)
    inner = w.number(0, 1)
    ones = range(middle, last) if inner else range(middle)
    shape = tuple(1 if axis in ones else size for axis, size in enumerate(x.shape))
    return w.add(name, x, weight(w, w.random(shape)), domain=_DOMAIN, axis=last, is_inner_broadcast=inner)
