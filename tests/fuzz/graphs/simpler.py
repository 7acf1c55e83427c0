"""Operators as simpler ones, of which each result is rounded once: what bounds follow from.

    y = QLinearConv(x, …)     →     y_sums = RequantizedSums(x, …);  y = Requantized(y_sums, …)
    y = MatMulNBits(x, …)     →     y_weights = BlockWeights(…);  y = BlockProduct(x, y_weights)
    y = Attention(q, k, v)    →     y_products = AttentionProducts(q, k);  …;  y = AttentionValues(y_weights, v)

The sums are exact, and the real number that a sum stands for has the errors of a step: at its rounding to an integer a
result may be one or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
from contributed_simpler import OF_ONNXRUNTIME
from linear_simpler import OF_INTEGERS
from simpler_steps import Steps, attended

__all__ = ["node_text", "simpler"]


def node_text(node: onnx.NodeProto) -> str:
    """An operator's name; with its domain, if the standard has another of this name."""
    qualified = f"{node.domain}.{node.op_type}"
    return qualified if qualified in SIMPLER else node.op_type


def simpler(node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
    """The nodes that stand for one; none, if it is evaluated as it is."""
    make = SIMPLER.get(node_text(node))
    return make(Steps(node)) if make else ()


def _attention(steps: Steps) -> list[onnx.NodeProto]:
    query, key, value, mask, past_key, past_value, filled = steps.inputs(7)
    _, *whole, scores = steps.results(4)
    made, stages, present = attended(steps, (query, key, value), steps.given, mask, (past_key, past_value), filled)
    for index, name in enumerate(present, 1):
        if whole[index - 1]:
            steps.end(name, index)
    if scores:
        steps.add("Identity", stages[steps.given.get("qk_matmul_output_mode", 0)], result=scores)
    return steps.end(made)


def _causal_convolution(steps: Steps) -> list[onnx.NodeProto]:
    x, weight, bias, past = steps.inputs(4)
    elements = steps.add("CausalItems", x, weight, past)
    sums = steps.add("CausalSums", elements, weight, bias)
    for state in steps.node.output[1:]:
        steps.add("CausalState", elements, weight, result=state)
    is_last = steps.given.get("activation", "none") == "none"
    return steps.end(sums if is_last else steps.add("Swish", sums))


def _gated(steps: Steps) -> list[onnx.NodeProto]:
    gate, x = steps.inputs(2)
    return steps.end(steps.add("Mul", steps.add("Swish", gate, **steps.given), x))


def _cross_entropy(steps: Steps) -> list[onnx.NodeProto]:
    x, *others = steps.node.input
    logarithms = steps.add("LogSoftmax", x, result=steps.results(2)[1], axis=1)
    return steps.end(steps.add("NegativeLogLikelihoodLoss", logarithms, *others, **steps.given))


def _deformed(steps: Steps) -> list[onnx.NodeProto]:
    x, weight, offset, bias, mask = steps.inputs(5)
    columns = steps.add("DeformedColumns", x, weight, offset, mask, **steps.given)
    return steps.end(steps.add("DeformedSums", columns, weight, bias, group=steps.given.get("group", 1)))


SIMPLER: Mapping[str, Callable[[Steps], Sequence[onnx.NodeProto]]] = {
    "Attention": _attention,
    "CausalConvWithState": _causal_convolution,
    "DeformConv": _deformed,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "SwiGLU": _gated,
    **OF_INTEGERS,
    **OF_ONNXRUNTIME,
}
"""What a node is, by its operator's name; the operators that are none of ONNX are in :mod:`reference`."""
