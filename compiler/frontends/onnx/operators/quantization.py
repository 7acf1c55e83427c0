"""Quantized tensors: ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul, and to and from reals.

Products and sums are computed in int32, exactly. Only requantization goes over reals, as the standard defines it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import converted, element_type
from nnefc.frontends.onnx.operators.convolution import (
    check_convolution,
    kernel_shape,
    make_window,
)
from nnefc.frontends.onnx.operators.elementwise import binary, broadcast_shapes, elementwise
from nnefc.frontends.onnx.operators.matrix import matmul
from nnefc.frontends.onnx.operators.tensors import (
    Array,
    cast,
    compute,
    dtype_of,
    fail,
    input_at,
    known,
    normal_axis,
    optional_input,
    reshaped,
    shape_of,
    spell,
    value_of,
)
from nnefc.frontends.onnx.values import STORAGE
from nnefc.operators.convolution import Convolution
from nnefc.operators.padding import Pad
from nnefc.operators.window import Window, no_padding

__all__ = ["RANGES", "IntegerMatrix", "quantized_to_bytes"]

RANGES = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "uint4": (0, 15),
    "int4": (-8, 7),
    "uint2": (0, 3),
    "int2": (-2, 1),
}
"""The smallest and the largest value of the integers that tensors are quantized to."""


_NARROW = ("uint8", "int8")


# Arithmetic in int32, in operators that the passes know.

_ARITHMETIC: dict[str, tuple[Callable[..., relax.Expr], Callable[..., Array]]] = {
    "add": (relax.op.add, np.add),
    "subtract": (relax.op.subtract, np.subtract),
    "multiply": (relax.op.multiply, np.multiply),
}


def _arithmetic(ctx: Context, name: str, a: Value, b: Value) -> Value:
    """`a` and `b`, both of one type, added, subtracted or multiplied; modulo 2³² for int32."""
    function, on_arrays = _ARITHMETIC[name]
    arrays = value_of(ctx, a), value_of(ctx, b)
    if arrays[0] is not None and arrays[1] is not None:
        with np.errstate(over="ignore"):
            return known(ctx, np.asarray(on_arrays(*arrays)))
    return ctx.emit(function(ctx.expr(a), ctx.expr(b)))


def _sum_over(ctx: Context, x: Value, axes: Sequence[int]) -> Value:
    """The sums over `axes` in int32, which stay with the extent 1."""
    array = value_of(ctx, x)
    if array is not None:
        return known(ctx, array.astype(np.int64).sum(tuple(axes), keepdims=True).astype(np.int32))
    return ctx.emit(relax.op.sum(relax.op.astype(ctx.expr(x), "int32"), list(axes), keepdims=True))


def _is_zero(ctx: Context, x: Value | None) -> bool:
    """Whether a zero point is left out, or known to be 0."""
    return x is None or ((array := value_of(ctx, x)) is not None and not array.any())


def _without_zero(ctx: Context, weights: Value, zero: Value | None) -> tuple[Value, Value | None]:
    """Weights from which their zero point is subtracted, if the differences have 8 bits too; else both as they are.

    `zero` broadcasts against the weights.
    """
    array, origin = value_of(ctx, weights), None if zero is None else value_of(ctx, zero)
    if _is_zero(ctx, zero):
        return weights, None
    if array is not None and origin is not None:
        centred = array.astype(np.int32) - origin.astype(np.int32)
        for dtype in _NARROW:
            low, high = RANGES[dtype]
            if not centred.size or (centred.min() >= low and centred.max() <= high):
                return known(ctx, centred.astype(dtype)), None
    return weights, zero


# Convolutions of integers.


@operator("ConvInteger", since=(10,))
def _conv_integer(ctx: Context, node: Node) -> Value:
    x, w = input_at(node, 0), input_at(node, 1)
    return _integer_convolution(ctx, node, x, w, optional_input(node, 2), optional_input(node, 3))


def _integer_convolution(
    ctx: Context, node: Node, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None, bias: Value | None = None
) -> Value:
    """`sum((x - x_zero) * (w - w_zero)) + bias` in int32; the padding is worth `x_zero`, so it adds nothing."""
    groups = check_convolution(node, shape_of(x), shape_of(w))
    window = make_window(node, kernel_shape(node, shape_of(w)), shape_of(x)[2:])
    if x_zero is not None and math.prod(shape_of(x_zero)) != 1:
        raise fail(node, f"the input's zero point has the shape {spell(shape_of(x_zero))}, not that of a scalar")
    filters, rank = shape_of(w)[0], len(shape_of(w))
    if w_zero is not None and math.prod(shape_of(w_zero)) not in (1, filters):
        raise fail(node, f"the filter's zero point {spell(shape_of(w_zero))} should be a scalar or [{filters}]")
    origin = None if x_zero is None else reshaped(ctx, x_zero, ())
    count = math.prod(shape_of(w_zero)) if w_zero is not None else 1
    column = None if w_zero is None else reshaped(ctx, w_zero, (count, *[1] * (rank - 1)))
    if bias is not None:
        bias = reshaped(ctx, bias, (1, filters, *[1] * (rank - 2)))
    plain = value_of(ctx, w) is None or value_of(ctx, x) is not None
    if plain or 0 in shape_of(x) or not {dtype_of(x), dtype_of(w)} <= set(_NARROW):
        convolution = Convolution(window, groups, sums="int32")
        sums = ctx.apply(convolution, _centred(ctx, x, origin), _centred(ctx, w, column))
        return sums if bias is None else _arithmetic(ctx, "add", sums, bias)
    return _narrow_convolution(ctx, x, w, window, groups, origin, column, bias)


def _narrow_convolution(
    ctx: Context,
    x: Value,
    w: Value,
    window: Window,
    groups: int,
    x_zero: Value | None,
    w_zero: Value | None,
    bias: Value | None,
) -> Value:
    """A convolution of 8-bit integers as they are, and what the zero points change in each sum.

    `sum((x - a)(w - b)) = sum(x w) - a sum(w) - b (sum(x) - a n)`, where n is the number of terms. `sum(w)` is known.
    """
    filters, rank = shape_of(w)[0], len(shape_of(w))
    w, w_zero = _without_zero(ctx, w, w_zero)
    if not _is_zero(ctx, x_zero):
        assert x_zero is not None
        x = ctx.apply(Pad((*no_padding(2), *window.padding)), x, x_zero)
        window = window.unpadded()
        origin = cast(ctx, x_zero, "int32")
        sums = reshaped(ctx, _sum_over(ctx, w, range(1, rank)), (1, filters, *[1] * (rank - 2)))
        less = _arithmetic(ctx, "multiply", sums, origin)
        bias = _arithmetic(ctx, "subtract", known(ctx, np.zeros((), np.int32)) if bias is None else bias, less)
    result = _sums(ctx, x, w, window, groups)
    if bias is not None:
        result = _arithmetic(ctx, "add", result, bias)
    if w_zero is None:
        return result
    ones = np.ones((1 if groups == 1 else filters, *shape_of(w)[1:]), np.int8)
    moved = _sums(ctx, x, known(ctx, ones), window, groups)
    if not _is_zero(ctx, x_zero):
        terms = known(ctx, np.array(math.prod(shape_of(w)[1:]), np.int32))
        moved = _arithmetic(ctx, "subtract", moved, _arithmetic(ctx, "multiply", origin, terms))
    factor = reshaped(ctx, cast(ctx, w_zero, "int32"), (1, -1, *[1] * (rank - 2)) if w_zero.rank else ())
    return _arithmetic(ctx, "subtract", result, _arithmetic(ctx, "multiply", moved, factor))


def _sums(ctx: Context, x: Value, w: Value, window: Window, groups: int) -> Value:
    """A convolution of 8-bit integers in int32."""
    made: Value = ctx.apply(Convolution(window, groups, sums="int32"), x, w)
    return made


def _centred(ctx: Context, x: Value, zero: Value | None) -> Value:
    """`x - zero` in int32."""
    arrays = [value_of(ctx, x), np.zeros((), np.int32) if zero is None else value_of(ctx, zero)]
    if arrays[0] is not None and arrays[1] is not None:
        return known(ctx, arrays[0].astype(np.int32) - arrays[1].astype(np.int32))
    if zero is None:
        return cast(ctx, x, "int32")
    return elementwise(ctx, lambda a, b: a.astype("int32") - b.astype("int32"), x, zero, name="centre", result="int32")


# Products of matrices of integers.


@operator("MatMulInteger", since=(10,))
def _matmul_integer(ctx: Context, node: Node) -> Value:
    a, b = input_at(node, 0), input_at(node, 1)
    return _integer_product(ctx, node, a, b, optional_input(node, 2), optional_input(node, 3))


def _integer_product(ctx: Context, node: Node, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None) -> Value:
    rows = None if a_zero is None else _along(ctx, node, a_zero, a, -2)
    columns = None if b_zero is None else _along(ctx, node, b_zero, b, -1)
    fits = shape_of(a) and shape_of(b) and shape_of(a)[-1] == shape_of(b)[-2 if b.rank > 1 else 0]
    at_hand = value_of(ctx, a) is not None and value_of(ctx, b) is not None
    narrow = {dtype_of(a), dtype_of(b)} <= set(_NARROW)
    if not fits or at_hand or not narrow or 0 in (*shape_of(a), *shape_of(b)):
        return matmul(ctx, _centred(ctx, a, rows), _centred(ctx, b, columns))
    shape = broadcast_shapes(shape_of(a)[:-2], shape_of(b)[:-2])
    shape = (*shape, *shape_of(a)[-2:-1], *(shape_of(b)[-1:] if b.rank > 1 else ()))
    left = a if a.rank > 1 else reshaped(ctx, a, (1, *shape_of(a)))
    right = b if b.rank > 1 else reshaped(ctx, b, (*shape_of(b), 1))
    return reshaped(ctx, _narrow_product(ctx, left, right, rows, columns), shape)


def _narrow_product(ctx: Context, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None) -> Value:
    """A product of 8-bit matrices as they are, and what the zero points change in each sum, as for convolutions."""
    b, b_zero = _without_zero(ctx, b, b_zero)
    result = ctx.emit(relax.op.matmul(ctx.expr(a), ctx.expr(b), out_dtype="int32"))
    if not _is_zero(ctx, a_zero):
        assert a_zero is not None
        origin = cast(ctx, a_zero, "int32")
        less = _arithmetic(ctx, "multiply", _sum_over(ctx, b, [b.rank - 2]), origin)
        result = _arithmetic(ctx, "subtract", result, less)
    if b_zero is None:
        return result
    moved = _sum_over(ctx, a, [a.rank - 1])
    if not _is_zero(ctx, a_zero):
        depth = known(ctx, np.array(shape_of(a)[-1], np.int32))
        moved = _arithmetic(ctx, "subtract", moved, _arithmetic(ctx, "multiply", origin, depth))
    return _arithmetic(ctx, "subtract", result, _arithmetic(ctx, "multiply", moved, cast(ctx, b_zero, "int32")))


def _along(ctx: Context, node: Node, x: Value, matrix: Value, axis: int) -> Value:
    """A zero point or scale in the place where it broadcasts: a vector goes along an axis of the matrix."""
    shape, rank = shape_of(x), len(shape_of(matrix))
    if math.prod(shape) == 1:
        return reshaped(ctx, x, ())
    if len(shape) == 1 and rank >= 2:
        if shape[0] != shape_of(matrix)[axis]:
            raise fail(node, f"{spell(shape)} does not fit the matrix {spell(shape_of(matrix))}")
        return reshaped(ctx, x, (shape[0], 1) if axis == -2 else (1, shape[0]))
    broadcast_shapes(shape, shape_of(matrix))
    return x


# Requantization: integers times scales, rounded to even, plus the zero point, cut to the range.


def _requantized(ctx: Context, sums: Value, factor: Value, zero: Value, dtype: str) -> Value:
    low, high = RANGES[dtype]
    scaled = relax.op.multiply(relax.op.astype(ctx.expr(sums), "float32"), ctx.expr(factor))
    moved = relax.op.round(scaled)
    if not _is_zero(ctx, zero):
        moved = relax.op.add(moved, ctx.expr(cast(ctx, zero, "float32")))
    cut = relax.op.clip(moved, float(low), float(high))
    return ctx.emit(relax.op.astype(relax.op.astype(cut, "int32"), STORAGE.get(dtype, dtype)), dtype)


def _ratio(ctx: Context, a: Value, b: Value, y: Value) -> Value:
    """`a * b / y` in float32."""
    values = [converted(ctx, value, "float32") for value in (a, b, y)]
    return binary(ctx, "Div", binary(ctx, "Mul", values[0], values[1]), values[2])


@operator("QLinearConv", since=(10,))
def _qlinear_conv(ctx: Context, node: Node) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (input_at(node, i) for i in range(8))
    sums = _integer_convolution(ctx, node, x, w, x_zero, w_zero, optional_input(node, 8))
    rank, channels = len(shape_of(x)), shape_of(w)[0]
    count = math.prod(shape_of(w_scale))
    if count not in (1, channels):
        raise fail(node, f"the filter's scale {spell(shape_of(w_scale))} should be a scalar or [{channels}]")
    scale = reshaped(ctx, w_scale, (1, count, *[1] * (rank - 2)) if count > 1 else ())
    factor = _ratio(ctx, reshaped(ctx, x_scale, ()), scale, reshaped(ctx, y_scale, ()))
    return _requantized(ctx, sums, factor, reshaped(ctx, y_zero, ()), dtype_of(y_zero))


@operator("QLinearMatMul", since=(10, 21))
def _qlinear_matmul(ctx: Context, node: Node) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (input_at(node, i) for i in range(8))
    sums = _integer_product(ctx, node, a, b, a_zero, b_zero)
    rows, columns = _along(ctx, node, a_scale, a, -2), _along(ctx, node, b_scale, b, -1)
    factor = _ratio(ctx, rows, columns, _along(ctx, node, y_scale, sums, -2))
    return _requantized(ctx, sums, factor, _along(ctx, node, y_zero, sums, -2), dtype_of(y_zero))


# From reals and back.


def _spread(ctx: Context, node: Node, x: Value, scale: Value) -> Any:
    """How an item of `x` finds its scale: a function from its index to the index in `scale`."""
    shape, scales = shape_of(x), shape_of(scale)
    block = node.attributes.get("block_size") or 0
    if math.prod(scales) == 1 and not block:
        return lambda index: (0,) * len(scales)
    axis = normal_axis(node, node.attributes.get("axis", 1), len(shape))
    if block:
        expected = tuple(-(-e // block) if a == axis else e for a, e in enumerate(shape))
        if scales != expected:
            raise fail(node, f"blocks of {block} need scales of the shape {spell(expected)}, not {spell(scales)}")
        return lambda index: tuple(tirx.floordiv(i, block) if a == axis else i for a, i in enumerate(index))
    if scales != (shape[axis],):
        raise fail(node, f"the scales {spell(scales)} do not fit axis {axis} of {spell(shape)}")
    return lambda index: (index[axis],)


def _check_zero(node: Node, scale: Value, zero: Value | None) -> None:
    if zero is not None and math.prod(shape_of(zero)) != math.prod(shape_of(scale)):
        raise fail(node, f"the zero point {spell(shape_of(zero))} does not fit the scale {spell(shape_of(scale))}")


def _parameters(ctx: Context, node: Node, x: Value, scale: Value, zero: Value | None, dtype: str) -> list[Any] | None:
    """Scale, zero point and axis as `relax.op.quantize` and `dequantize` take them, which passes know.

    None where they do not: unless both are known, float32 and an integer type, of the whole tensor or along an axis.
    """
    scales = value_of(ctx, scale)
    zeros = np.zeros(shape_of(scale), dtype) if zero is None else value_of(ctx, zero)
    if scales is None or zeros is None or dtype_of(scale) != "float32" or node.attributes.get("block_size"):
        return None
    if not shape_of(x) or 0 in shape_of(x):
        return None
    if scales.size == 1:
        return [*(ctx.expr(known(ctx, array.reshape(()))) for array in (scales, zeros)), -1]
    axis = normal_axis(node, node.attributes.get("axis", 1), len(shape_of(x)))
    return [*(ctx.expr(known(ctx, array)) for array in (scales, zeros.reshape(scales.shape))), axis]


@operator("QuantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def _quantize_linear(ctx: Context, node: Node) -> Value:
    x, scale, zero = input_at(node, 0), input_at(node, 1), optional_input(node, 2)
    number = node.attributes.get("output_dtype") or 0
    dtype = dtype_of(zero) if zero is not None else element_type(node, number) if number else "uint8"
    place = _spread(ctx, node, x, scale)
    _check_zero(node, scale, zero)
    precision = node.attributes.get("precision") or 0
    work = element_type(node, precision) if precision else dtype_of(scale)
    if dtype in _NARROW and work == dtype_of(x) == "float32":
        parameters = _parameters(ctx, node, x, scale, zero, dtype)
        if parameters is not None:
            return ctx.emit(relax.op.quantize(ctx.expr(x), *parameters, dtype))
    # Half floats are divided as such: the quotient is rounded to their type before it is rounded to an integer.
    wide = "float32" if work in ("float16", "bfloat16") else work
    source = x if dtype_of(x) != "int32" else converted(ctx, x, wide)
    extra = [] if zero is None else [reshaped(ctx, zero, shape_of(scale))]
    integer = dtype in RANGES

    def item(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        at = place(index)
        quotient = tensors[0](*index).astype(wide) / tensors[1](*at).astype(wide)
        quotient = quotient.astype(work).astype("float32") if work != wide else quotient
        if not integer:
            return quotient.astype("float32")
        low, high = (tirx.const(limit, wide) for limit in RANGES[dtype])
        value = tirx.nearbyint(quotient)
        value = value + tensors[2](*at).astype(wide) if extra else value
        return tirx.max(tirx.min(value, high), low).astype("int32").astype(STORAGE.get(dtype, dtype))

    if integer:
        return compute(ctx, shape_of(x), item, source, scale, *extra, name="quantize", dtype=dtype)
    quotients = compute(ctx, shape_of(x), item, source, scale, *extra, name="quotients")
    return converted(ctx, quotients, dtype, bool(node.attributes.get("saturate", 1)))


@operator("DequantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def _dequantize_linear(ctx: Context, node: Node) -> Value:
    x, scale, zero = input_at(node, 0), input_at(node, 1), optional_input(node, 2)
    number = node.attributes.get("output_dtype") or 0
    dtype = element_type(node, number) if number else dtype_of(scale)
    place = _spread(ctx, node, x, scale)
    _check_zero(node, scale, zero)
    work = "float64" if dtype_of(scale) == "float64" else "float32"
    if dtype_of(x) in (*_NARROW, "int32") and dtype == "float32":
        parameters = _parameters(ctx, node, x, scale, zero, dtype_of(x))
        if parameters is not None:
            return ctx.emit(relax.op.dequantize(ctx.expr(x), *parameters, "float32"))
    if dtype_of(x) not in RANGES and dtype_of(x) != "int32":
        x, zero = converted(ctx, x, "float32"), None  # a zero point of floats is zero
    inner = "int32" if dtype_of(x) != "float32" else "float32"
    extra = [] if zero is None else [reshaped(ctx, zero, shape_of(scale))]

    def item(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        at = place(index)
        value = tensors[0](*index).astype(inner)
        value = value - tensors[2](*at).astype(inner) if extra else value
        return (value.astype(work) * tensors[1](*at).astype(work)).astype(dtype)

    return compute(ctx, shape_of(x), item, x, scale, *extra, name="dequantize", dtype=dtype)


def _extreme(ctx: Context, function: Callable[..., relax.Expr], x: Value) -> Value:
    """The least or the greatest item, [1,1]; the whole tensor is one row."""
    row = reshaped(ctx, x, (1, math.prod(shape_of(x))))
    return ctx.emit(function(ctx.expr(row), [-1], keepdims=True))


def quantized_to_bytes(ctx: Context, x: Value) -> tuple[Value, Value, Value]:
    """A tensor of float32 as uint8, its scale and its zero point: its range, with zero in it, is mapped to 0 … 255."""
    zero = known(ctx, np.zeros((1, 1), np.float32))
    low = binary(ctx, "Min", _extreme(ctx, relax.op.min, x), zero)
    high = binary(ctx, "Max", _extreme(ctx, relax.op.max, x), zero)
    scale = binary(ctx, "Div", binary(ctx, "Sub", high, low), known(ctx, np.array(255, np.float32)))

    def origin(low: Any, scale: Any) -> Any:
        # A tensor of zeros has the scale 0, and any zero point.
        safe = tirx.Select(scale == tirx.const(0, "float32"), tirx.const(1, "float32"), scale)
        value = tirx.nearbyint(tirx.const(0, "float32") - low / safe)
        return tirx.max(tirx.min(value, tirx.const(255, "float32")), tirx.const(0, "float32")).astype("int32")

    point = reshaped(ctx, elementwise(ctx, origin, low, scale, name="zero_point", result="uint8"), ())
    scale = reshaped(ctx, scale, ())

    def quantize(value: Any, scale: Any, point: Any) -> Any:
        safe = tirx.Select(scale == tirx.const(0, "float32"), tirx.const(1, "float32"), scale)
        moved = tirx.nearbyint(value / safe) + point.astype("float32")
        return tirx.max(tirx.min(moved, tirx.const(255, "float32")), tirx.const(0, "float32")).astype("int32")

    return elementwise(ctx, quantize, x, scale, point, name="quantize", result="uint8"), scale, point


@operator("DynamicQuantizeLinear", since=(11,))
def _dynamic_quantize_linear(ctx: Context, node: Node) -> list[Value]:
    return list(quantized_to_bytes(ctx, input_at(node, 0)))


@dataclass(frozen=True)
class IntegerMatrix:
    """A matrix of 8-bit integers that reals are multiplied with in integers.

    Attributes:
        items: `[K, N]`.
        scale: float32, `[]` or `[1, N]`.
        zero: of the items' type, `[]` or `[1, N]`.
    """

    items: Value
    scale: Value
    zero: Value

    def product(self, ctx: Context, x: Value) -> Value:
        """`x [M, K]` times the matrix, `[M, N]` float32; the whole of `x` is quantized to uint8 with one scale."""
        return self.product_of(ctx, *quantized_to_bytes(ctx, x))

    def product_of(self, ctx: Context, x: Value, scale: Value, zero: Value) -> Value:
        """The same of `x` that is quantized."""
        sums = _narrow_product(ctx, x, self.items, zero, self.zero)
        return binary(ctx, "Mul", cast(ctx, sums, "float32"), binary(ctx, "Mul", scale, self.scale))
