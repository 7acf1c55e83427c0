"""Unfold (im2col) and fold (col2im)."""

from __future__ import annotations

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, rank_of
from nnefc.frontends.pnnx.operators.declaration import Ints, Result, need_rank, operator
from nnefc.operators.nn.unpooling import Fold, Unfold
from nnefc.operators.nn.window import Window
from nnefc.operators.tensor.shape import Squeeze, Unsqueeze
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_PLANE = 2


def _window(kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Window:
    """The window over a plane; one number stands for both dimensions."""
    size, dilations, pads, strides = (
        tuple(given) * (_PLANE // len(given)) for given in (kernel_size, dilation, padding, stride)
    )
    if not len(size) == len(dilations) == len(pads) == len(strides) == _PLANE:
        raise CompileError("kernel_size, dilation, padding and stride must have one or two numbers each")
    if min(*size, *dilations, *strides) < 1 or min(pads) < 0:
        raise CompileError("kernel_size, dilation and stride must be positive, and padding not negative")
    return Window.of(size, strides, dilations, tuple((pad, pad) for pad in pads))


@operator("F.unfold", "nn.Unfold")
def _unfold(
    ctx: Lowering,
    input: Tensor,
    kernel_size: Ints,
    dilation: Ints = Ints((1,)),  # noqa: B008
    padding: Ints = Ints((0,)),  # noqa: B008
    stride: Ints = Ints((1,)),  # noqa: B008
) -> Result:
    need_rank(input, 3, 4)
    alone = rank_of(input) == 3
    batch = ctx.apply(Unsqueeze((0,)), input) if alone else input
    made = ctx.apply(Unfold(_window(kernel_size, dilation, padding, stride)), batch)
    return Squeeze((0,)).lower(ctx, made) if alone else made


@operator("F.fold", "nn.Fold")
def _fold(
    ctx: Lowering,
    input: Tensor,
    output_size: Ints,
    kernel_size: Ints,
    dilation: Ints = Ints((1,)),  # noqa: B008
    padding: Ints = Ints((0,)),  # noqa: B008
    stride: Ints = Ints((1,)),  # noqa: B008
) -> Result:
    need_rank(input, 2, 3)
    if len(output_size) not in (1, _PLANE):
        raise CompileError(f"'output_size' should have two numbers, it has {len(output_size)}")
    alone = rank_of(input) == 2
    batch = ctx.apply(Unsqueeze((0,)), input) if alone else input
    image = tuple(output_size) * (_PLANE // len(output_size))
    made = ctx.apply(Fold(_window(kernel_size, dilation, padding, stride), image), batch)
    return Squeeze((0,)).lower(ctx, made) if alone else made
