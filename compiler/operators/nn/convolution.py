"""Convolutions, transposed convolutions and deformable convolutions, over any number of spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.nn.window import Padding, Window, no_padding
from nnefc.operators.tensor.padding import FoldPadding, Pad
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, dimensions, element_count, expression, is_known
from nnefc.symbolic.unification import unify_dims, unify_repeated, unify_shapes

__all__ = [
    "Convolution",
    "DeformableConvolution",
    "TransposedConvolution",
    "accumulator",
    "check_filter",
    "check_ranks",
    "converted",
    "gather_transposed",
]

_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_TRANSPOSED = {1: relax.op.nn.conv1d_transpose, 2: relax.op.nn.conv2d_transpose, 3: relax.op.nn.conv3d_transpose}
_NARROW = ("int8", "uint8")


def accumulator(dtype: str) -> str:
    """The type that sums of a type are computed in."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _whole(padding: Padding) -> Padding:
    """The padding of all dimensions, from that of the spatial ones."""
    return (*no_padding(2), *padding)


def _with_bias(ctx: Emitter, sums: relax.Expr, bias: Operand | None, rank: int) -> relax.Expr:
    """The sums, and a bias of a number for each channel, or of one for all."""
    if bias is None:
        return sums
    aligned = ctx.reshaped(bias, (1, element_count(shape_of(bias)), *[1] * rank))
    return relax.op.add(ctx.emit(sums), ctx.expr(aligned))


def check_ranks(x: Shape, w: Shape, minimum: int = 2) -> None:
    """Checks that an input and a filter have the same number of spatial dimensions.

    Raises:
        CompileError: they have not.
    """
    if len(x) < minimum or len(x) != len(w):
        raise CompileError(f"the input {list(x)} and the filter {list(w)} must have the same rank, at least {minimum}")


def check_filter(x: Shape, w: Shape, groups: int, channels: Dimension) -> None:
    """Checks that a filter, which takes this many channels in all groups, fits an input.

    Raises:
        CompileError: it does not.
    """
    if groups < 1 or not (unify_dims(x[1], channels) and unify_dims(w[0] % groups, 0)):
        fits = len(x) > 3 and x[-1] == channels
        wanted = [x[0], x[-1], *x[1:-1]]
        raise CompileError(
            f"the filter {list(w)} in {groups} group{'s' * (groups != 1)} does not fit the input {list(x)}",
            hint=f"it would fit with the channels before rows and columns: {wanted}" if fits else None,
        )


def check_bias(bias: Shape | None, channels: Dimension) -> None:
    """Checks that a bias has an element for each output channel, or one; a dynamic number is that of the channels.

    Raises:
        CompileError: it has not.
    """
    if bias is not None and not unify_repeated(element_count(bias), channels):
        raise CompileError(f"the bias {list(bias)} does not fit {channels} channels")


