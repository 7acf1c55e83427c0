"""Reductions over dimensions, cumulative sums and products."""

from __future__ import annotations

from collections.abc import Sequence

from nnefc.frontends.pnnx.lowering import Lowering, Shape, Tensor, dtype_of, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import DType, Ints, Result, axis_of, need_real, operator
from nnefc.frontends.pnnx.operators.elementwise import apply
from nnefc.frontends.pnnx.promotion import category
from nnefc.operators.math.reduction import (
    AllTrue,
    AnyTrue,
    ArgMinMax,
    Cumulative,
    LogSumExp,
    Maximum,
    Mean,
    Minimum,
    Norm,
    Product,
    Reduction,
    Sum,
    Variance,
)
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _axes(input: Tensor, dim: Sequence[int] | int | None) -> Shape:
    """The axes in ascending order; all of them where none is given."""
    rank = rank_of(input)
    named = [dim] if isinstance(dim, int) else dim
    axes = sorted(axis_of(i, rank) for i in named) if named else list(range(rank))
    if len(set(axes)) != len(axes):
        raise CompileError(f"a dimension is named twice in {list(named or ())}")
    if not rank:
        return ()
    if any(shape_of(input)[axis] == 0 for axis in axes):
        raise CompileError("a dimension is empty")
    return tuple(axes)


def _summable(ctx: Lowering, input: Tensor, dtype: str | None) -> Tensor:
    """Sums and products of integers are 64 bits wide."""
    wanted = dtype or ("int64" if category(dtype_of(input)) < 2 else dtype_of(input))
    return input if dtype_of(input) == wanted else ctx.emit(ctx.convert(input, wanted))


@operator("torch.sum", "Tensor.sum")
def _sum(
    ctx: Lowering, input: Tensor, dim: Ints | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Result:
    return Sum(_axes(input, dim), keepdim).lower(ctx, _summable(ctx, input, dtype))


@operator("torch.mean", "Tensor.mean")
def _mean(
    ctx: Lowering, input: Tensor, dim: Ints | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Result:
    x = input if dtype is None else ctx.emit(ctx.convert(input, dtype))
    need_real(x)
    return Mean(_axes(input, dim), keepdim).lower(ctx, x)


@operator("torch.prod", "Tensor.prod")
def _prod(
    ctx: Lowering, input: Tensor, dim: int | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Result:
    return Product(_axes(input, dim), keepdim).lower(ctx, _summable(ctx, input, dtype))


for _names, _kind in (
    (("torch.amax", "Tensor.amax"), Maximum),
    (("torch.amin", "Tensor.amin"), Minimum),
    (("torch.all", "Tensor.all"), AllTrue),
    (("torch.any", "Tensor.any"), AnyTrue),
):

    @operator(*_names, kind=_kind)
    def _reduced(
        ctx: Lowering, input: Tensor, kind: type[Reduction], dim: Ints | None = None, keepdim: bool = False
    ) -> Result:
        return kind(_axes(input, dim), keepdim).lower(ctx, input)


def _position(ctx: Lowering, input: Tensor, dim: int | None, keepdim: bool, largest: bool) -> Result:
    return ArgMinMax(_axes(input, dim), keepdim, largest).lower(ctx, input)


@operator("torch.argmax", "Tensor.argmax")
def _argmax(ctx: Lowering, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Result:
    return _position(ctx, input, dim, keepdim, largest=True)


@operator("torch.argmin", "Tensor.argmin")
def _argmin(ctx: Lowering, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Result:
    return _position(ctx, input, dim, keepdim, largest=False)


def _extremum(ctx: Lowering, input: Tensor, dim: int | None, keepdim: bool, largest: bool) -> Result:
    if dtype_of(input) == "bool":
        raise CompileError("the largest of booleans is not supported: convert them to integers")
    value = (Maximum if largest else Minimum)(_axes(input, dim), keepdim).lower(ctx, input)
    if dim is None or ctx.results == 1:
        return value
    return value, _position(ctx, input, dim, keepdim, largest)


@operator("torch.max")
def _max(
    ctx: Lowering, input: Tensor, other: Tensor | None = None, dim: int | None = None, keepdim: bool = False
) -> Result:
    return _extremum(ctx, input, dim, keepdim, True) if other is None else apply(ctx, "max", input, other)


@operator("torch.min")
def _min(
    ctx: Lowering, input: Tensor, other: Tensor | None = None, dim: int | None = None, keepdim: bool = False
) -> Result:
    return _extremum(ctx, input, dim, keepdim, False) if other is None else apply(ctx, "min", input, other)


def _correction(unbiased: bool | None, correction: int | float | None) -> float:
    if correction is not None:
        return float(correction)
    return 0.0 if unbiased is False else 1.0


@operator("torch.var", "Tensor.var")
def _var(
    ctx: Lowering,
    input: Tensor,
    dim: Ints | None = None,
    unbiased: bool | None = None,
    correction: int | float | None = None,
    keepdim: bool = False,
) -> Result:
    need_real(input)
    return Variance(_axes(input, dim), keepdim, _correction(unbiased, correction)).lower(ctx, input)


@operator("torch.std", "Tensor.std")
def _std(
    ctx: Lowering,
    input: Tensor,
    dim: Ints | None = None,
    unbiased: bool | None = None,
    correction: int | float | None = None,
    keepdim: bool = False,
) -> Result:
    return apply(ctx, "sqrt", ctx.bound(_var(ctx, input, dim, unbiased, correction, keepdim)))


@operator("torch.logsumexp")
def _logsumexp(ctx: Lowering, input: Tensor, dim: Ints, keepdim: bool = False) -> Result:
    need_real(input)
    return LogSumExp(_axes(input, dim), keepdim).lower(ctx, input)


@operator("torch.norm", "Tensor.norm", limits="the norms 1, 2, inf, -inf and other finite ones but 0")
def _norm(
    ctx: Lowering, input: Tensor, p: int | float | str | None = 2, dim: Ints | None = None, keepdim: bool = False
) -> Result:
    need_real(input)
    order = 2 if p is None or p == "fro" else p
    if isinstance(order, str):
        raise CompileError(f"the norm {p} is not supported")
    return Norm(_axes(input, dim), keepdim, order).lower(ctx, input)


def _running(ctx: Lowering, input: Tensor, dim: int, dtype: str | None, product: bool) -> Result:
    x = _summable(ctx, input, dtype)
    return Cumulative(axis_of(dim, rank_of(x)), product).lower(ctx, x) if rank_of(x) else x


@operator("torch.cumsum", "Tensor.cumsum")
def _cumsum(ctx: Lowering, input: Tensor, dim: int, dtype: DType | None = None) -> Result:
    return _running(ctx, input, dim, dtype, product=False)


@operator("torch.cumprod", "Tensor.cumprod")
def _cumprod(ctx: Lowering, input: Tensor, dim: int, dtype: DType | None = None) -> Result:
    return _running(ctx, input, dim, dtype, product=True)
