"""Softmax and related operators."""

from __future__ import annotations

from tvm import relax

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, dtype_of, rank_of
from nnefc.frontends.pnnx.operators.declaration import DType, Result, axis_of, need_rank, operator
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.nn.activation import Softmax
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _prepared(ctx: Lowering, input: Tensor, dim: int | None, dtype: str | None) -> tuple[relax.Expr, int]:
    """The input as reals, and the axis; without one PyTorch takes 0 for the ranks 0, 1 and 3, else 1."""
    rank = rank_of(input)
    if not rank:
        raise CompileError("softmax of a single number is not supported")
    axis = axis_of(dim if dim is not None else (0 if rank in (0, 1, 3) else 1), rank)
    if dtype is None and not dtype_of(input).startswith(("float", "bfloat")):
        raise CompileError(f"softmax is for reals, the input is {dtype_of(input)}")
    return (ctx.expr(input) if dtype is None else ctx.emit(ctx.convert(input, dtype))), axis


@operator("nn.Softmax", "F.softmax", "torch.softmax", "Tensor.softmax")
def _softmax(ctx: Lowering, input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Result:
    x, axis = _prepared(ctx, input, dim, dtype)
    return Softmax((axis,)).lower(ctx, x)


@operator("nn.LogSoftmax", "F.log_softmax", "torch.log_softmax")
def _log_softmax(ctx: Lowering, input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Result:
    x, axis = _prepared(ctx, input, dim, dtype)
    return Softmax((axis,), logarithm=True).lower(ctx, x)


@operator("nn.Softmin", "F.softmin")
def _softmin(ctx: Lowering, input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Result:
    x, axis = _prepared(ctx, input, dim, dtype)
    return Softmax((axis,)).lower(ctx, ctx.apply(Elementwise("negative"), x))


@operator("nn.Softmax2d")
def _softmax2d(ctx: Lowering, input: Tensor) -> Result:
    x, axis = _prepared(ctx, input, len(need_rank(input, 3, 4)) - 3, None)
    return Softmax((axis,)).lower(ctx, x)
