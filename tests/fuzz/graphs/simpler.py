"""Operators as simpler ones, of which each result is rounded once: what bounds follow from.

    y = QLinearConv(x, …)     →     y_sums = RequantizedSums(x, …);  y = Requantized(y_sums, …)
    y = MatMulNBits(x, …)     →     y_weights = BlockWeights(…);  y = BlockProduct(x, y_weights)
    y = Attention(q, k, v)    →     y_products = AttentionProducts(q, k);  …;  y = AttentionValues(y_weights, v)

The sums are exact, and the real number that a sum stands for has the errors of a step: at its rounding to an integer a
result may be one or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

__all__ = ["SIMPLER"]


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _requantized(
    node: onnx.NodeProto, kind: str, inputs: Sequence[str], zero: str, given: Mapping[str, Any]
) -> list[onnx.NodeProto]:
    """A step whose real numbers are rounded to integers."""
    real = f"{node.output[0]}_real"
    return [
        helper.make_node(kind, inputs, [real], **given),
        helper.make_node("Requantized", [real, zero], list(node.output)),
    ]


def _convolution(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return _requantized(node, "ConvolutionSums", node.input, node.input[7], _attributes(node))


def _product(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return _requantized(node, "ProductSums", node.input, node.input[7], {})


def _product_of_blocks(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = _attributes(node)
    weights, product = f"{node.output[0]}_weights", f"{node.output[0]}_product"
    x, *blocks = node.input
    bias = blocks[4:5]
    made = [
        helper.make_node("BlockWeights", blocks[:3], [weights], **given),
        helper.make_node(
            "BlockProduct", [x, weights], [product if bias else node.output[0]], block_size=given["block_size"]
        ),
    ]
    return made + [helper.make_node("Add", [product, *bias], list(node.output))] * bool(bias)


def _in_turn(node: onnx.NodeProto, *steps: tuple[str, Sequence[str], Mapping[str, Any]]) -> list[onnx.NodeProto]:
    """Operators one after the other, each of which takes the result of the one before, and other tensors."""
    made: list[onnx.NodeProto] = []
    last = node.input[0]
    for number, (kind, others, given) in enumerate(steps):
        result = node.output[0] if number == len(steps) - 1 else f"{node.output[0]}_{number}"
        made.append(helper.make_node(kind, [last, *others], [result], **given))
        last = result
    return made


def _gelu(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = {} if node.op_type == "BiasGelu" else {"approximate": "tanh"}
    added = [("Add", list(node.input[1:]), {})] if len(node.input) > 1 else []
    return _in_turn(node, *added, ("Gelu", [], given))


def _quick_gelu(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return _in_turn(node, ("Swish", [], {"alpha": _attributes(node).get("alpha", float(np.float32(1.702)))}))


def _fused_product(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return _in_turn(node, ("FusedProducts", node.input[1:], _attributes(node)))


def _fused(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """`FusedGemm` and `FusedConv`: what they begin with, and the function after it."""
    given = _attributes(node)
    function = given.pop("activation").decode()
    alpha = [given.pop(name) for name in ("activation_alpha", "activation_params") if name in given]
    after = {"alpha": float(np.ravel(alpha)[0])} if alpha else {}
    return _in_turn(node, (node.op_type.removeprefix("Fused"), node.input[1:], given), (function, [], after))


def _skipping(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = {**_attributes(node), "axis": -1}
    simple = node.op_type == "SkipSimplifiedLayerNormalization"
    _, skip, gamma, *rest = node.input
    beta, bias = ("", rest[0] if rest else "") if simple else [*rest, "", ""][:2]
    added = [("Add", [skip], {}), *([("Add", [bias], {})] if bias else [])]
    last = ("RMSNormalization", [gamma], given) if simple else ("LayerNormalization", [gamma, beta], given)
    return _in_turn(node, *added, last)


def _many_heads(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Attention of ONNX, after the biases of all three operands."""
    given = _attributes(node)
    heads = given.pop("num_heads")
    query, key, value, bias, _, added = [*node.input, *[""] * (6 - len(node.input))]
    made = []
    if bias:
        names = [f"{node.output[0]}_{part}" for part in ("query", "key", "value")]
        for place, (x, name) in enumerate(zip((query, key, value), names, strict=True)):
            made.append(helper.make_node("WithBias", [x, bias, query, key, value], [name], place=place))
        query, key, value = names
    attention = helper.make_node("Attention", [query, key, value, added], list(node.output), **given)
    attention.attribute.extend(
        [helper.make_attribute("q_num_heads", heads), helper.make_attribute("kv_num_heads", heads)]
    )
    return [*made, *_attention(attention)]


