"""Operators as simpler ones, of which each result is rounded once: what bounds follow from.

    y = QLinearConv(x, …)     →     y_sums = RequantizedSums(x, …);  y = Requantized(y_sums, …)
    y = MatMulNBits(x, …)     →     y_weights = BlockWeights(…);  y = BlockProduct(x, y_weights)

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


SIMPLER: Mapping[str, Callable[[onnx.NodeProto], Sequence[onnx.NodeProto]]] = {
    "MatMulNBits": _product_of_blocks,
    "QLinearConv": _convolution,
    "QLinearMatMul": _product,
}
"""What a node is, by its operator's name; the operators that are none of ONNX are in :mod:`reference`."""