@dataclass(frozen=True)
class Convolution(Operator):
    """`y[n, o, i] = b[o] + sum over c, k of x[n, g C + c, i stride + k dilation - before] w[o, c, k]`.

    `g = o // (O / groups)` is the group of an output channel, `C` the number of input channels of a group.
    ONNX `Conv`, NNEF `conv`, `torch.nn.functional.conv2d`.

    Attributes:
        window: of the spatial dimensions; its size is the filter's.
        groups: into how many parts the channels are divided.
        border: what positions outside read: a mode of `Pad`.
        sums: the type of the result; None: that of the operands.
    """

    window: Window
    groups: int = 1
    border: str = "constant"
    sums: str | None = None

    def shape(self, x: Shape, w: Shape, bias: Shape | None = None) -> Shape:
        """`[N, O, *spatial]` from `[N, groups C, *spatial]` and `[O, C, *k]`."""
        check_filter(x, w, self.groups, w[1] * self.groups)
        check_bias(bias, w[0])
        return (x[0], w[0], *self.window.results(x[2:]))

    def lower(self, ctx: Emitter, x: Operand, w: Operand, bias: Operand | None = None) -> relax.Expr:
        """`bias` has an element for each output channel, or one."""
        window = self.window
        result = self.shape(shape_of(x), shape_of(w), None if bias is None else shape_of(bias))
        if is_empty(shape_of(w)):  # no channels to sum over
            return _with_bias(ctx, ctx.expr(zeros(result, self.sums or dtype_of(x))), bias, window.rank)
        zero_padded = self.border == "constant" and is_known(*window.widths) and min(window.widths, default=0) >= 0
        if zero_padded and window.pads and window.skips(shape_of(x)[2:]):
            x, window = ctx.bound(_read(ctx, x, window, result[2:])), Window.of(window.size, window.size)
        if window.pads and not (zero_padded and self._is_native(x, w)):
            x = ctx.bound(Pad(_whole(window.padding), self.border).lower(ctx, x))
            window = window.unpadded()
        if not self._is_native(x, w):
            sums = ctx.compute(self._directly(window, result), x, w, name="convolution")
        else:
            sums = _CONVOLUTIONS[window.rank](
                ctx.expr(x),
                ctx.expr(w),
                strides=list(window.stride),
                padding=window.widths,
                dilation=list(window.dilation),
                groups=self.groups,
                **({} if self.sums in (None, dtype_of(x)) else {"out_dtype": self.sums}),
            )
            if is_known(*result):  # TVM takes a millisecond to infer the type
                relax.expr._update_type(sums, relax.TensorType(result, self.sums or dtype_of(x)))
        return _with_bias(ctx, sums, bias, window.rank)

    def _is_native(self, x: Operand, w: Operand) -> bool:
        """Returns whether passes know it: one to three spatial dimensions of float32, or of 8-bit integers summed in
        int32.
        """
        types = {dtype_of(x), dtype_of(w)}
        known = types == {"float32"} or (types <= set(_NARROW) and self.sums == "int32")
        return known and self.window.rank in _CONVOLUTIONS

    def _directly(self, window: Window, result: Shape) -> Callable[[te.Tensor, te.Tensor], te.Tensor]:
        """The computation for any rank and type, of a tensor that is padded already."""

        def convolution(x: te.Tensor, w: te.Tensor) -> te.Tensor:
            dtype = self.sums or str(x.dtype)
            work, inputs = accumulator(dtype), w.shape[1]
            channel = te.reduce_axis((0, inputs), "channel")
            taps = [te.reduce_axis((0, size), f"tap{axis}") for axis, size in enumerate(window.size)]

            def element(n: tirx.Var, o: tirx.Var, *index: tirx.Var) -> tirx.Expr:
                source = tirx.floordiv(o, tirx.floordiv(w.shape[0], self.groups)) * inputs + channel
                value = x(n, source, *window.positions(index, taps))
                return te.sum(value.astype(work) * w(o, channel, *taps).astype(work), axis=[channel, *taps])

            return converted(te.compute(result, element, name="convolution"), dtype)

        return convolution


def _read(ctx: Emitter, x: Operand, window: Window, counts: Shape) -> relax.Expr:
    """Return the elements that each window of `[N, C, *spatial]` reads, window after window; zeros outside of `x`."""
    sizes = shape_of(x)[2:]

    def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> tirx.Expr:
        axes = list(zip(index[2:], window.size, strict=True))
        positions = window.positions([tirx.floordiv(i, k) for i, k in axes], [tirx.floormod(i, k) for i, k in axes])
        inside, value = window.inside(positions, sizes, counts), tensors[0](*index[:2], *positions)
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, str(tensors[0].dtype))) if inside else value

    spatial = [count * size for count, size in zip(counts, window.size, strict=True)]
    return ctx.elements((*shape_of(x)[:2], *spatial), element, x, name="read")


def converted(sums: te.Tensor, dtype: str) -> te.Tensor:
    """Returns a tensor in an element type."""
    if str(sums.dtype) == dtype:
        return sums
    return te.compute(sums.shape, lambda *index: sums(*index).astype(dtype), name="narrow")