def _grouped_attention(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Attention of ONNX: a window of some keys ends with the query's own."""
    given = _attributes(node)
    query, key, value, past_key, past_value, *_ = node.input
    window = given.get("local_window_size", -1)
    attributes = {
        "is_causal": 1,
        "q_num_heads": given["num_heads"],
        "kv_num_heads": given["kv_num_heads"],
        **_only(given, "scale", "softcap"),
        **({"left_window_size": window - 1} if window > 0 else {}),
    }
    if past_key:
        inputs = [query, key, value, "", past_key, past_value]
        return _attention(helper.make_node("Attention", inputs, list(node.output), **attributes))
    heads = [
        helper.make_node("AttentionHeads", [x], [present], heads=given["kv_num_heads"])
        for x, present in zip((key, value), node.output[1:], strict=True)
    ]
    return [*heads, *_attention(helper.make_node("Attention", [query, key, value], [node.output[0]], **attributes))]


def _linear(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    *inputs, zero = node.input
    return _requantized(node, f"Real{node.op_type}", inputs, zero, _attributes(node))


def _linear_concatenation(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    scale, zero, *parts = node.input
    return _requantized(node, f"Real{node.op_type}", [*parts, scale], zero, _attributes(node))


def _linear_gemm(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """In reals, with the bias in units of the product of both scales."""
    *inputs, zero = [*node.input, *[""] * (9 - len(node.input))]
    if zero:
        return _requantized(node, "RealQGemm", inputs, zero, _attributes(node))
    return [helper.make_node("RealQGemm", inputs, list(node.output), **_attributes(node))]


def _distances(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if _attributes(node)["metric"] == b"sqeuclidean":
        return [helper.make_node("SquaredDistances", list(node.input), list(node.output))]
    squares = f"{node.output[0]}_squares"
    return [
        helper.make_node("SquaredDistances", list(node.input), [squares]),
        helper.make_node("Root", [squares], list(node.output)),
    ]


def _biased_softmax(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return _in_turn(node, ("Add", list(node.input[1:]), {}), ("Softmax", [], {"axis": -1}))


def _integer_product(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = [*node.input, *[""] * (7 - len(node.input))]
    product = f"{node.output[0]}_product" if bias else node.output[0]
    made = [helper.make_node("IntegerProducts", [a, b, a_scale, b_scale, a_zero, b_zero], [product])]
    return made + [helper.make_node("Add", [product, bias], list(node.output))] * bool(bias)


def _dynamic_product(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    a, b, b_scale, b_zero, bias = [*node.input, *[""] * (5 - len(node.input))]
    quantized, scale, zero = (f"{node.output[0]}_{part}" for part in ("quantized", "scale", "zero"))
    product = helper.make_node("", [quantized, b, scale, b_scale, zero, b_zero, bias], list(node.output))
    return [helper.make_node("DynamicQuantizeLinear", [a], [quantized, scale, zero]), *_integer_product(product)]


def _attention(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = _attributes(node)
    query, key, value, mask, past_key, past_value, filled = [*node.input, *[""] * (7 - len(node.input))]
    results = [*node.output, *[""] * (4 - len(node.output))]
    made: list[onnx.NodeProto] = []

    def step(kind: str, inputs: Sequence[str], result: str = "", **attributes: Any) -> str:
        name = result or f"{node.output[0]}_{len(made)}"
        made.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    heads = given.get("q_num_heads", 0)
    query = step("AttentionHeads", [query], heads=heads)
    key, value = (step("AttentionHeads", [x], heads=given.get("kv_num_heads", 0)) for x in (key, value))
    if past_key:
        key = step("Concat", [past_key, key], results[1], axis=2)
        value = step("Concat", [past_value, value], results[2], axis=2)
    stages = [step("AttentionProducts", [query, key], **_only(given, "scale"))]
    stages.append(step("AttentionCap", stages[-1:], softcap=given["softcap"]) if given.get("softcap") else stages[-1])
    masked = step("AttentionMask", [stages[-1], mask]) if mask else stages[-1]
    bounds = _only(given, "is_causal", "left_window_size", "right_window_size")
    stages.append(step("AttentionSeen", [masked, mask, past_key, filled], **bounds))
    stages.append(step("AttentionWeights", stages[-1:]))
    if heads:
        step("AttentionMerged", [step("AttentionValues", [stages[-1], value])], node.output[0])
    else:
        step("AttentionValues", [stages[-1], value], node.output[0])
    if results[3]:
        step("Identity", [stages[given.get("qk_matmul_output_mode", 0)]], results[3])
    return made


def _only(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


def _causal_convolution(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = _attributes(node)
    x, weight, bias, past = [*node.input, *[""] * (4 - len(node.input))]
    result = node.output[0]
    items, is_last = f"{result}_items", given.get("activation", b"none") == b"none"
    sums = result if is_last else f"{result}_sums"
    made = [
        helper.make_node("CausalItems", [x, weight, past], [items]),
        helper.make_node("CausalSums", [items, weight, bias], [sums]),
        *(helper.make_node("CausalState", [items, weight], [state]) for state in node.output[1:]),
    ]
    return made if is_last else [*made, helper.make_node("Swish", [sums], [result])]


def _gated(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = _attributes(node)
    gate = f"{node.output[0]}_gate"
    return [
        helper.make_node("Swish", [node.input[0]], [gate], **given),
        helper.make_node("Mul", [gate, node.input[1]], list(node.output)),
    ]


def _cross_entropy(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = _attributes(node)
    logarithms = node.output[1] if len(node.output) > 1 else f"{node.output[0]}_logarithms"
    return [
        helper.make_node("LogSoftmax", [node.input[0]], [logarithms], axis=1),
        helper.make_node("NegativeLogLikelihoodLoss", [logarithms, *node.input[1:]], [node.output[0]], **given),
    ]


def _deformed(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = _attributes(node)
    x, weight, offset, bias, mask = [*node.input, *[""] * (5 - len(node.input))]
    columns = f"{node.output[0]}_columns"
    return [
        helper.make_node("DeformedColumns", [x, weight, offset, mask], [columns], **given),
        helper.make_node("DeformedSums", [columns, weight, bias], list(node.output), group=given.get("group", 1)),
    ]


SIMPLER: Mapping[str, Callable[[onnx.NodeProto], Sequence[onnx.NodeProto]]] = {
    "Attention": _attention,
    "BiasGelu": _gelu,
    "BiasSoftmax": _biased_softmax,
    "CDist": _distances,
    "CausalConvWithState": _causal_convolution,
    "DeformConv": _deformed,
    "DynamicQuantizeMatMul": _dynamic_product,
    "FastGelu": _gelu,
    "FusedConv": _fused,
    "FusedGemm": _fused,
    "FusedMatMul": _fused_product,
    "GroupQueryAttention": _grouped_attention,
    "MatMulIntegerToFloat": _integer_product,
    "MatMulNBits": _product_of_blocks,
    "MultiHeadAttention": _many_heads,
    **dict.fromkeys(("QLinearAdd", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul"), _linear),
    "QGemm": _linear_gemm,
    "QLinearConcat": _linear_concatenation,
    "QLinearConv": _convolution,
    "QLinearMatMul": _product,
    **dict.fromkeys(("QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"), _linear),
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skipping,
    "SkipSimplifiedLayerNormalization": _skipping,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "SwiGLU": _gated,
    "TransposeMatMul": _fused_product,
}
"""What a node is, by its operator's name; the operators that are none of ONNX are in :mod:`reference`."""
