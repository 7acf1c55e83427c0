"""Convolutions and their transposes: Conv, ConvTranspose, and the windows that they share with poolings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import (
    compute,
    dtype_of,
    fail,
    has_input,
    input_at,
    reshaped,
    shape_of,
    single,
    spell,
)

__all__ = ["CONVOLUTIONS", "Window", "convolve", "make_window"]

CONVOLUTIONS = {3: relax.op.nn.conv1d, 4: relax.op.nn.conv2d, 5: relax.op.nn.conv3d}
_CONV_TRANSPOSE = {3: relax.op.nn.conv1d_transpose, 4: relax.op.nn.conv2d_transpose, 5: relax.op.nn.conv3d_transpose}
_AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True)
class Window:
    """How a window slides over the spatial dimensions; one item per dimension in each."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """The extent that a window covers, dilation included."""
        return tuple((size - 1) * dilation + 1 for size, dilation in zip(self.size, self.dilation, strict=True))

    @property
    def padding(self) -> list[int]:
        """Relax's order: all amounts before, then all amounts after."""
        return [*self.before, *self.after]

    def outputs(self, extents: Sequence[int]) -> tuple[int, ...]:
        """How often the window fits each dimension."""
        axes = zip(extents, self.before, self.after, self.reach, self.stride, strict=True)
        return tuple((extent + b + a - reach) // stride + 1 for extent, b, a, reach, stride in axes)


def spatial_attribute(node: Node, name: str, count: int, default: int, least: int) -> tuple[int, ...]:
    """An attribute with `count` items, each at least `least`.

    Raises:
        CompileError: it has another number of items, or too small ones.
    """
    given = node.attributes.get(name)
    items = tuple(given) if given else (default,) * count
    if len(items) != count:
        raise fail(node, f"'{name}' has {len(items)} items, not {count}")
    if any(item < least for item in items):
        raise fail(node, f"'{name}' {spell(items)} has an item below {least}")
    return items


def make_window(node: Node, size: Sequence[int], extents: Sequence[int]) -> Window:
    """The window that a node's attributes describe over spatial dimensions of these extents.

    Raises:
        CompileError: the attributes contradict each other or the shapes.
    """
    rank = len(extents)
    strides = spatial_attribute(node, "strides", rank, 1, 1)
    dilations = spatial_attribute(node, "dilations", rank, 1, 1)
    auto_pad = node.attributes.get("auto_pad", "NOTSET")
    if auto_pad not in _AUTO_PAD:
        raise fail(node, f"'auto_pad' is '{auto_pad}', not one of {', '.join(_AUTO_PAD)}")
    pads = spatial_attribute(node, "pads", 2 * rank, 0, 0)
    if auto_pad == "VALID":
        pads = (0,) * (2 * rank)
    before, after = pads[:rank], pads[rank:]
    if auto_pad.startswith("SAME"):
        axes = zip(extents, strides, size, dilations, strict=True)
        totals = [max((-(-e // s) - 1) * s + (k - 1) * d + 1 - e, 0) for e, s, k, d in axes]
        less = tuple(total // 2 for total in totals)
        more = tuple(total - half for total, half in zip(totals, less, strict=True))
        before, after = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    return Window(tuple(size), strides, dilations, before, after)


def kernel_shape(node: Node, filter_shape: Sequence[int]) -> tuple[int, ...]:
    """The filter's spatial extents; the attribute, where it is given, must agree."""
    given, actual = node.attributes.get("kernel_shape"), tuple(filter_shape[2:])
    if given and tuple(given) != actual:
        raise fail(node, f"'kernel_shape' is {spell(given)}, the filter has {spell(actual)}")
    return actual


def check_convolution(node: Node, x: Sequence[int], w: Sequence[int]) -> int:
    """The number of groups, after a look at the shapes of input and filter.

    Raises:
        CompileError: they do not fit each other.
    """
    groups = node.attributes["group"]
    if len(x) < 3 or len(x) != len(w):
        raise fail(node, f"the input {spell(x)} and the filter {spell(w)} must have one rank of at least 3")
    if groups < 1 or w[1] * groups != x[1] or w[0] % groups:
        what = f"the filter {spell(w)} in {groups} group{'s' if groups != 1 else ''} does not fit the input {spell(x)}"
        hint = None
        if x[-1] == w[1] * groups:
            wanted = spell((x[0], x[-1], *x[1:-1]))
            hint = f"it would fit with the channels before rows and columns, as ONNX has them: {wanted}"
        raise fail(node, what, hint)
    return int(groups)


def check_fits(node: Node, window: Window, extents: Sequence[int]) -> tuple[int, ...]:
    """The spatial extents of the result.

    Raises:
        CompileError: the window is larger than the padded input.
    """
    result = window.outputs(extents)
    if any(extent < 1 for extent in result):
        raise fail(node, f"a window of {spell(window.reach)} does not fit into {spell(extents)} and its padding")
    return result


@operator("Conv", since=(1, 11, 22))
def _conv(ctx: Context, node: Node) -> Value:
    x, w = input_at(node, 0), input_at(node, 1)
    groups = check_convolution(node, shape_of(x), shape_of(w))
    window = make_window(node, kernel_shape(node, shape_of(w)), shape_of(x)[2:])
    check_fits(node, window, shape_of(x)[2:])
    sum_ = convolve(ctx, x, w, window, groups)
    return _add_bias(ctx, node, sum_)


def convolve(ctx: Context, x: Value, w: Value, window: Window, groups: int) -> Value:
    """A convolution without bias, in the types of its operands."""
    if len(shape_of(x)) in CONVOLUTIONS and dtype_of(x) == "float32":
        return convolve_as(ctx, x, w, window, groups, "float32")
    return convolve_directly(ctx, x, w, window, groups, dtype_of(x))


def convolve_as(ctx: Context, x: Value, w: Value, window: Window, groups: int, dtype: str) -> Value:
    """Relax's convolution in one to three dimensions, with sums of the type `dtype`."""
    return ctx.emit(
        CONVOLUTIONS[len(shape_of(x))](
            ctx.expr(x),
            ctx.expr(w),
            strides=list(window.stride),
            padding=window.padding,
            dilation=list(window.dilation),
            groups=groups,
            out_dtype=dtype,
        )
    )


def convolve_directly(
    ctx: Context, x: Value, w: Value, window: Window, groups: int, dtype: str, name: str = "convolution"
) -> Value:
    """A convolution over any number of spatial dimensions with sums in `dtype` (half floats: in float32)."""
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    x_shape, w_shape = shape_of(x), shape_of(w)
    padded = [e + b + a for e, b, a in zip(x_shape[2:], window.before, window.after, strict=True)]
    per_group = w_shape[0] // groups

    def function(x: Any, w: Any) -> Any:
        def pad(n: Any, c: Any, *index: Any) -> Any:
            places = [i - b for i, b in zip(index, window.before, strict=True)]
            axes = zip(places, x_shape[2:], window.before, window.after, strict=True)
            inside = [test for p, e, b, a in axes for test in ([p >= 0] if b else []) + ([p < e] if a else [])]
            item = x(n, c, *places).astype(work)
            return tirx.if_then_else(tirx.all(*inside), item, tirx.const(0, work)) if inside else item

        source = te.compute((*x_shape[:2], *padded), pad, name="pad")
        channel = te.reduce_axis((0, w_shape[1]), "channel")
        offsets = [te.reduce_axis((0, size), f"offset{axis}") for axis, size in enumerate(window.size)]

        def item(n: Any, o: Any, *index: Any) -> Any:
            axes = zip(index, window.stride, offsets, window.dilation, strict=True)
            places = [i * s + k * d for i, s, k, d in axes]
            group = tirx.floordiv(o, per_group)
            product = source(n, group * w_shape[1] + channel, *places) * w(o, channel, *offsets).astype(work)
            return te.sum(product, axis=[channel, *offsets])

        sums = te.compute((x_shape[0], w_shape[0], *window.outputs(x_shape[2:])), item, name=name)
        return sums if work == dtype else te.compute(sums.shape, lambda *i: sums(*i).astype(dtype), name="narrow")

    return single(ctx, function, x, w, name=name)


def _add_bias(ctx: Context, node: Node, sum_: Value) -> Value:
    if not has_input(node, 2):
        return sum_
    bias = input_at(node, 2)
    shape = shape_of(sum_)
    if shape_of(bias) != (shape[1],):
        raise fail(node, f"the bias {spell(shape_of(bias))} should be [{shape[1]}]")
    aligned = reshaped(ctx, bias, (1, shape[1], *[1] * (len(shape) - 2)))
    return ctx.emit(relax.op.add(ctx.expr(sum_), ctx.expr(aligned)))


@operator("ConvTranspose", since=(1, 11, 22))
def _conv_transpose(ctx: Context, node: Node) -> Value:
    """Gathered: each output adds the products of those inputs whose window covers it."""
    x, w = input_at(node, 0), input_at(node, 1)
    x_shape, w_shape = shape_of(x), shape_of(w)
    groups = node.attributes["group"]
    if len(x_shape) < 3 or len(x_shape) != len(w_shape):
        raise fail(node, f"the input {spell(x_shape)} and the filter {spell(w_shape)} must have one rank of at least 3")
    if groups < 1 or w_shape[0] != x_shape[1] or x_shape[1] % groups:
        raise fail(node, f"the filter {spell(w_shape)} in {groups} groups does not fit the input {spell(x_shape)}")
    window, extents = _transposed_window(node, kernel_shape(node, w_shape), x_shape[2:])
    beyond = _output_padding(window, x_shape[2:], extents)
    plain = all(amount >= 0 for amount in window.padding)
    plain &= all(0 <= amount < stride for amount, stride in zip(beyond, window.stride, strict=True))
    if not plain or len(x_shape) not in _CONV_TRANSPOSE or dtype_of(x) != "float32":
        return _add_bias(ctx, node, _transposed(ctx, x, w, window, groups, extents))
    sum_ = _CONV_TRANSPOSE[len(x_shape)](
        ctx.expr(x),
        ctx.expr(w),
        strides=list(window.stride),
        padding=window.padding,
        output_padding=beyond,
        dilation=list(window.dilation),
        groups=groups,
    )
    return _add_bias(ctx, node, ctx.emit(sum_))


def _output_padding(window: Window, extents: Sequence[int], results: Sequence[int]) -> list[int]:
    """How far the result goes beyond the last window."""
    axes = zip(results, extents, window.stride, window.reach, window.before, window.after, strict=True)
    return [out - ((e - 1) * s + r - b - a) for out, e, s, r, b, a in axes]


def _transposed_window(node: Node, size: Sequence[int], extents: Sequence[int]) -> tuple[Window, tuple[int, ...]]:
    """The window of the convolution that this one transposes, and the extents of the result."""
    rank = len(extents)
    strides = spatial_attribute(node, "strides", rank, 1, 1)
    dilations = spatial_attribute(node, "dilations", rank, 1, 1)
    extra = spatial_attribute(node, "output_padding", rank, 0, 0)
    auto_pad = node.attributes.get("auto_pad", "NOTSET")
    if auto_pad not in _AUTO_PAD:
        raise fail(node, f"'auto_pad' is '{auto_pad}', not one of {', '.join(_AUTO_PAD)}")
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    full = [(e - 1) * s + r + o for e, s, r, o in zip(extents, strides, reach, extra, strict=True)]
    wanted = node.attributes.get("output_shape")
    if wanted or auto_pad.startswith("SAME"):
        target = tuple(wanted)[-rank:] if wanted else tuple(e * s for e, s in zip(extents, strides, strict=True))
        if len(target) != rank or any(extent < 1 for extent in target):
            raise fail(node, f"'output_shape' {spell(target)} needs {rank} positive extents")
        totals = [f - t for f, t in zip(full, target, strict=True)]
        upper = auto_pad == "SAME_UPPER"
        less = [total // 2 for total in totals]
        more = [total - half for total, half in zip(totals, less, strict=True)]
        before, after = (less, more) if upper else (more, less)
    else:
        pads = (0,) * (2 * rank) if auto_pad == "VALID" else spatial_attribute(node, "pads", 2 * rank, 0, 0)
        before, after = list(pads[:rank]), list(pads[rank:])
        target = tuple(f - b - a for f, b, a in zip(full, before, after, strict=True))
        if any(extent < 0 for extent in target):
            raise fail(node, f"the padding {spell(pads)} leaves nothing of {spell(full)}")
    return Window(tuple(size), strides, dilations, tuple(before), tuple(after)), target


def _transposed(ctx: Context, x: Value, w: Value, window: Window, groups: int, extents: Sequence[int]) -> Value:
    x_shape, w_shape, dtype = shape_of(x), shape_of(w), dtype_of(x)
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    inputs, outputs = x_shape[1] // groups, w_shape[1]

    def function(x: Any, w: Any) -> Any:
        channel = te.reduce_axis((0, inputs), "channel")
        offsets = [te.reduce_axis((0, size), f"offset{axis}") for axis, size in enumerate(window.size)]

        def item(n: Any, o: Any, *index: Any) -> Any:
            places, inside = [], []
            axes = zip(index, offsets, x_shape[2:], window.stride, window.dilation, window.before, strict=True)
            for i, offset, extent, stride, dilation, before in axes:
                position = i + before - offset * dilation
                place = tirx.floordiv(position, stride)
                inside += [position >= 0, place < extent]
                if stride > 1:
                    inside.append(tirx.floormod(position, stride) == 0)
                places.append(place)
            source = tirx.floordiv(o, outputs) * inputs + channel
            product = x(n, source, *places).astype(work) * w(source, tirx.floormod(o, outputs), *offsets).astype(work)
            return te.sum(tirx.if_then_else(tirx.all(*inside), product, tirx.const(0, work)), axis=[channel, *offsets])

        shape = (x_shape[0], outputs * groups, *extents)
        sums = te.compute(shape, item, name="convolution_transposed")
        return sums if work == dtype else te.compute(shape, lambda *i: sums(*i).astype(dtype), name="narrow")

    return single(ctx, function, x, w, name="convolution_transposed")


@operator("DeformConv", since=(19, 22))
def _deform_conv(ctx: Context, node: Node) -> Value:
    """Each tap reads at its own place between the pixels, weighted by the optional mask."""
    x, w, offset = (input_at(node, i) for i in range(3))
    x_shape, w_shape = shape_of(x), shape_of(w)
    groups, offset_groups = check_convolution(node, x_shape, w_shape), node.attributes["offset_group"]
    if len(x_shape) != 4:
        raise fail(node, f"only two spatial dimensions are supported, the input is {spell(x_shape)}")
    if offset_groups < 1 or x_shape[1] % offset_groups:
        raise fail(node, f"{offset_groups} offset groups do not divide the {x_shape[1]} channels")
    window = make_window(node, kernel_shape(node, w_shape), x_shape[2:])
    extents = check_fits(node, window, x_shape[2:])
    taps = window.size[0] * window.size[1]
    if shape_of(offset) != (x_shape[0], offset_groups * taps * 2, *extents):
        raise fail(node, f"the offsets {spell(shape_of(offset))} do not fit the output extents {spell(extents)}")
    mask = [input_at(node, 4)] if has_input(node, 4) else []
    if mask and shape_of(mask[0]) != (x_shape[0], offset_groups * taps, *extents):
        raise fail(node, f"the mask {spell(shape_of(mask[0]))} does not fit the output extents {spell(extents)}")
    columns = _deformed(ctx, x, offset, mask, window, offset_groups, extents)
    sum_ = _weighted_taps(ctx, columns, w, groups, extents)
    if not has_input(node, 3):
        return sum_
    bias = reshaped(ctx, input_at(node, 3), (1, w_shape[0], 1, 1))
    return ctx.emit(relax.op.add(ctx.expr(sum_), ctx.expr(bias)))


def _deformed(
    ctx: Context, x: Value, offset: Value, mask: list[Value], window: Window, groups: int, extents: Sequence[int]
) -> Value:
    """`[N, C, taps, H', W']`: what every tap reads."""
    n_, c_, height, width = shape_of(x)
    taps, per_group, dtype = window.size[0] * window.size[1], c_ // groups, dtype_of(x)

    def item(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        x, offset = tensors[:2]
        n, c, tap, i, j = index
        group = tirx.floordiv(c, per_group)
        channel = (group * taps + tap) * 2
        ky, kx = tirx.floordiv(tap, window.size[1]), tirx.floormod(tap, window.size[1])
        y = (i * window.stride[0] - window.before[0] + ky * window.dilation[0]).astype(dtype) + offset(n, channel, i, j)
        z = (j * window.stride[1] - window.before[1] + kx * window.dilation[1]).astype(dtype) + offset(
            n, channel + 1, i, j
        )
        # Far outside, positions are cut before they become integers: all of them read zero.
        y = tirx.max(tirx.min(y, tirx.const(height + 1, dtype)), tirx.const(-2, dtype))
        z = tirx.max(tirx.min(z, tirx.const(width + 1, dtype)), tirx.const(-2, dtype))
        y0, z0 = tirx.floor(y).astype("int32"), tirx.floor(z).astype("int32")
        dy, dz = y - tirx.floor(y), z - tirx.floor(z)
        one = tirx.const(1, dtype)

        def pixel(row: Any, column: Any) -> Any:
            inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
            return tirx.if_then_else(inside, x(n, c, row, column), tirx.const(0, dtype))

        upper = pixel(y0, z0) * (one - dz) + pixel(y0, z0 + 1) * dz
        lower = pixel(y0 + 1, z0) * (one - dz) + pixel(y0 + 1, z0 + 1) * dz
        value = upper * (one - dy) + lower * dy
        return value * tensors[2](n, group * taps + tap, i, j) if mask else value

    return compute(ctx, (n_, c_, taps, *extents), item, x, offset, *mask, name="deformed")


def _weighted_taps(ctx: Context, columns: Value, w: Value, groups: int, extents: Sequence[int]) -> Value:
    filters, inputs = shape_of(w)[:2]
    batch, taps, width = shape_of(columns)[0], shape_of(columns)[2], shape_of(w)[3]

    def function(columns: Any, w: Any) -> Any:
        channel, tap = te.reduce_axis((0, inputs), "channel"), te.reduce_axis((0, taps), "tap")

        def item(n: Any, o: Any, i: Any, j: Any) -> Any:
            source = tirx.floordiv(o, filters // groups) * inputs + channel
            weight = w(o, channel, tirx.floordiv(tap, width), tirx.floormod(tap, width))
            return te.sum(columns(n, source, tap, i, j) * weight, axis=[channel, tap])

        return te.compute((batch, filters, *extents), item, name="deformable_convolution")

    return single(ctx, function, columns, w, name="deformable_convolution")
