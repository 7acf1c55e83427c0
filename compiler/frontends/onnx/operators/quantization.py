"""Quantization: ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul, QuantizeLinear, DequantizeLinear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import converted, element_type
from nnefc.frontends.onnx.operators.convolution import kernel_shape, make_window
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.tensors import (
    channels_first,
    channels_last,
    dtype_of,
    fail,
    input_at,
    normal_axis,
    optional_input,
    shape_of,
    spell,
)
from nnefc.operators.math.elementwise import Clip, Elementwise, broadcast_shapes
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.nn.block_quantization import BlockDequantization, in_blocks
from nnefc.operators.nn.convolution import check_ranks
from nnefc.operators.nn.float8_quantization import Float8Dequantization, Float8Quantization
from nnefc.operators.nn.quantization import (
    RANGES,
    Dequantization,
    DynamicQuantization,
    IntegerConvolution,
    IntegerProduct,
    Quantization,
    Quotients,
    Requantization,
)
from nnefc.operators.tensor.shape import Reshape
from nnefc.support.element_types import FLOAT8
from nnefc.symbolic.dims import element_count
from nnefc.symbolic.unification import unify_dims, unify_repeated

__all__ = ["integer_product"]


@operator("ConvInteger", since=(10,))
def _conv_integer(ctx: Context, node: Node) -> Value:
    return _convolution(ctx, node, (0, 1, 2, 3))


def _convolution(ctx: Context, node: Node, positions: tuple[int, int, int, int], bias: Value | None = None) -> Value:
    """The sums of the inputs at these positions: `x`, `w`, and their zero points."""
    x, w = (input_at(node, position) for position in positions[:2])
    zeros = [optional_input(node, position) for position in positions[2:]]
    check_ranks(shape_of(x), shape_of(w), 3)
    window = make_window(node, kernel_shape(node, shape_of(w)), shape_of(x)[2:])
    made: Value = ctx.apply(IntegerConvolution(window, node.attributes["group"]), x, w, *zeros, bias)
    return made


@operator("QLinearConv", since=(1,), domain=DOMAIN)
def _qlinear_conv_of_layouts(ctx: Context, node: Node) -> Value:
    """Lower a convolution with channels first or last; the filter is as in the standard."""
    if not node.attributes["channels_last"]:
        return _requantized_convolution(ctx, node)
    first = replace(node, operands=(channels_first(ctx, input_at(node, 0)), *node.operands[1:]))
    return channels_last(ctx, _requantized_convolution(ctx, first))


@operator("QLinearConv", since=(10,))
def _qlinear_conv(ctx: Context, node: Node) -> Value:
    return _requantized_convolution(ctx, node)


def _requantized_convolution(ctx: Context, node: Node) -> Value:
    sums = _convolution(ctx, node, (0, 3, 2, 5), optional_input(node, 8))
    x_scale, w_scale, y_scale, y_zero = (input_at(node, i) for i in (1, 4, 6, 7))
    channels, count = shape_of(sums)[1], element_count(shape_of(w_scale))
    if not unify_repeated(count, channels):
        raise fail(node, f"the filter's scale {spell(shape_of(w_scale))} should be a scalar or [{channels}]")
    scales = (
        ctx.apply(Reshape(()), x_scale),
        ctx.apply(Reshape(() if count == 1 else (1, count, *[1] * (sums.rank - 2))), w_scale),
        ctx.apply(Reshape(()), y_scale),
    )
    return _requantized(ctx, node, sums, scales, ctx.apply(Reshape(()), y_zero))


@operator("MatMulInteger", since=(10,))
def _matmul_integer(ctx: Context, node: Node) -> Value:
    return integer_product(ctx, node, (0, 1, 2, 3))


def integer_product(ctx: Context, node: Node, positions: tuple[int, int, int, int]) -> Value:
    """The sums of the inputs at these positions: both matrices and their zero points, of rows and of columns."""
    a, b = (input_at(node, position) for position in positions[:2])
    a_zero, b_zero = (optional_input(node, position) for position in positions[2:])
    rows = None if a_zero is None else _along(ctx, node, a_zero, a, -2)
    columns = None if b_zero is None else _along(ctx, node, b_zero, b, -1)
    made: Value = ctx.apply(IntegerProduct(), a, b, rows, columns)
    return made


def _along(ctx: Context, node: Node, x: Value, matrix: Value, axis: int) -> Any:
    """Reshapes a zero point or scale to broadcast: a vector goes along an axis of the matrix."""
    shape, rank = shape_of(x), matrix.rank
    if math.prod(shape) == 1:
        return ctx.apply(Reshape(()), x)
    if len(shape) == 1 and rank >= 2:
        if not unify_dims(shape[0], shape_of(matrix)[axis]):
            raise fail(node, f"{spell(shape)} does not fit the matrix {spell(shape_of(matrix))}")
        return ctx.apply(Reshape((shape[0], 1) if axis == -2 else (1, shape[0])), x)
    broadcast_shapes(shape, shape_of(matrix))
    return x


@operator("QLinearMatMul", since=(10, 21))
def _qlinear_matmul(ctx: Context, node: Node) -> Value:
    if any(dtype_of(input_at(node, position)) not in RANGES for position in (0, 3, 7)):
        return _product_of_narrow_floats(ctx, node)
    sums = integer_product(ctx, node, (0, 3, 2, 5))
    factors = ((1, input_at(node, 0), -2), (4, input_at(node, 3), -1), (6, sums, -2))
    scales = [_along(ctx, node, input_at(node, position), matrix, axis) for position, matrix, axis in factors]
    return _requantized(ctx, node, sums, scales, _along(ctx, node, input_at(node, 7), sums, -2))


def _product_of_narrow_floats(ctx: Context, node: Node) -> Value:
    """The same of floats of 8 bits: their sums are no integers."""
    factors = []
    for position, axis in ((0, -2), (3, -1)):
        matrix = input_at(node, position)
        scale, zero = (_along(ctx, node, input_at(node, position + more), matrix, axis) for more in (1, 2))
        distance = binary(ctx, "Sub", *(converted(ctx, part, "float32") for part in (matrix, zero)))
        factors.append(binary(ctx, "Mul", distance, converted(ctx, scale, "float32")))
    product: Value = ctx.apply(MatMul(), *factors)
    scale, zero = (_along(ctx, node, input_at(node, position), product, -2) for position in (6, 7))
    quotient = binary(ctx, "Div", product, converted(ctx, scale, "float32"))
    limits = RANGES.get(dtype_of(zero))
    if limits is not None:
        quotient = ctx.apply(Elementwise("round"), quotient)
    shifted = binary(ctx, "Add", quotient, converted(ctx, zero, "float32"))
    if limits is not None:
        shifted = ctx.apply(Clip(), shifted, *(ctx.known(np.float32(limit)) for limit in limits))
    return converted(ctx, shifted, dtype_of(zero))


def _requantized(ctx: Context, node: Node, sums: Value, scales: Sequence[Value], zero: Value) -> Value:
    """The sums by the scales of both factors and of the result."""
    if dtype_of(zero) not in RANGES:
        raise fail(node, f"a result of {dtype_of(zero)} is not supported")
    wide = [converted(ctx, scale, "float32") for scale in scales]
    made: Value = ctx.apply(Requantization(dtype_of(zero)), sums, *wide, zero)
    return made


def _grid(node: Node, x: Value, scale: Value) -> dict[str, Any]:
    """Returns which elements of `x` share a scale."""
    block = node.attributes.get("block_size") or 0
    if math.prod(shape_of(scale)) == 1 and not block:
        return {}
    return {"axis": normal_axis(node, node.attributes.get("axis", 1), x.rank), "block": block}


@operator("QuantizeLinear", since=(1,), domain=DOMAIN)
@operator("QuantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def _quantize_linear(ctx: Context, node: Node) -> Value:
    x, scale, zero = input_at(node, 0), input_at(node, 1), optional_input(node, 2)
    number, precision = (node.attributes.get(name) or 0 for name in ("output_dtype", "precision"))
    dtype = dtype_of(zero) if zero is not None else element_type(node, number) if number else "uint8"
    work = element_type(node, precision) if precision else dtype_of(scale)
    if "int" in work:  # quotients of integers are reals all the same
        work = "float64"
    grid = _grid(node, x, scale)
    saturate = bool(node.attributes.get("saturate", 1))
    if dtype in FLOAT8 and saturate:
        codes: Value = ctx.apply(Float8Quantization(**grid, work=work, dtype=dtype), x, scale, zero, dtype=dtype)
        return codes
    if dtype not in RANGES:
        quotients = ctx.apply(Quotients(**grid, work=work), x, scale, zero)
        return converted(ctx, quotients, dtype, saturate)
    made = ctx.apply(Quantization(**grid, work=work, dtype=dtype), x, scale, zero)
    return Value.empty(made.shape, dtype) if 0 in made.shape else replace(made, dtype=dtype)


@operator("DequantizeLinear", since=(1,), domain=DOMAIN)
@operator("DequantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def _dequantize_linear(ctx: Context, node: Node) -> Value:
    x, scale, zero = input_at(node, 0), input_at(node, 1), optional_input(node, 2)
    number = node.attributes.get("output_dtype") or 0
    dtype = element_type(node, number) if number else dtype_of(scale)
    grid = _grid(node, x, scale)
    if dtype_of(x) in FLOAT8:
        dequantized: Value = ctx.apply(Float8Dequantization(**grid, dtype=dtype, source=dtype_of(x)), x, scale, zero)
        return dequantized
    if dtype_of(x) not in (*RANGES, "int32"):
        x = converted(ctx, x, "float32")
    made = _in_blocks(ctx, (x, scale, zero), grid) if dtype == "float32" else None
    return ctx.apply(Dequantization(**grid, dtype=dtype), x, scale, zero) if made is None else made


_MIN_ELEMENTS = 1 << 14
"""Elements of a matrix, at least, that is kept as integers of few bits."""


def _in_blocks(ctx: Context, parts: tuple[Value, Value, Value | None], grid: dict[str, Any]) -> Value | None:
    """A large known matrix with blocks along its rows, in a form that products take as it is."""
    x, scale, zero = parts
    block = grid.get("block", 0)
    if x.rank != 2 or grid.get("axis") != 0 or block < 16 or block & (block - 1) or math.prod(x.shape) < _MIN_ELEMENTS:
        return None
    arrays = [None if part is None else ctx.constant(part) for part in parts]
    bits = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}.get(dtype_of(x))
    if bits is None or arrays[0] is None or arrays[1] is None or (zero is not None and arrays[2] is None):
        return None
    Dequantization(**grid).shape(x.shape, scale.shape, None if zero is None else zero.shape)
    zeros = None if arrays[2] is None else arrays[2].reshape(scale.shape)
    data, moved = in_blocks(arrays[0], zeros, bits, block, signed=dtype_of(x).startswith("int"))
    given = [ctx.known(data), ctx.known(arrays[1].T), *([] if moved is None else [ctx.known(moved)])]
    made: Value = ctx.apply(BlockDequantization(x.shape[0], bits, may_be_wide=True), *given)
    return made


@operator("DynamicQuantizeLinear", since=(11,))
def _dynamic_quantize_linear(ctx: Context, node: Node) -> list[Value]:
    return list(ctx.apply(DynamicQuantization(), input_at(node, 0)))