@dataclass(frozen=True)
class TransposedConvolution(Operator):
    """The transpose of a convolution: each input is added, times the filter, to the positions of its window.

    `y[n, g O + o, p] = b[g O + o] + sum over c, i, k with i stride + k dilation - before = p of
    x[n, g C + c, i] w[g C + c, o, k]`. ONNX `ConvTranspose`, NNEF `deconv`, `torch.nn.functional.conv_transpose2d`.

    Attributes:
        window: of the convolution that it transposes; its padding is cut off the result.
        groups: into how many parts the channels are divided.
        beyond: how far the result goes beyond the last window (ONNX, PyTorch: "output padding"); may be negative.
        border: what positions outside stand for: what reaches them is added to those that a mode of `Pad` reads there.
    """

    window: Window
    groups: int
    beyond: Shape
    border: str = "constant"

    def shape(self, x: Shape, w: Shape, bias: Shape | None = None) -> Shape:
        """`[N, groups O, *spatial]` from `[N, groups C, *spatial]` and `[groups C, O, *k]`."""
        check_filter(x, w, self.groups, w[0])
        check_bias(bias, w[1] * self.groups)
        spread = self.window.spread(x[2:])
        spatial = tuple(size + more for size, more in zip(spread, self.beyond, strict=True))
        if any(size < 0 for size in spatial):
            raise CompileError(f"the padding leaves nothing of the result: its spatial shape would be {list(spatial)}")
        return (x[0], w[1] * self.groups, *spatial)

    def lower(self, ctx: Emitter, x: Operand, w: Operand, bias: Operand | None = None) -> relax.Expr:
        """`bias` has an element for each output channel, or one."""
        check_bias(None if bias is None else shape_of(bias), shape_of(w)[1] * self.groups)
        if self.border == "constant" or not self.window.pads:
            return _with_bias(ctx, self._sums(ctx, x, w), bias, self.window.rank)
        # All that the windows write, or less where the result ends before them; then what is outside comes inside.
        whole = TransposedConvolution(self.window.unpadded(), self.groups, self.beyond)
        written = ctx.emit(whole.lower(ctx, x, w))
        folded = FoldPadding(_whole(self.window.padding), self.border).lower(ctx, written)
        return _with_bias(ctx, ctx.expr(folded), bias, self.window.rank)

    def _sums(self, ctx: Emitter, x: Operand, w: Operand) -> relax.Expr:
        window, result = self.window, self.shape(shape_of(x), shape_of(w))
        if is_empty(shape_of(w)):
            return ctx.expr(zeros(result, dtype_of(x)))
        native = window.rank in _TRANSPOSED and dtype_of(x) == dtype_of(w) == "float32"
        single = self.groups == 1 and all(step == 1 for step in window.dilation)
        usual = min(window.widths, default=0) >= 0 and all(
            0 <= more < stride for more, stride in zip(self.beyond, window.stride, strict=True)
        )
        divided = self.groups == 1 or is_known(shape_of(x)[1])  # TVM has to prove that groups divide the channels
        if native and usual and divided and (single or not isinstance(w, np.ndarray)):
            return _TRANSPOSED[window.rank](
                ctx.expr(x),
                ctx.expr(w),
                strides=list(window.stride),
                padding=window.widths,
                output_padding=list(self.beyond),
                dilation=list(window.dilation),
                groups=self.groups,
            )
        if native and isinstance(w, np.ndarray):
            return self._as_convolution(ctx, x, w)

        def gathered(x: te.Tensor, w: te.Tensor) -> te.Tensor:
            return gather_transposed(x, w, window, self.groups, result[2:], str(x.dtype))

        return ctx.compute(gathered, x, w, name="transposed_convolution")

    def _as_convolution(self, ctx: Emitter, x: Operand, w: Array) -> relax.Expr:
        """The convolution with the flipped filter of the input with zeros between its elements and around them."""
        inputs, outputs, *kernel = w.shape
        grouped = w.reshape(self.groups, inputs // self.groups, outputs, *kernel)
        flipped = np.flip(np.swapaxes(grouped, 1, 2), tuple(range(3, 3 + len(kernel))))
        filters = np.ascontiguousarray(flipped).reshape(self.groups * outputs, inputs // self.groups, *kernel)
        axes = zip(self.window.reach, self.window.padding, self.beyond, strict=True)
        around = tuple((reach - 1 - before, reach - 1 - after + more) for reach, (before, after), more in axes)
        window = Window.of(kernel, dilation=self.window.dilation, padding=around)
        return Convolution(window, self.groups).lower(ctx, _with_zeros_between(ctx, x, self.window.stride), filters)


def _with_zeros_between(ctx: Emitter, x: Operand, stride: Shape) -> Operand:
    """The input with `stride - 1` zeros between neighbours along each spatial dimension."""
    if all(step == 1 for step in stride):
        return x
    batch, channels, *sizes = shape_of(x)
    shape = (batch, channels, *[(size - 1) * step + 1 for size, step in zip(sizes, stride, strict=True)])

    def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        n, c, *position = index
        hit = [tirx.floormod(i, step) == 0 for i, step in zip(position, stride, strict=True) if step > 1]
        value = tensors[0](n, c, *[tirx.floordiv(i, step) for i, step in zip(position, stride, strict=True)])
        return tirx.if_then_else(tirx.all(*hit), value, tirx.const(0, dtype_of(x)))

    return ctx.emit(ctx.elements(shape, element, x, name="spread"))


def gather_transposed(
    x: te.Tensor, w: te.Tensor, window: Window, groups: int, outputs: Sequence[int], dtype: str
) -> te.Tensor:
    """A transposed convolution in which each result sums up what reaches it.

    Args:
        x: `[N, groups C, *spatial]`.
        w: `[groups C, O, *k]`.
        window: of the convolution that this one transposes; what comes after the tensor does not matter.
        outputs: the spatial sizes of the result.
        dtype: of the result; 16-bit floats are summed up in float32.

    Returns:
        `[N, groups O, *outputs]`.
    """
    batch, channels, *sizes = dimensions(x.shape)
    inputs, of_group = (expression(size) for size in (channels // groups, dimensions(w.shape)[1]))
    work = accumulator(dtype)
    channel = te.reduce_axis((0, inputs), "channel")
    taps = [te.reduce_axis((0, size), f"tap{axis}") for axis, size in enumerate(window.size)]

    def element(n: tirx.Var, o: tirx.Var, *index: tirx.Var) -> tirx.Expr:
        first = 0 if groups == 1 else tirx.floordiv(o, of_group) * inputs
        starts = [
            i + before - tap * step
            for i, before, tap, step in zip(index, window.before, taps, window.dilation, strict=True)
        ]
        inside: list[tirx.Expr] = []
        for start, length, stride in zip(starts, sizes, window.stride, strict=True):
            inside += [start >= 0, start < length * stride]
            inside += [tirx.floormod(start, stride) == 0] if stride > 1 else []
        positions = [tirx.floordiv(start, stride) for start, stride in zip(starts, window.stride, strict=True)]
        value = x(n, first + channel, *positions)
        if inside:
            value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, x.dtype))
        weight = w(first + channel, o if groups == 1 else tirx.floormod(o, of_group), *taps)
        return te.sum(value.astype(work) * weight.astype(work), axis=[channel, *taps])

    sums = te.compute((batch, groups * of_group, *outputs), element, name="transposed_convolution")
    return converted(sums, dtype)


@dataclass(frozen=True)
class DeformableConvolution(Operator):
    """A convolution whose taps read between the pixels, each at an offset of its own, weighted by an optional mask.

    ONNX `DeformConv`; Zhu et al., "Deformable ConvNets v2" (2018). What lies outside of the image counts as zero.

    Attributes:
        window: of two spatial dimensions.
        groups: into how many parts the channels are divided.
        offset_groups: into how many parts the input channels are divided that have offsets of their own.
    """

    window: Window
    groups: int = 1
    offset_groups: int = 1

    def shape(self, x: Shape, w: Shape, offset: Shape, bias: Shape | None = None, mask: Shape | None = None) -> Shape:
        """Return the convolution's shape; offsets are `[N, 2 offset_groups taps, *spatial]`, masks half as deep."""
        if len(x) != 4:
            raise CompileError(f"only two spatial dimensions are supported, the input is {list(x)}")
        if self.offset_groups < 1 or x[1] % self.offset_groups:
            raise CompileError(f"{self.offset_groups} offset groups do not divide the {x[1]} channels")
        result = Convolution(self.window, self.groups).shape(x, w, bias)
        channels = self.offset_groups * element_count(self.window.size)
        if not unify_shapes(offset, (x[0], 2 * channels, *result[2:])):
            raise CompileError(f"the offsets {list(offset)} do not fit the spatial shape {list(result[2:])}")
        if mask is not None and not unify_shapes(mask, (x[0], channels, *result[2:])):
            raise CompileError(f"the mask {list(mask)} does not fit the spatial shape {list(result[2:])}")
        return result

    def lower(
        self,
        ctx: Emitter,
        x: Operand,
        w: Operand,
        offset: Operand,
        bias: Operand | None = None,
        mask: Operand | None = None,
    ) -> relax.Expr:
        """First what every tap reads, then a product with the filter."""
        given = [None if tensor is None else shape_of(tensor) for tensor in (bias, mask)]
        result = self.shape(shape_of(x), shape_of(w), shape_of(offset), *given)
        columns = ctx.emit(self._columns(ctx, x, offset, mask, result[2:]))
        taps = element_count(self.window.size)
        # A product with the filter over channels and taps: a convolution whose window is all taps of one position.
        flat = ctx.reshaped(columns, (*shape_of(columns)[:3], element_count(result[2:])))
        filters = ctx.reshaped(w, (*shape_of(w)[:2], taps, 1))
        sums = ctx.emit(Convolution(Window.of((taps, 1)), self.groups).lower(ctx, flat, filters))
        return _with_bias(ctx, ctx.expr(ctx.reshaped(sums, result)), bias, 2)

    def _columns(self, ctx: Emitter, x: Operand, offset: Operand, mask: Operand | None, spatial: Shape) -> relax.Expr:
        """`[N, C, taps, *spatial]`: what every tap reads."""
        n_, c_, height, width = shape_of(x)
        window, dtype, per_group = self.window, dtype_of(x), c_ // self.offset_groups
        taps = element_count(window.size)

        def along(index: Any, tap: Any, axis: int, size: Dimension, moved: Any) -> Any:
            position = index * window.stride[axis] - window.before[axis] + tap * window.dilation[axis]
            # Far outside, positions are cut before they become integers: all of them read zero.
            high, low = expression(size + 1).astype(dtype), tirx.const(-2, dtype)
            return tirx.max(tirx.min(position.astype(dtype) + moved, high), low)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            x, offset = tensors[:2]
            n, c, tap, i, j = index
            channel = tirx.floordiv(c, per_group) * taps + tap
            y = along(i, tirx.floordiv(tap, window.size[1]), 0, height, offset(n, 2 * channel, i, j))
            z = along(j, tirx.floormod(tap, window.size[1]), 1, width, offset(n, 2 * channel + 1, i, j))
            y0, z0 = tirx.floor(y).astype("int32"), tirx.floor(z).astype("int32")
            dy, dz = y - tirx.floor(y), z - tirx.floor(z)
            one = tirx.const(1, dtype)

            def pixel(row: Any, column: Any) -> Any:
                inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
                return tirx.if_then_else(inside, x(n, c, row, column), tirx.const(0, dtype))

            upper = pixel(y0, z0) * (one - dz) + pixel(y0, z0 + 1) * dz
            lower = pixel(y0 + 1, z0) * (one - dz) + pixel(y0 + 1, z0 + 1) * dz
            value = upper * (one - dy) + lower * dy
            return value * tensors[2](n, channel, i, j) if mask is not None else value

        extra = [] if mask is None else [mask]
        return ctx.elements((n_, c_, taps, *spatial), element, x, offset, *extra, name="deformed")
