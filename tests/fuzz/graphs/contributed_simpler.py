"""Operators of onnxruntime's domain as simpler ones, those of floats: see :mod:`simpler`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from linear_simpler import integer_product
from onnx import numpy_helper
from simpler_steps import Steps, attended, chosen

__all__ = ["OF_ONNXRUNTIME"]

_FACTORS = ("activation_alpha", "activation_params")
"""What activations of products and of convolutions call their only parameter."""


def _as_standard(steps: Steps) -> list[onnx.NodeProto]:
    """The operator of ONNX of this name."""
    return steps.end(steps.add(steps.node.op_type, *steps.node.input, **steps.given))


def _unique(steps: Steps) -> list[onnx.NodeProto]:
    values, indices, counts = steps.node.output
    steps.add("Unique", *steps.node.input, sorted=0)
    steps.made[-1].output[:] = [values, f"{values}_first", indices, counts]
    return steps.made


# Functions of sums.


def _gelu(steps: Steps) -> list[onnx.NodeProto]:
    given = {"approximate": "tanh"} if steps.node.op_type == "FastGelu" else {}
    return steps.end(steps.add("Gelu", steps.added(*steps.node.input), **given))


def _quick_gelu(steps: Steps) -> list[onnx.NodeProto]:
    (x,) = steps.node.input
    return steps.end(steps.add("Swish", x, alpha=steps.given.get("alpha", float(np.float32(1.702)))))


def _split_gelu(steps: Steps) -> list[onnx.NodeProto]:
    total = steps.added(*steps.node.input)
    left, right = (steps.add("Half", total, index=index) for index in range(2))
    return steps.end(steps.add("Mul", left, steps.add("Gelu", right)))


def _sum(steps: Steps) -> list[onnx.NodeProto]:
    return steps.end(steps.added(*steps.inputs(3)))


def _biased_softmax(steps: Steps) -> list[onnx.NodeProto]:
    return steps.end(steps.add("Softmax", steps.added(*steps.node.input), axis=-1))


# Products and convolutions.


def _activated(steps: Steps, x: str) -> str:
    """After the activation that a node names, if it names one."""
    name, alpha = steps.given.get("activation"), [steps.given[name] for name in _FACTORS if name in steps.given]
    return steps.add(name, x, **({"alpha": float(np.ravel(alpha)[0])} if alpha else {})) if name else x


def _fused_product(steps: Steps) -> list[onnx.NodeProto]:
    product = steps.add("FusedProducts", *steps.node.input, **chosen(steps.given, "alpha", "transA", "transB"))
    return steps.end(_activated(steps, product))


def _fused_gemm(steps: Steps) -> list[onnx.NodeProto]:
    given = chosen(steps.given, "alpha", "beta", "transA", "transB")
    return steps.end(_activated(steps, steps.add("Gemm", *steps.node.input, **given)))


def _gelu_of_product(steps: Steps) -> list[onnx.NodeProto]:
    a, b, bias = steps.inputs(3)
    return steps.end(steps.add("Gelu", steps.added(steps.add("MatMul", a, b), bias), approximate="tanh"))


def _fused_convolution(steps: Steps) -> list[onnx.NodeProto]:
    x, weight, bias, more = steps.inputs(4)
    last = steps.node.op_type.startswith("Nhwc")
    x, more = (steps.add("ChannelsFirst", part) if last and part else part for part in (x, more))
    given = {name: value for name, value in steps.given.items() if not name.startswith("activation")}
    made = _activated(steps, steps.added(steps.add("Conv", x, weight, bias, **given), more))
    return steps.end(steps.add("ChannelsLast", made) if last else made)


def _pool_of_last(steps: Steps) -> list[onnx.NodeProto]:
    (x,) = steps.node.input
    made = steps.add("MaxPool", steps.add("ChannelsFirst", x), **steps.given)
    return steps.end(steps.add("ChannelsLast", made))


# Normalizations.


def _skipping(steps: Steps) -> list[onnx.NodeProto]:
    given = {**steps.given, "axis": -1}
    if steps.node.op_type == "SkipSimplifiedLayerNormalization":
        x, skip, gamma, bias = steps.inputs(4)
        return steps.end(steps.add("RMSNormalization", steps.added(x, skip, bias), gamma, **given))
    x, skip, gamma, beta, bias = steps.inputs(5)
    return steps.end(steps.add("LayerNormalization", steps.added(x, skip, bias), gamma, beta, **given))


def _simplified(steps: Steps) -> list[onnx.NodeProto]:
    return steps.end(steps.add("RMSNormalization", *steps.node.input, **chosen(steps.given, "axis", "epsilon")))


def _in_groups(steps: Steps) -> list[onnx.NodeProto]:
    """The sum, if it is a result, has the channels last, too."""
    x, gamma, beta, skip, bias = steps.inputs(5)
    total = steps.added(x, skip, bias)
    given = {"num_groups": steps.given["groups"], **chosen(steps.given, "epsilon")}
    made = steps.add("GroupNormalization", steps.add("ChannelsFirst", total), gamma, beta, **given)
    made = steps.add("Swish", made) if steps.given["activation"] else made
    steps.end(steps.add("ChannelsLast", made))
    return steps.end(total, 1) if len(steps.node.output) > 1 else steps.made


def _embedded(steps: Steps) -> list[onnx.NodeProto]:
    words, segments, *tables, gamma, beta, mask, positions = steps.inputs(9)
    return _of_tables(steps, (words, segments, positions, mask), tables, gamma, beta)


def _embedded_integers(steps: Steps) -> list[onnx.NodeProto]:
    inputs = steps.inputs(18)
    reals = [
        steps.add("Real", table, scale, zero) if table else ""
        for table, scale, zero in zip(inputs[2:7], inputs[8:13], inputs[13:18], strict=True)
    ]
    *tables, gamma, beta = reals
    return _of_tables(steps, (inputs[0], inputs[1], "", inputs[7]), tables, gamma, beta)


def _of_tables(
    steps: Steps, integers: Sequence[str], tables: Sequence[str], gamma: str, beta: str
) -> list[onnx.NodeProto]:
    words, segments, positions, mask = integers
    positions = positions or steps.add("Positions", words)
    pairs = zip(tables, (words, positions, segments), strict=True)
    rows = [steps.add("Gather", table, at, axis=0) for table, at in pairs if table]
    given = {"axis": -1, "epsilon": steps.given["epsilon"]}
    made = steps.add("LayerNormalization", steps.added(*rows), gamma, beta, **given)
    steps.add("OneCounts", words, mask, result=steps.node.output[1])
    return steps.end(made)


# Attention.


def _heads(steps: Steps) -> dict[str, Any]:
    """The attributes of ONNX's operator."""
    count, causal = steps.given["num_heads"], steps.given.get("unidirectional", 0)
    return {"q_num_heads": count, "kv_num_heads": count, "is_causal": causal, **chosen(steps.given, "scale")}


