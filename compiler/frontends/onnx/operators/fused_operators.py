"""Operators that onnxruntime's optimizer joins from several of the standard, of which transformers consist."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.onnx.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.tensors import fail, input_at, optional_input
from nnefc.operators.activation import Gelu
from nnefc.operators.matrix import Gemm
from nnefc.operators.normalization import Standardization

__all__: list[str] = []


@operator("FastGelu", since=(1,), domain=DOMAIN)
def _fast_gelu(ctx: Context, node: Node) -> Any:
    x, bias = input_at(node, 0), optional_input(node, 1)
    return ctx.apply(Gelu(approximate=True), x if bias is None else binary(ctx, "Add", x, bias))


@operator("FusedMatMul", since=(1,), domain=DOMAIN)
def _fused_matmul(ctx: Context, node: Node) -> Value:
    """`alpha · A · B`, of which each may be transposed in its last two axes; a vector has nothing to transpose."""
    if node.attributes["transBatchA"] or node.attributes["transBatchB"]:
        raise fail(node, "matrices whose first axis is behind the axes of the batch are not supported")
    gemm = Gemm(node.attributes["alpha"], 1.0, bool(node.attributes["transA"]), bool(node.attributes["transB"]))
    made: Value = ctx.apply(gemm, input_at(node, 0), input_at(node, 1))
    return made


@operator("SkipLayerNormalization", since=(1,), domain=DOMAIN)
def _skip_layer_normalization(ctx: Context, node: Node) -> list[Value]:
    """The sum of two tensors, and of a bias, normalized over the last axis; the fourth result is the sum."""
    total = binary(ctx, "Add", input_at(node, 0), input_at(node, 1))
    bias = optional_input(node, 4)
    total = total if bias is None else binary(ctx, "Add", total, bias)
    standardization = Standardization((total.rank - 1,), node.attributes["epsilon"], statistics=True)
    made = ctx.apply(standardization, total, input_at(node, 2), optional_input(node, 3))
    return [*made, total][: max(1, len(node.outputs))]
