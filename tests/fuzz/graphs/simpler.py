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

import onnx
from onnx import helper

__all__ = ["SIMPLER"]


def _requantized(node: onnx.NodeProto, sums: str, given: Mapping[str, Any]) -> list[onnx.NodeProto]:
    real = f"{node.output[0]}_sums"
    return [
        helper.make_node(sums, list(node.input), [real], **given),
        helper.make_node("Requantized", [real, node.input[7]], list(node.output)),
    ]


def _convolution(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return _requantized(node, "ConvolutionSums", given)


def _product(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return _requantized(node, "ProductSums", {})


def _product_of_blocks(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
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


def _attention(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
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
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
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
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    gate = f"{node.output[0]}_gate"
    return [
        helper.make_node("Swish", [node.input[0]], [gate], **given),
        helper.make_node("Mul", [gate, node.input[1]], list(node.output)),
    ]


def _cross_entropy(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    logarithms = node.output[1] if len(node.output) > 1 else f"{node.output[0]}_logarithms"
    return [
        helper.make_node("LogSoftmax", [node.input[0]], [logarithms], axis=1),
        helper.make_node("NegativeLogLikelihoodLoss", [logarithms, *node.input[1:]], [node.output[0]], **given),
    ]


def _deformed(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    x, weight, offset, bias, mask = [*node.input, *[""] * (5 - len(node.input))]
    columns = f"{node.output[0]}_columns"
    return [
        helper.make_node("DeformedColumns", [x, weight, offset, mask], [columns], **given),
        helper.make_node("DeformedSums", [columns, weight, bias], list(node.output), group=given.get("group", 1)),
    ]


SIMPLER: Mapping[str, Callable[[onnx.NodeProto], Sequence[onnx.NodeProto]]] = {
    "Attention": _attention,
    "CausalConvWithState": _causal_convolution,
    "DeformConv": _deformed,
    "MatMulNBits": _product_of_blocks,
    "QLinearConv": _convolution,
    "QLinearMatMul": _product,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "SwiGLU": _gated,
}
"""What a node is, by its operator's name; the operators that are none of ONNX are in :mod:`reference`."""