def _many_heads(steps: Steps) -> list[onnx.NodeProto]:
    """Attention of ONNX, after the biases of all three operands."""
    query, key, value, bias, mask, added, *past = steps.inputs(8)
    if steps.node.op_type == "DecoderMaskedMultiHeadAttention":
        query, key, value, mask, added, *past = steps.inputs(7)
        bias = steps.inputs(11)[10]
    parts = [query, key, value]
    if bias:
        parts = [steps.add("WithBias", x, bias, *parts, index=index) for index, x in enumerate(parts)]
    seen = steps.add("PaddingMask", mask, value) if mask else ""
    made, _, present = attended(steps, parts, _heads(steps), added, past, seen=seen)
    for index, name in list(enumerate(present, 1))[: len(steps.node.output) - 1]:
        steps.end(name, index)
    return steps.end(made)


def _grouped_attention(steps: Steps) -> list[onnx.NodeProto]:
    """Attention of ONNX: a window of some keys ends with the query's own."""
    query, key, value, *past = steps.inputs(5)
    window = steps.given.get("local_window_size", -1)
    given = {
        "is_causal": 1,
        "q_num_heads": steps.given["num_heads"],
        "kv_num_heads": steps.given["kv_num_heads"],
        **chosen(steps.given, "scale", "softcap"),
        **({"left_window_size": window - 1} if window > 0 else {}),
    }
    made, _, present = attended(steps, (query, key, value), given, "", past)
    for index, name in enumerate(present, 1):
        steps.end(name, index)
    return steps.end(made)


def _joined_attention(steps: Steps) -> list[onnx.NodeProto]:
    """Queries, keys and values are parts of one product."""
    if steps.node.op_type == "QAttention":
        x, weights, bias, x_scale, scale, mask, x_zero, zero, past = steps.inputs(9)
        product = integer_product(steps, x, weights, x_scale, scale, x_zero, zero)
    else:
        x, weights, bias, mask, past = steps.inputs(5)
        product = steps.add("MatMul", x, weights)
    joined = steps.added(product, bias)
    parts = [steps.add("Third", joined, index=index) for index in range(3)]
    before = [steps.add("Part", past, index=index, axis=0) if past else "" for index in range(2)]
    seen = steps.add("PaddingMask", mask, x) if mask else ""
    made, _, present = attended(steps, parts, _heads(steps), past=before, seen=seen)
    if len(steps.node.output) > 1:
        steps.add("Stack", *present, result=steps.node.output[1])
    return steps.end(made)


