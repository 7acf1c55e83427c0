"""Operators that onnxruntime's optimizer joins of several: functions of sums, products, normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.contractions_space import window_of
from spaces.declared import DOMAIN, I32, F, axis_of, some, space, weight

_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu")


@space("FastGelu", "QuickGelu", "BiasGelu")
def _gelu(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    bias = weight(w, w.random(x.shape[-1:])) if name == "BiasGelu" or (name == "FastGelu" and w.chance(0.5)) else None
    given = some(w, alpha=w.real(0.5, 2)) if name == "QuickGelu" else {}
    return w.add(name, x, *([bias] if bias else []), domain=DOMAIN, **given)


@space("BiasAdd", "BiasDropout", "BiasSplitGelu")
def _biased(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3])
    bias = weight(w, w.random(x.shape[-1:]))
    if name == "BiasSplitGelu":
        if x.shape[-1] % 2:
            raise Rejected("no halves")
        return w.add(name, x, bias, domain=DOMAIN)
    more = weight(w, w.random(x.shape)) if name == "BiasAdd" or w.chance(0.5) else None
    return w.add(name, x, bias, more, domain=DOMAIN)


@space("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation")
def _fused_product(w: Walk, name: str) -> object:
    a = w.pick(ranks=range(2, 5))
    transposed, other = w.number(0, 1), w.number(0, 1)
    k, n = a.shape[-2 if transposed else -1], w.size()
    b = weight(w, w.random((n, k) if other else (k, n)) / np.float32(np.sqrt(max(1, k))))
    given = some(w, alpha=w.real(-2, 2))
    if name == "FusedMatMulActivation":
        given |= _activation(w, "activation_alpha")
    return w.add(name, a, b, domain=DOMAIN, transA=transposed, transB=other, **given)


@space("FusedGemm")
def _fused_gemm(w: Walk, name: str) -> object:
    a = w.pick(ranks=[2])
    transposed, other = w.number(0, 1), w.number(0, 1)
    k, m, n = a.shape[1 - transposed], a.shape[transposed], w.size()
    b = weight(w, w.random((n, k) if other else (k, n)) / np.float32(np.sqrt(max(1, k))))
    c = weight(w, w.random(w.one((m, n), (n,), (1, n)))) if w.chance(0.7) else None
    given = some(w, alpha=w.real(-2, 2), beta=w.real(-2, 2)) | _activation(w, "activation_alpha")
    return w.add(name, a, b, c, domain=DOMAIN, transA=transposed, transB=other, **given)


def _activation(w: Walk, parameter: str) -> dict[str, Any]:
    kind = w.one(*_ACTIVATIONS)
    return {"activation": kind} | ({parameter: w.real(0.05, 0.5)} if kind == "LeakyRelu" else {})


@space("GemmFastGelu")
def _gelu_of_product(w: Walk, name: str) -> object:
    a, n = w.pick(ranks=[2]), w.size()
    b = weight(w, w.random((a.shape[-1], n)) / np.float32(np.sqrt(max(1, a.shape[-1]))))
    return w.add(name, a, b, *([weight(w, w.random((n,)))] if w.chance(0.6) else []), domain=DOMAIN)


@space("FusedConv", "NhwcFusedConv", "NhwcConv")
def _fused_convolution(w: Walk, name: str) -> object:
    x = w.pick(ranks=[4])
    shape = (x.shape[0], x.shape[3], *x.shape[1:3]) if name.startswith("Nhwc") else x.shape
    attributes = window_of(w, x)
    channels, outputs = shape[1], w.size()
    groups = w.one(1, 1, channels) if outputs and channels and outputs % channels == 0 else 1
    filters = (outputs, channels // groups, *attributes["kernel_shape"])
    weights = weight(w, w.random(filters) / np.float32(np.sqrt(max(1, np.prod(filters[1:])))))
    bias = weight(w, w.random((outputs,))) if w.chance(0.6) else None
    given: dict[str, Any] = {}
    if name != "NhwcConv":
        given["activation"] = w.one(*_ACTIVATIONS)
        if given["activation"] == "LeakyRelu":
            given["activation_params"] = [w.real(0.05, 0.5)]
    return w.add(name, x, weights, bias, domain=DOMAIN, group=groups, **attributes, **given)


@space("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skipping(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3])
    size = x.shape[-1:]
    skip, gamma = weight(w, w.random(x.shape)), weight(w, w.random(size))
    beta = [weight(w, w.random(size)) if w.chance(0.6) else None] if name == "SkipLayerNormalization" else []
    bias = weight(w, w.random(size)) if w.chance(0.5) else None
    return w.add(name, x, skip, gamma, *beta, bias, domain=DOMAIN, epsilon=w.real(1e-3, 1e-1))


@space("SimplifiedLayerNormalization")
def _simplified(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 4))
    axis = axis_of(w, x)
    return w.add(name, x, weight(w, w.random(x.shape[axis:])), axis=axis, epsilon=w.real(1e-3, 1e-1))


@space("GroupNorm", "SkipGroupNorm")
def _in_groups(w: Walk, name: str) -> object:
    """The channels come last."""
    x = w.pick(ranks=[4])
    channels = x.shape[-1]
    groups = w.one(*(count for count in range(1, channels + 1) if channels % count == 0))
    gamma, beta = (weight(w, w.random((channels,))) for _ in range(2))
    more: list[Tensor | None] = []
    if name == "SkipGroupNorm":
        more = [weight(w, w.random(x.shape)), weight(w, w.random((channels,))) if w.chance(0.5) else None]
    given = {"groups": groups, "activation": w.number(0, 1), "epsilon": w.real(1e-3, 1e-1)}
    results = 2 if more and w.chance(0.5) else 1
    return w.add(name, x, gamma, beta, *more, outputs=results, domain=DOMAIN, **given)


@space("BiasSoftmax")
def _biased_softmax(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(2, 5))
    last, middle = x.array.ndim - 1, w.number(0, x.array.ndim - 1)
    inner = w.number(0, 1)
    ones = range(middle, last) if inner else range(middle)
    shape = tuple(1 if axis in ones else size for axis, size in enumerate(x.shape))
    return w.add(name, x, weight(w, w.random(shape)), domain=DOMAIN, axis=last, is_inner_broadcast=inner)


@space("EmbedLayerNormalization", "QEmbedLayerNormalization")
def _embedded(w: Walk, name: str) -> object:
    is_quantized = name == "QEmbedLayerNormalization"
    if is_quantized and w.floats != F:
        raise Rejected("of float32 alone")
    batch, length, width, count = w.number(1, 3), w.number(1, 9), w.size(), w.number(1, 20)
    words = w.constant(w.rng.integers(0, count, (batch, length)), I32)
    has_segments = w.chance(0.5)
    segments = w.constant(w.rng.integers(0, 2, (batch, length)), I32) if has_segments else None
    shapes = (
        (count, width),
        (length + w.number(0, 3), width),
        (2, width) if has_segments else None,
        (width,),
        (width,),
    )
    mask = w.constant(w.rng.integers(0, 2, (batch, length)), I32) if w.chance(0.5) else None
    given = {"outputs": 2, "domain": DOMAIN, "epsilon": w.real(1e-3, 1e-1)}
    if not is_quantized:
        parts = [weight(w, w.random(shape)) if shape else None for shape in shapes]
        return w.add(name, words, segments, *parts, mask, **given)
    integers = [w.constant(w.random(shape, np.uint8)) if shape else None for shape in shapes]
    scales = [w.constant(w.real(0.02, 0.3), F, is_float32=True) if shape else None for shape in shapes]
    zeros = [w.constant(w.number(0, 9), np.uint8) if shape else None for shape in shapes]
    return w.add(name, words, segments, *integers, mask, *scales, *zeros, **given)
