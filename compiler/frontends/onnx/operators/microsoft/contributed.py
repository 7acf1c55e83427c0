"""Unfused operators of onnxruntime's domain, and former experimental operators of the standard."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary, unary
from nnefc.frontends.onnx.operators.shapes_in_run import padded_in_run
from nnefc.frontends.onnx.operators.tensors import (
    fail,
    has_input,
    input_at,
    integers,
    known,
    normal_axis,
    optional_input,
    required_value,
    settled,
    spell,
)
from nnefc.operators.dtypes import numpy_dtype
from nnefc.operators.math.reduction import Sum
from nnefc.operators.math.signal import FourierTransform
from nnefc.operators.nn.activation import Softplus
from nnefc.operators.nn.contributed import (
    ComplexProduct,
    CropAndResize,
    Inverse,
    MurmurHash,
    NGramBlock,
)
from nnefc.operators.nn.experts import MixtureOfExperts
from nnefc.operators.tensor.data_dependent_selection import Unique
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.shape import Reshape, Slice, Squeeze, Unsqueeze

__all__: list[str] = []


def _number(ctx: Context, value: float, like: Value) -> Value:
    return known(ctx, np.array(value).astype(like.dtype))


# Shapes.


@operator("ExpandDims", since=(1,), domain=DOMAIN)
def _expand_dims(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    axis = normal_axis(node, int(required_value(ctx, node, 1, "axis").reshape(())[()]), x.rank + 1)
    return ctx.apply(Unsqueeze((axis,)), x)


@operator("Pad", since=(1,), domain=DOMAIN)
def _pad(ctx: Context, node: Node) -> Any:
    x, mode = input_at(node, 0), node.attributes["mode"]
    zero = known(ctx, np.zeros((), numpy_dtype(x.dtype)))
    fill = ctx.apply(Reshape(()), input_at(node, 2) if has_input(node, 2) else zero)
    made = padded_in_run(ctx, node, x, list(range(x.rank)), mode, fill)
    if made is not None:
        return made
    amounts = integers(ctx, node, 1, "pads") or []
    if len(amounts) != 2 * x.rank:
        raise fail(node, f"{len(amounts)} amounts do not pad a tensor of rank {x.rank}")
    return ctx.apply(Pad(tuple(zip(amounts[: x.rank], amounts[x.rank :], strict=True)), mode), x, fill)


@operator("Unique", since=(1,), domain=DOMAIN)
def _unique(ctx: Context, node: Node) -> list[Value]:
    """In the order of their first positions; where each element of the operand is among them, and how often it
    occurs."""
    values, _, positions, counts = ctx.apply(Unique(None, False), settled(ctx, input_at(node, 0)))
    return [values, positions, counts][: len(node.outputs)]


@operator("Crop", since=(1,))
def _crop(ctx: Context, node: Node) -> Any:
    """The image without its border, or of it what is of this size."""
    x, border, size = input_at(node, 0), node.attributes["border"], node.attributes.get("scale")
    if x.rank != 4 or len(border) != 4 or (size and len(size) != 2):
        raise fail(node, f"a border {spell(border)} does not fit {spell(x.shape)}")
    left, top, right, bottom = border
    height, width = size or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    return ctx.apply(Slice({2: (top, height, 1), 3: (left, width, 1)}), x)


# Elements.


@operator("Affine", since=(1,))
@operator("ImageScaler", since=(1,))
def _affine(ctx: Context, node: Node) -> Value:
    """Elements times a number, and another one added, of each channel one."""
    x, given = input_at(node, 0), node.attributes
    if node.op_type == "Affine":
        factor, added = given["alpha"], _number(ctx, given["beta"], x)
    else:
        bias = np.asarray(given.get("bias") or 0.0, np.float32).astype(x.dtype)
        factor, added = given["scale"], known(ctx, bias.reshape(-1, *[1] * (x.rank - 2)))
    return binary(ctx, "Add", binary(ctx, "Mul", x, _number(ctx, factor, x)), added)


@operator("ScaledTanh", since=(1,))
@operator("ParametricSoftplus", since=(1,))
def _scaled_activation(ctx: Context, node: Node) -> Value:
    """`alpha · f(beta x)`."""
    x = input_at(node, 0)
    inner = binary(ctx, "Mul", x, _number(ctx, node.attributes["beta"], x))
    made = unary(ctx, "Tanh", inner) if node.op_type == "ScaledTanh" else ctx.apply(Softplus(), inner)
    return binary(ctx, "Mul", made, _number(ctx, node.attributes["alpha"], x))


@operator("MurmurHash3", since=(1,), domain=DOMAIN)
def _murmur_hash(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    return ctx.apply(MurmurHash(node.attributes["seed"], bool(node.attributes["positive"]), x.dtype == "string"), x)


@operator("ComplexMul", since=(1,), domain=DOMAIN)
@operator("ComplexMulConj", since=(1,), domain=DOMAIN)
def _complex_mul(ctx: Context, node: Node) -> Any:
    return ctx.apply(ComplexProduct(node.op_type == "ComplexMulConj"), input_at(node, 0), input_at(node, 1))


@operator("Rfft", since=(1,), domain=DOMAIN)
@operator("Irfft", since=(1,), domain=DOMAIN)
def _real_transform(ctx: Context, node: Node) -> Any:
    """Lower transforms of the last axis: `[…, n]` to `[…, n / 2 + 1, 2]`, and back."""
    if node.attributes["signal_ndim"] != 1 or node.attributes["normalized"] or not node.attributes["onesided"]:
        raise fail(node, "only transforms of one dimension, onesided and not normalized, are supported")
    x = input_at(node, 0)
    if node.op_type == "Rfft":
        return ctx.apply(FourierTransform(x.rank - 1, onesided=True), ctx.apply(Unsqueeze((x.rank,)), x))
    made = ctx.apply(FourierTransform(x.rank - 2, inverse=True, onesided=True), x)
    return ctx.apply(Squeeze((x.rank - 1,)), made)


# Matrices.


@operator("Inverse", since=(1,), domain=DOMAIN)
def _inverse(ctx: Context, node: Node) -> Any:
    return ctx.apply(Inverse(), input_at(node, 0))


@operator("CDist", since=(1,), domain=DOMAIN)
def _distances(ctx: Context, node: Node) -> Any:
    """Between all rows of two matrices."""
    metric = node.attributes["metric"]
    if metric not in ("euclidean", "sqeuclidean"):
        raise fail(node, f"the metric '{metric}' is not supported, only 'euclidean' and 'sqeuclidean'")
    a, b = ctx.apply(Unsqueeze((1,)), input_at(node, 0)), ctx.apply(Unsqueeze((0,)), input_at(node, 1))
    difference = binary(ctx, "Sub", a, b)
    total = ctx.apply(Sum((2,)), binary(ctx, "Mul", difference, difference))
    return unary(ctx, "Sqrt", total) if metric == "euclidean" else total


@operator("MoE", since=(1,), domain=DOMAIN)
def _mixture_of_experts(ctx: Context, node: Node) -> Value:
    given = node.attributes
    if given["use_sparse_mixer"]:
        raise fail(node, "the sparse mixer is not supported")
    fused = given["swiglu_fusion"]
    if given["activation_type"] == "swiglu" and fused not in (1, 2) and not has_input(node, 6):
        raise fail(node, "'swiglu' without its second factor is not supported")
    experts = MixtureOfExperts(
        given["k"],
        given["activation_type"],
        bool(given["normalize_routing_weights"]),
        given["activation_alpha"],
        given["activation_beta"],
        given.get("swiglu_limit"),
        fused == 1,
    )
    x = input_at(node, 0)
    rows = ctx.apply(Reshape((x.shape[0] * x.shape[1], x.shape[2])), x) if x.rank == 3 else x
    made = ctx.apply(experts, rows, *(optional_input(node, i) for i in range(1, 8)))
    result: Value = ctx.apply(Reshape(x.shape), made)
    return result


# Detection and generation.


@operator("CropAndResize", since=(1,), domain=DOMAIN)
def _crop_and_resize(ctx: Context, node: Node) -> Any:
    height, width = integers(ctx, node, 3, "crop_size") or (0, 0)
    mode = node.attributes["mode"]
    if mode not in ("bilinear", "nearest"):
        raise fail(node, f"the mode '{mode}' is not supported")
    crop = CropAndResize((height, width), mode == "nearest", node.attributes["extrapolation_value"])
    return ctx.apply(crop, *(input_at(node, i) for i in range(3)))


@operator("NGramRepeatBlock", since=(1,), domain=DOMAIN)
def _ngram_repeat_block(ctx: Context, node: Node) -> Any:
    return ctx.apply(NGramBlock(node.attributes["ngram_size"]), input_at(node, 0), input_at(node, 1))
