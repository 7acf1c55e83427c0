"""Conv, ConvTranspose, DeformConv, and the windows that node attributes describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import fail, input_at, optional_input, shape_of, spell
from nnefc.operators.nn.convolution import Convolution, DeformableConvolution, TransposedConvolution, check_ranks
from nnefc.operators.nn.window import Window, same_padding
from nnefc.symbolic.dims import ceil_div
from nnefc.symbolic.unification import covers, unify_shapes

__all__ = ["convolve", "kernel_shape", "make_window", "spatial_attribute"]

_AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def spatial_attribute(node: Node, name: str, count: int, default: int, minimum: int) -> tuple[int, ...]:
    """An attribute with `count` elements, each at least `minimum`.

    Raises:
        CompileError: it has another number of elements, or too small ones.
    """
    given = node.attributes.get(name)
    elements = tuple(given) if given else (default,) * count
    if len(elements) != count:
        raise fail(node, f"'{name}' has {len(elements)} elements, not {count}")
    if any(element < minimum for element in elements):
        raise fail(node, f"'{name}' {spell(elements)} has an element below {minimum}")
    return elements


def make_window(node: Node, size: Sequence[int], sizes: Sequence[int]) -> Window:
    """The window that a node's attributes describe over spatial dimensions of these sizes.

    Raises:
        CompileError: the attributes contradict each other or the shapes.
    """
    rank = len(sizes)
    strides = spatial_attribute(node, "strides", rank, 1, 1)
    dilations = spatial_attribute(node, "dilations", rank, 1, 1)
    auto_pad = node.attributes.get("auto_pad") or "NOTSET"
    if auto_pad not in _AUTO_PAD:
        raise fail(node, f"'auto_pad' is '{auto_pad}', not one of {', '.join(_AUTO_PAD)}")
    pads = spatial_attribute(node, "pads", 2 * rank, 0, 0)
    before, after = pads[:rank], pads[rank:]
    window = Window(tuple(size), strides, dilations, tuple(zip(before, after, strict=True)))
    if auto_pad == "VALID":
        return window.unpadded()
    if auto_pad.startswith("SAME"):
        results = [ceil_div(length, stride) for length, stride in zip(sizes, strides, strict=True)]
        return window.padded(same_padding(window, sizes, results, upper=auto_pad == "SAME_UPPER"))
    return window


def kernel_shape(node: Node, filter_shape: Sequence[int]) -> tuple[int, ...]:
    """The filter's spatial sizes; the attribute, where it is given, must agree."""
    given, actual = node.attributes.get("kernel_shape"), tuple(filter_shape[2:])
    if given and not unify_shapes(actual, given):
        raise fail(node, f"'kernel_shape' is {spell(given)}, the filter has {spell(actual)}")
    return actual


@operator("Conv", since=(1, 11, 22))
def _conv(ctx: Context, node: Node) -> Any:
    return convolve(ctx, node, input_at(node, 0), input_at(node, 1), optional_input(node, 2))


def convolve(ctx: Context, node: Node, x: Value, w: Value, bias: Value | None) -> Value:
    """A convolution as the node's attributes describe it."""
    check_ranks(shape_of(x), shape_of(w), 3)
    window = make_window(node, kernel_shape(node, shape_of(w)), shape_of(x)[2:])
    made: Value = ctx.apply(Convolution(window, node.attributes["group"]), x, w, bias)
    return made


@operator("ConvTranspose", since=(1, 11, 22))
def _conv_transpose(ctx: Context, node: Node) -> Any:
    x, w, bias = input_at(node, 0), input_at(node, 1), optional_input(node, 2)
    x_shape, w_shape = shape_of(x), shape_of(w)
    groups = node.attributes["group"]
    check_ranks(x_shape, w_shape, 3)
    window, sizes = _transposed_window(node, kernel_shape(node, w_shape), x_shape[2:])
    spread = window.spread(x_shape[2:])
    beyond = tuple(size - whole for size, whole in zip(sizes, spread, strict=True))
    return ctx.apply(TransposedConvolution(window, groups, beyond), x, w, bias)


def _transposed_window(node: Node, size: Sequence[int], lengths: Sequence[int]) -> tuple[Window, tuple[int, ...]]:
    """The window of the convolution that this one transposes, and the sizes of the result."""
    rank = len(lengths)
    strides = spatial_attribute(node, "strides", rank, 1, 1)
    dilations = spatial_attribute(node, "dilations", rank, 1, 1)
    extra = spatial_attribute(node, "output_padding", rank, 0, 0)
    auto_pad = node.attributes.get("auto_pad") or "NOTSET"
    if auto_pad not in _AUTO_PAD:
        raise fail(node, f"'auto_pad' is '{auto_pad}', not one of {', '.join(_AUTO_PAD)}")
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    full = [(e - 1) * s + r + o for e, s, r, o in zip(lengths, strides, reach, extra, strict=True)]
    wanted = node.attributes.get("output_shape")
    if wanted or auto_pad.startswith("SAME"):
        target = tuple(wanted)[-rank:] if wanted else tuple(e * s for e, s in zip(lengths, strides, strict=True))
        if len(target) != rank or not all(covers(length, 1) for length in target):
            raise fail(node, f"'output_shape' {spell(target)} needs {rank} positive sizes")
        totals = [f - t for f, t in zip(full, target, strict=True)]
        upper = auto_pad == "SAME_UPPER"
        less = [total // 2 for total in totals]
        more = [total - half for total, half in zip(totals, less, strict=True)]
        before, after = (less, more) if upper else (more, less)
    else:
        pads = (0,) * (2 * rank) if auto_pad == "VALID" else spatial_attribute(node, "pads", 2 * rank, 0, 0)
        before, after = list(pads[:rank]), list(pads[rank:])
        target = tuple(f - b - a for f, b, a in zip(full, before, after, strict=True))
        if not all(covers(length, 0) for length in target):
            raise fail(node, f"the padding {spell(pads)} leaves nothing of {spell(full)}")
    return Window(tuple(size), strides, dilations, tuple(zip(before, after, strict=True))), target


@operator("DeformConv", since=(19, 22))
def _deform_conv(ctx: Context, node: Node) -> Any:
    x, w, offset = (input_at(node, i) for i in range(3))
    check_ranks(shape_of(x), shape_of(w), 3)
    window = make_window(node, kernel_shape(node, shape_of(w)), shape_of(x)[2:])
    convolution = DeformableConvolution(window, node.attributes["group"], node.attributes["offset_group"])
    return ctx.apply(convolution, x, w, offset, optional_input(node, 3), optional_input(node, 4))
