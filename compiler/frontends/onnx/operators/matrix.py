"""Matrix products: MatMul, Gemm, Einsum; Det and Trilu."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import (
    fail,
    has_input,
    input_at,
    optional_input,
    shape_of,
    spell,
)
from nnefc.operators.math.einsum import Einsum
from nnefc.operators.math.matrix import Determinant, Gemm, MatMul, Triangle
from nnefc.operators.tensor.shape import Reshape

__all__ = ["matmul"]


def matmul(ctx: Context, a: Value, b: Value) -> Value:
    """The product of matrices as NumPy's `@`: vectors are rows and columns, further axes broadcast."""
    made: Value = ctx.apply(MatMul(), a, b)
    return made


@operator("MatMul", since=(1, 9, 13))
def _matmul(ctx: Context, node: Node) -> Value:
    return matmul(ctx, input_at(node, 0), input_at(node, 1))


@operator("Gemm", since=(1, 6, 7, 9, 11, 13))
def _gemm(ctx: Context, node: Node) -> Value:
    a, b, given = input_at(node, 0), input_at(node, 1), node.attributes
    if a.rank != 2 or b.rank != 2:
        raise fail(node, f"{spell(shape_of(a))} and {spell(shape_of(b))} are not both matrices")
    gemm = Gemm(given["alpha"], given["beta"], bool(given["transA"]), bool(given["transB"]))
    made: Value = ctx.apply(gemm, a, b, optional_input(node, 2))
    return made


@operator("Einsum", since=(12, 28))
def _einsum(ctx: Context, node: Node) -> Value:
    values = [input_at(node, i) for i in range(len(node.inputs))]
    made: Value = ctx.apply(Einsum(str(node.attributes["equation"])), *values)
    return made


@operator("Trilu", since=(1,), domain=DOMAIN)
@operator("Trilu", since=(14,))
def _trilu(ctx: Context, node: Node) -> Value:
    x, is_upper = input_at(node, 0), bool(node.attributes["upper"])
    known = ctx.constant(input_at(node, 1)) if has_input(node, 1) else np.zeros(())
    if known is None:
        made: Value = ctx.apply(Triangle(is_upper), x, ctx.apply(Reshape(()), input_at(node, 1)))
    else:
        made = ctx.apply(Triangle(is_upper, int(known.reshape(())[()])), x)
    return made


@operator("Det", since=(11, 22))
def _det(ctx: Context, node: Node) -> Value:
    made: Value = ctx.apply(Determinant(), input_at(node, 0))
    return made