def _packed_attention(steps: Steps) -> list[onnx.NodeProto]:
    """Attention to padded sequences, of which each has its own length."""
    if steps.node.op_type == "PackedAttention":
        x, weights, bias, offsets, starts = steps.node.input
        joined = steps.added(steps.add("MatMul", x, weights), bias)
        parts = [steps.add("Third", joined, index=index) for index in range(3)]
    else:
        *parts, bias, offsets, starts = steps.node.input
        if bias:
            parts = [steps.add("WithBias", x, bias, *parts, index=index) for index, x in enumerate(parts)]
    padded = [steps.add("Padded", part, offsets) for part in parts]
    made, _, _ = attended(steps, padded, _heads(steps), seen=steps.add("KnownKeys", offsets, starts))
    return steps.end(steps.add("Unpadded", made, offsets, parts[0]))


def _rotated(steps: Steps) -> list[onnx.NodeProto]:
    x, positions, cos, sin = steps.node.input
    given = chosen(steps.given, "interleaved", "num_heads")
    positions = steps.add("PositionCounts", x, positions)
    return steps.end(steps.add("RotaryEmbedding", x, cos, sin, positions, **given))


# Others.


def _distances(steps: Steps) -> list[onnx.NodeProto]:
    squares = steps.add("SquaredDistances", *steps.node.input)
    return steps.end(steps.add("Root", squares) if steps.given["metric"] == "euclidean" else squares)


def _experts(steps: Steps) -> list[onnx.NodeProto]:
    x, scores, first, first_bias, second, second_bias = steps.node.input
    shares = steps.add("ExpertShares", scores, **chosen(steps.given, "k", "normalize_routing_weights"))
    hidden = steps.add("ExpertProducts", steps.add("Rows", x), first, first_bias)
    kind = {"relu": "Relu", "gelu": "Gelu", "silu": "Swish"}[steps.given["activation_type"]]
    results = steps.add("ExpertProducts", steps.add(kind, hidden), second, second_bias)
    return steps.end(steps.add("ExpertSums", shares, results, x))


def _number(steps: Steps, *values: float) -> str:
    """A constant, or one for each channel of images."""
    array = np.array(values, np.float64)
    return steps.add(
        "Constant", value=numpy_helper.from_array(array.reshape(-1, 1, 1) if len(values) > 1 else array[0])
    )


def _scaled(kind: str) -> Callable[[Steps], list[onnx.NodeProto]]:
    """`alpha · f(beta x)`."""

    def make(steps: Steps) -> list[onnx.NodeProto]:
        (x,) = steps.node.input
        inner = steps.add("Mul", x, _number(steps, steps.given["beta"]))
        return steps.end(steps.add("Mul", steps.add(kind, inner), _number(steps, steps.given["alpha"])))

    return make


def _affine(steps: Steps) -> list[onnx.NodeProto]:
    (x,) = steps.node.input
    product = steps.add("Mul", x, _number(steps, steps.given.get("alpha", steps.given.get("scale"))))
    bias = steps.given["bias"] if "bias" in steps.given else [steps.given["beta"]]
    return steps.end(steps.add("Add", product, _number(steps, *bias)))


OF_ONNXRUNTIME: Mapping[str, Callable[[Steps], Sequence[onnx.NodeProto]]] = {
    "Affine": _affine,
    "BiasAdd": _sum,
    "BiasDropout": _sum,
    "BiasGelu": _gelu,
    "BiasSoftmax": _biased_softmax,
    "BiasSplitGelu": _split_gelu,
    "CDist": _distances,
    "DecoderMaskedMultiHeadAttention": _many_heads,
    "EmbedLayerNormalization": _embedded,
    "FastGelu": _gelu,
    "FusedConv": _fused_convolution,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_product,
    "FusedMatMulActivation": _fused_product,
    "GemmFastGelu": _gelu_of_product,
    "GroupNorm": _in_groups,
    "GroupQueryAttention": _grouped_attention,
    "ImageScaler": _affine,
    "MoE": _experts,
    "MultiHeadAttention": _many_heads,
    "NhwcConv": _fused_convolution,
    "NhwcFusedConv": _fused_convolution,
    "NhwcMaxPool": _pool_of_last,
    "PackedAttention": _packed_attention,
    "PackedMultiHeadAttention": _packed_attention,
    "ParametricSoftplus": _scaled("Softplus"),
    "QAttention": _joined_attention,
    "QEmbedLayerNormalization": _embedded_integers,
    "QuickGelu": _quick_gelu,
    "ScaledTanh": _scaled("Tanh"),
    "SimplifiedLayerNormalization": _simplified,
    "SkipGroupNorm": _in_groups,
    "SkipLayerNormalization": _skipping,
    "SkipSimplifiedLayerNormalization": _skipping,
    "TransposeMatMul": _fused_product,
    "com.microsoft.Attention": _joined_attention,
    "com.microsoft.GatherND": _as_standard,
    "com.microsoft.Gelu": _gelu,
    "com.microsoft.GridSample": _as_standard,
    "com.microsoft.Pad": _as_standard,
    "com.microsoft.Range": _as_standard,
    "com.microsoft.RotaryEmbedding": _rotated,
    "com.microsoft.Trilu": _as_standard,
    "com.microsoft.Unique": _unique,
}
"""By the operators' names."""
