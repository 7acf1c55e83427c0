"""Convolutions and transposed convolutions in 1 to 3 dimensions."""

from __future__ import annotations

from nnefc.frontends.pnnx.lowering import Lowering, Shape, Tensor, dtype_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Ints, Result, Weights, operator, spatial
from nnefc.frontends.pnnx.operators.padding import pad
from nnefc.operators.base import check_size
from nnefc.operators.nn.convolution import Convolution, TransposedConvolution
from nnefc.operators.nn.window import Padding, Window, no_padding, same_padding
from nnefc.operators.tensor.shape import Squeeze, Unsqueeze
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_ONE, _ZERO = Ints((1,)), Ints((0,))


def _batched(ctx: Lowering, input: Tensor, rank: int) -> tuple[Tensor, bool]:
    """The input with a batch, and whether it had none."""
    shape = shape_of(input)
    if len(shape) not in (rank + 1, rank + 2):
        raise CompileError(f"the input {list(shape)} should have the rank {rank + 2}")
    if len(shape) == rank + 1:
        return ctx.apply(Unsqueeze((0,)), input), True
    return input, False


def _unbatched(ctx: Lowering, made: Tensor, added: bool) -> Tensor:
    return Squeeze((0,)).lower(ctx, ctx.bound(made)) if added else made


def _kernel(weight: Tensor) -> list[int]:
    if 0 in shape_of(weight):
        raise CompileError(f"the filter {list(shape_of(weight))} is empty")
    return list(shape_of(weight)[2:])


def _convolve(
    ctx: Lowering,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints | str,
    dilation: Ints,
    groups: int,
    mode: str,
) -> Result:
    rank = len(shape_of(weight)) - 2
    data, unbatched = _batched(ctx, input, rank)
    kernel = _kernel(weight)
    if dtype_of(input) != dtype_of(weight):
        raise CompileError(f"the input is {dtype_of(input)}, the filter {dtype_of(weight)}")
    strides, dilations = spatial(stride, rank, "stride"), spatial(dilation, rank, "dilation")
    if mode not in _MODES:
        raise CompileError(f"there is no padding mode '{mode}'")
    window = Window(tuple(kernel), strides, dilations, _padding(padding, kernel, dilations, strides))
    if _MODES[mode] != "constant" and window.pads:
        data = ctx.bound(pad(ctx, data, [*no_padding(2), *window.padding], _MODES[mode], 0.0))
        window = window.unpadded()
    return _unbatched(ctx, Convolution(window, groups).lower(ctx, data, weight, bias), unbatched)


_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def _padding(padding: Ints | str, kernel: list[int], dilation: Shape, stride: Shape) -> Padding:
    """Zeros before and after each dimension."""
    if isinstance(padding, tuple):
        return tuple((amount, amount) for amount in spatial(padding, len(kernel), "padding", 0))
    match padding:
        case "valid":
            return no_padding(len(kernel))
        case "same":
            if any(step != 1 for step in stride):
                raise CompileError("the padding 'same' is for strides of 1")
            ones = (1,) * len(kernel)
            return same_padding(Window.of(kernel, dilation=dilation), ones, ones)
    raise CompileError(f"there is no padding '{padding}'")


def _module_shape(kernel_size: Ints, rank: int) -> Shape:
    return spatial(kernel_size, rank, "kernel_size")


def _grouped(channels: int, groups: int) -> int:
    if groups < 1 or channels < 1 or channels % groups:
        raise CompileError(f"{channels} channels cannot be divided into {groups} groups")
    return channels // groups


def _declare_module(rank: int) -> None:
    @operator(f"nn.Conv{rank}d", rank=rank)
    def _module(
        ctx: Lowering,
        input: Tensor,
        weights: Weights,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        rank: int,
        stride: Ints = _ONE,
        padding: Ints | str = _ZERO,
        dilation: Ints = _ONE,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> Result:
        kernel = _module_shape(kernel_size, rank)
        weight = weights.take("weight", (out_channels, _grouped(in_channels, groups), *kernel))
        offset = weights.take("bias", (out_channels,)) if bias else None
        return _convolve(ctx, input, weight, offset, stride, padding, dilation, groups, padding_mode)


def _declare_function(rank: int) -> None:
    @operator(f"F.conv{rank}d", rank=rank)
    def _function(
        ctx: Lowering,
        input: Tensor,
        weight: Tensor,
        rank: int,
        bias: Tensor | None = None,
        stride: Ints = _ONE,
        padding: Ints | str = _ZERO,
        dilation: Ints = _ONE,
        groups: int = 1,
    ) -> Result:
        if len(shape_of(weight)) != rank + 2:
            raise CompileError(f"the filter {list(shape_of(weight))} should have the rank {rank + 2}")
        return _convolve(ctx, input, weight, bias, stride, padding, dilation, groups, "zeros")


# Transposed convolutions.


def _transposed(
    ctx: Lowering,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    dilation: Ints,
    groups: int,
) -> Result:
    rank = len(shape_of(weight)) - 2
    data, unbatched = _batched(ctx, input, rank)
    kernel = _kernel(weight)
    strides, dilations = spatial(stride, rank, "stride"), spatial(dilation, rank, "dilation")
    cut = spatial(padding, rank, "padding", 0)
    extra = spatial(output_padding, rank, "output_padding", 0)
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise CompileError("'output_padding' must be smaller than the stride or the dilation")
    window = Window(tuple(kernel), strides, dilations, tuple((amount, amount) for amount in cut))
    transposed = TransposedConvolution(window, groups, extra)
    check_size(transposed.shape(shape_of(data), shape_of(weight), None if bias is None else shape_of(bias)))
    return _unbatched(ctx, transposed.lower(ctx, data, weight, bias), unbatched)


def _declare_transposed_module(rank: int) -> None:
    @operator(f"nn.ConvTranspose{rank}d", rank=rank, limits="the size of the output is not an operand")
    def _module(
        ctx: Lowering,
        input: Tensor,
        weights: Weights,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        rank: int,
        stride: Ints = _ONE,
        padding: Ints = _ZERO,
        output_padding: Ints = _ZERO,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = _ONE,
        padding_mode: str = "zeros",
    ) -> Result:
        kernel = _module_shape(kernel_size, rank)
        if padding_mode != "zeros":
            raise CompileError(f"transposed convolutions have no padding mode '{padding_mode}'")
        weight = weights.take("weight", (in_channels, _grouped(out_channels, groups), *kernel))
        offset = weights.take("bias", (out_channels,)) if bias else None
        return _transposed(ctx, input, weight, offset, stride, padding, output_padding, dilation, groups)


def _declare_transposed_function(rank: int) -> None:
    @operator(f"F.conv_transpose{rank}d", rank=rank)
    def _function(
        ctx: Lowering,
        input: Tensor,
        weight: Tensor,
        rank: int,
        bias: Tensor | None = None,
        stride: Ints = _ONE,
        padding: Ints = _ZERO,
        output_padding: Ints = _ZERO,
        groups: int = 1,
        dilation: Ints = _ONE,
    ) -> Result:
        if len(shape_of(weight)) != rank + 2:
            raise CompileError(f"the filter {list(shape_of(weight))} should have the rank {rank + 2}")
        return _transposed(ctx, input, weight, bias, stride, padding, output_padding, dilation, groups)


for _rank in (1, 2, 3):
    _declare_module(_rank)
    _declare_function(_rank)
    _declare_transposed_module(_rank)
    _declare_transposed_function(_rank)
