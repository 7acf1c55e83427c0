"""Sums and writes at the positions of windows: MaxUnpool, Col2Im."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.convolution import spatial_attribute
from nnefc.frontends.onnx.operators.tensors import fail, has_input, input_at, integers, shape_of
from nnefc.operators.nn.unpooling import Fold, MaxUnpool
from nnefc.operators.nn.window import Window
from nnefc.symbolic.unification import unify_shapes

__all__: list[str] = []


@operator("MaxUnpool", since=(9, 11, 22))
def _max_unpool(ctx: Context, node: Node) -> Any:
    x, index = input_at(node, 0), input_at(node, 1)
    shape = shape_of(x)
    rank = len(shape) - 2
    size = spatial_attribute(node, "kernel_shape", rank, 1, 1)
    pads = spatial_attribute(node, "pads", 2 * rank, 0, 0)
    padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    inferred = Window.of(size, spatial_attribute(node, "strides", rank, 1, 1), padding=padding).spread(shape[2:])
    given = tuple(integers(ctx, node, 2, "output_shape") or ()) if has_input(node, 2) else ()
    # Indices count in the shape without `output_shape`, as in ONNX's tests, unless a pooling made them for it.
    sizes = given[2:] if given and index.indexed and unify_shapes(index.indexed, given) else inferred
    return ctx.apply(MaxUnpool(sizes, given or (*shape[:2], *inferred)), x, index)


@operator("Col2Im", since=(18,))
def _col2im(ctx: Context, node: Node) -> Any:
    image, block = integers(ctx, node, 1, "image_shape") or [], integers(ctx, node, 2, "block_shape") or []
    rank = len(image)
    pads = list(node.attributes.get("pads") or [0] * (2 * rank))
    strides = list(node.attributes.get("strides") or [1] * rank)
    dilations = list(node.attributes.get("dilations") or [1] * rank)
    if not len(block) == len(strides) == len(dilations) == len(pads) // 2 == rank or min([*strides, *block]) < 1:
        raise fail(node, "the attributes and the shapes of image and block do not fit each other")
    window = Window.of(block, strides, dilations, tuple(zip(pads[:rank], pads[rank:], strict=True)))
    return ctx.apply(Fold(window, tuple(image)), input_at(node, 0))
