"""Matrix products: linear layers and the family around `torch.matmul`."""

from __future__ import annotations

import numpy as np
from tvm import relax

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, shape_of
from nnefc.frontends.pnnx.operators.declaration import Result, Tensors, Weights, need_rank, operator
from nnefc.frontends.pnnx.operators.elementwise import apply
from nnefc.operators.math.einsum import Einsum
from nnefc.operators.math.matrix import Gemm, MatMul
from nnefc.support.diagnostics import CompileError

__all__ = ["linear"]


def linear(ctx: Lowering, input: Tensor, weight: Tensor, bias: Tensor | None) -> Result:
    """`input [..., in] · weight [out, in]ᵀ + bias [out]`."""
    need_rank(weight, 2)
    outputs = shape_of(weight)[0]
    if bias is not None and shape_of(bias) not in ((outputs,), (1,), ()):
        raise CompileError(f"the bias {list(shape_of(bias))} does not fit {outputs} outputs")
    return Gemm(transpose_b=True).lower(ctx, input, weight, bias)


@operator("nn.Linear")
def _linear_module(
    ctx: Lowering, input: Tensor, weights: Weights, in_features: int, out_features: int, bias: bool = True
) -> Result:
    weight = weights.take("weight", (out_features, in_features))
    return linear(ctx, input, weight, weights.take("bias", (out_features,)) if bias else None)


@operator("F.linear")
def _linear(ctx: Lowering, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Result:
    return linear(ctx, input, weight, bias)


@operator("torch.matmul", "Tensor.matmul")
def _matmul(ctx: Lowering, input: Tensor, other: Tensor) -> Result:
    return MatMul().lower(ctx, input, other)


@operator("torch.mm")
def _mm(ctx: Lowering, input: Tensor, mat2: Tensor) -> Result:
    need_rank(input, 2)
    need_rank(mat2, 2)
    return MatMul().lower(ctx, input, mat2)


@operator("torch.bmm")
def _bmm(ctx: Lowering, input: Tensor, mat2: Tensor) -> Result:
    need_rank(input, 3)
    need_rank(mat2, 3)
    return MatMul().lower(ctx, input, mat2)


@operator("torch.mv")
def _mv(ctx: Lowering, input: Tensor, vec: Tensor) -> Result:
    need_rank(input, 2)
    need_rank(vec, 1)
    return MatMul().lower(ctx, input, vec)


@operator("torch.dot")
def _dot(ctx: Lowering, input: Tensor, other: Tensor) -> Result:
    need_rank(input, 1)
    need_rank(other, 1)
    return MatMul().lower(ctx, input, other)


@operator("torch.outer")
def _outer(ctx: Lowering, input: Tensor, vec2: Tensor) -> Result:
    (rows,), (columns,) = need_rank(input, 1), need_rank(vec2, 1)
    return apply(ctx, "mul", ctx.reshaped(input, (rows, 1)), ctx.reshaped(vec2, (1, columns)))


def _added(
    ctx: Lowering, input: Tensor, left: Tensor, right: Tensor, ranks: tuple[int, int], alpha: float, beta: float
) -> Result:
    for matrix, rank in zip((left, right), ranks, strict=True):
        need_rank(matrix, rank)
    return Gemm(alpha, beta).lower(ctx, left, right, input)


@operator("torch.addmm")
def _addmm(ctx: Lowering, input: Tensor, mat1: Tensor, mat2: Tensor, beta: float = 1.0, alpha: float = 1.0) -> Result:
    return _added(ctx, input, mat1, mat2, (2, 2), alpha, beta)


@operator("torch.baddbmm")
def _baddbmm(
    ctx: Lowering, input: Tensor, batch1: Tensor, batch2: Tensor, beta: float = 1.0, alpha: float = 1.0
) -> Result:
    return _added(ctx, input, batch1, batch2, (3, 3), alpha, beta)


@operator("torch.addmv")
def _addmv(ctx: Lowering, input: Tensor, mat: Tensor, vec: Tensor, beta: float = 1.0, alpha: float = 1.0) -> Result:
    return _added(ctx, input, mat, vec, (2, 1), alpha, beta)


@operator("torch.einsum")
def _einsum(ctx: Lowering, *operands: Tensors, equation: str) -> Result:
    tensors = [tensor for group in operands for tensor in (group if isinstance(group, tuple) else (group,))]
    if not all(isinstance(tensor, np.ndarray | relax.Expr) for tensor in tensors):
        raise CompileError("einsum takes tensors only")
    return Einsum(equation).lower(ctx, *tensors)
