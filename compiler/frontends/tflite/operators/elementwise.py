"""Element-wise operators; sums, products and comparisons of quantized tensors in fixed point."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnefc.frontends.tflite.lowering import (
    BYTES,
    FLOATS,
    INTEGERS,
    QUANTIZED,
    REALS,
    Lowering,
    Node,
    Operand,
    Result,
    Value,
    operator,
    table,
)
from nnefc.frontends.tflite.operators.activation import by_table, table_of_reals
from nnefc.frontends.tflite.quantized import activated, quantized_limits, rescaled, single
from nnefc.operators.base import Array, rank_of, shape_of
from nnefc.operators.math.casting import BitParts, Cast
from nnefc.operators.math.elementwise import Clip, Elementwise, Where, apply
from nnefc.operators.nn.byte_sum import ByteSum
from nnefc.operators.nn.fixed_point import PairTable, RoundedQuotient, fixed_point_of, scaled_integers, table_of
from nnefc.operators.nn.fixed_point_quotients import FixedPointQuotient, quotients_of_bytes
from nnefc.operators.nn.quantization import RANGES
from nnefc.operators.tensor.shape import Reshape
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_NUMBERS = (*FLOATS, *INTEGERS)

table(
    "elementwise",
    {name.upper(): Elementwise(name) for name in ("floor", "ceil", "round", "sin", "cos", "square")},
    REALS,
)
table("elementwise", {"NEG": Elementwise("negative")}, (*REALS, *INTEGERS, "int8", "int16"))
table("elementwise", {"SIGN": Elementwise("sign_or_zero")}, (*_NUMBERS, "float64"))
table("elementwise", {"LOGICAL_NOT": Elementwise("logical_not")}, ("bool",))


@operator("SQRT", "RSQRT", types=(*FLOATS, "int8", "int16"))
def _root(ctx: Lowering, node: Node) -> Result:
    if not node.is_quantized():
        return ctx.pointwise(lambda x: Elementwise(node.name.lower()).lower(ctx, x), node.operand(0))
    (scale, zero), (out, point), dtype = single(node.quantization(0)), single(node.result()), node.dtype(0)
    if node.name == "RSQRT":
        largest = out * np.float32(RANGES[dtype][1] - point)
        return by_table(
            ctx, node, table_of_reals(node, lambda x: np.where(x <= 0, largest, np.float32(1) / np.sqrt(x)))
        )
    # Roots are rounded towards zero.
    roots = table_of(dtype, lambda x: np.sqrt(scale * np.maximum(x - zero, 0).astype(np.float32)) / out)
    return by_table(ctx, node, np.clip(np.trunc(roots) + point, *RANGES[dtype]).astype(dtype))


@operator("ABS", types=(*_NUMBERS, "int8", "int16"))
def _abs(ctx: Lowering, node: Node) -> Result:
    if not node.is_quantized():
        return ctx.pointwise(lambda x: Elementwise("abs").lower(ctx, x), node.operand(0))
    (scale, zero), (out, point) = single(node.quantization(0)), single(node.result())

    def made(x: Operand) -> Operand:
        centred = apply(ctx, "subtract", ctx.apply(Cast("int32"), x), np.array(zero, np.int32))
        return rescaled(ctx, apply(ctx, "abs", centred), float(scale / out), node.dtype(0), zero=point)

    return ctx.pointwise(made, node.operand(0))


# Two operands.

_BINARY: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "MAXIMUM": ("maximum", (*REALS, *INTEGERS, *QUANTIZED)),
    "MINIMUM": ("minimum", (*REALS, *INTEGERS, *QUANTIZED)),
    "POW": ("power", (*FLOATS, "int32")),
    "FLOOR_MOD": ("remainder", (*FLOATS, "int8", "int16", *INTEGERS)),
    "ATAN2": ("atan2", (*REALS, "float64")),
    "BITWISE_XOR": ("bitwise_xor", ("int8", "uint8", "int16", "uint16", "int32", "uint32")),
    "LOGICAL_AND": ("logical_and", ("bool",)),
    "LOGICAL_OR": ("logical_or", ("bool",)),
}


def _declare(name: str, function: str, types: tuple[str, ...]) -> None:
    @operator(name, types=types)
    def _binary(ctx: Lowering, node: Node) -> Result:
        return ctx.pointwise(lambda x, y: Elementwise(function).lower(ctx, x, y), node.operand(0), node.operand(1))


for _name, (_function, _types) in _BINARY.items():
    _declare(_name, _function, _types)


@operator("RIGHT_SHIFT", types=("int8", "uint8", "int16", "uint16", "int32", "uint32"))
def _right_shift(ctx: Lowering, node: Node) -> Result:
    return ctx.pointwise(lambda x, y: Elementwise("right_shift").lower(ctx, x, y), *node.operands())


@operator("FLOOR_DIV", types=(*FLOATS, "int8", "int16", *INTEGERS))
def _floor_div(ctx: Lowering, node: Node) -> Result:
    return ctx.pointwise(lambda x, y: Elementwise("floor_divide").lower(ctx, x, y), *node.operands())


_ARITHMETIC = {"ADD": "add", "SUB": "subtract", "MUL": "multiply", "DIV": "divide"}


@operator("DIV", types=(*_NUMBERS, *QUANTIZED))
@operator("MUL", types=(*REALS, *INTEGERS, "uint32", *QUANTIZED))
@operator("ADD", "SUB", types=(*REALS, *INTEGERS, *QUANTIZED))
def _arithmetic(ctx: Lowering, node: Node) -> Result:
    if not node.is_quantized():
        function = Elementwise(_ARITHMETIC[node.name])
        return ctx.pointwise(
            lambda x, y: activated(ctx, node, ctx.bound(function.lower(ctx, x, y))), node.operand(0), node.operand(1)
        )
    made = {"ADD": _sum, "SUB": _sum, "MUL": _product, "DIV": _quotient}[node.name]
    return ctx.pointwise(lambda x, y: made(ctx, node, x, y), node.operand(0), node.operand(1))


def _scales(node: Node) -> tuple[Any, Any, Any]:
    found = tuple(single(q) for q in (node.quantization(0), node.quantization(1), node.result()))
    if any(scale == 0 for scale, _ in found):
        raise CompileError("a scale is 0")
    return found  # type: ignore[return-value]


def _sum(ctx: Lowering, node: Node, x: Operand, y: Operand) -> Operand:
    """Both operands are scaled to twice the larger scale, with bits to spare, then their sum to the result."""
    (one, zero), (other, zero_y), (out, point) = _scales(node)
    ends, dtype = quantized_limits(node), node.outputs[0].dtype
    left = 15 if dtype == "int16" else 20
    if dtype == "int16" and getattr(node.options, "pot_scale_int16", True):
        powers = [np.log2(float(scale)) for scale in (one, other, out)]
        if all(power == round(power) for power in powers) and not (zero or zero_y or point):
            return _sum_of_powers(ctx, node, x, y, [round(power) for power in powers], ends)
    wide = 2 * max(float(one), float(other))
    factors = [(float(scale) / wide, offset) for scale, offset in ((one, zero), (other, zero_y))]
    factor = wide / ((1 << left) * float(out))
    if dtype in BYTES and (found := _sum_of_bytes(node, factors, factor, left, ends)) is not None:
        made: Operand = ctx.apply(found, x, y)
        return made
    parts = [
        rescaled(ctx, each, scale, "int32", -offset, left=left)
        for each, (scale, offset) in zip((x, y), factors, strict=True)
    ]
    total = apply(ctx, "add" if node.name == "ADD" else "subtract", *parts)
    size = 1 << (left + 8) if dtype in BYTES else None
    return rescaled(ctx, total, factor, dtype, zero=point, ends=ends, size=size)


def _sum_of_bytes(
    node: Node, factors: Sequence[tuple[float, int]], factor: float, left: int, ends: tuple[int, int]
) -> ByteSum | None:
    """The sum of all pairs, as its scaled parts give it, as one form of both bytes.

    Args:
        factors: what each operand is multiplied by, behind `left` bits to the left, and its zero point.
        factor: what their sum is multiplied by.
    """
    dtype, (_, point), sign = node.outputs[0].dtype, single(node.result()), 1 if node.name == "ADD" else -1
    if any(node.dtype(k) != dtype for k in (0, 1)):
        return None

    def scaled(scale: float, zero: int) -> Array:
        return table_of(dtype, lambda x: scaled_integers((x - zero) << left, *fixed_point_of(scale)))

    x, y = (scaled(*each) for each in factors)
    total = x[:, None] + sign * y[None, :]
    wanted = np.clip(scaled_integers(total, *fixed_point_of(factor)) + point, *ends)
    a, b = (scale * factor * (1 << left) for scale, _ in factors)
    return ByteSum.of(wanted, dtype, (a, sign * b, point - a * factors[0][1] - sign * b * factors[1][1]), *ends)


def _quotient(ctx: Lowering, node: Node, x: Operand, y: Operand) -> Operand:
    (one, zero), (other, zero_y), (out, point) = _scales(node)
    dtype, ends = node.outputs[0].dtype, quantized_limits(node)
    if any(node.dtype(k) != dtype for k in (0, 1)):
        raise CompileError(f"{node.dtype(0)} divided by {node.dtype(1)} as {dtype} is not supported")
    factor, zeros = fixed_point_of(float(one / (other * out))), (zero, zero_y, point)  # in float32, as LiteRT
    if dtype == "int16":
        return ctx.bound(FixedPointQuotient(dtype, zeros, factor, ends).lower(ctx, x, y))
    made: Operand = ctx.apply(PairTable(), x, y, quotients_of_bytes(dtype, zeros, factor, ends))
    return made


def _sum_of_powers(
    ctx: Lowering, node: Node, x: Operand, y: Operand, powers: list[int], ends: tuple[int, int]
) -> Operand:
    """Scales are powers of two: one operand is the result's, the other is shifted to the right."""
    parts = [
        rescaled(ctx, each, 2.0 ** (power - powers[2]), "int32")
        if power != powers[2]
        else ctx.apply(Cast("int32"), each)
        for each, power in zip((x, y), powers[:2], strict=True)
    ]
    total = apply(ctx, "add" if node.name == "ADD" else "subtract", *parts)
    return rescaled(ctx, total, 1.0, "int16", ends=ends)


def _centred(ctx: Lowering, x: Operand, zero: int) -> Operand:
    wide = ctx.apply(Cast("int32"), x)
    return apply(ctx, "subtract", wide, np.array(zero, np.int32)) if zero else wide


def _product(ctx: Lowering, node: Node, x: Operand, y: Operand) -> Operand:
    if node.dtype(0) == "int16" and node.outputs[0].dtype in BYTES:
        return _product_of_fractions(ctx, node, x, y)
    (one, zero), (other, zero_y), (out, point) = _scales(node)
    product = apply(ctx, "multiply", _centred(ctx, x, zero), _centred(ctx, y, zero_y))
    size = 1 << 16 if {node.dtype(0), node.dtype(1)} <= set(BYTES) else None
    factor, ends = float(one * other / out), quantized_limits(node)
    return rescaled(ctx, product, factor, node.outputs[0].dtype, zero=point, ends=ends, size=size)


def _product_of_fractions(ctx: Lowering, node: Node, x: Operand, y: Operand) -> Operand:
    """A product of integers of 16 bits, all of which are behind the point, as one of 7 of them; scales do not count."""
    product = apply(ctx, "multiply", *(ctx.apply(Cast("int32"), part) for part in (x, y)))
    for bits in (15, 8):
        product = ctx.apply(RoundedQuotient(), product, np.array(1 << bits))
    moved = apply(ctx, "add", product, np.array(single(node.result())[1], np.int32))
    ends = (np.array(end, np.int32) for end in quantized_limits(node))
    return ctx.apply(Cast(node.outputs[0].dtype), ctx.apply(Clip(), moved, *ends))


@operator("SQUARED_DIFFERENCE", types=(*_NUMBERS, "int8"))
def _squared_difference(ctx: Lowering, node: Node) -> Result:
    def made(x: Operand, y: Operand) -> Operand:
        return apply(ctx, "square", apply(ctx, "subtract", x, y))

    def quantized(x: Operand, y: Operand) -> Operand:
        (one, zero), (other, zero_y), (out, point) = _scales(node)
        wide = 2 * max(float(one), float(other))
        parts = [
            rescaled(ctx, each, float(scale) / wide, "int32", -offset, left=7)
            for each, scale, offset in ((x, one, zero), (y, other, zero_y))
        ]
        square = apply(ctx, "square", apply(ctx, "subtract", *parts))
        factor = wide * wide / ((1 << 14) * float(out))
        return rescaled(ctx, square, factor, node.outputs[0].dtype, zero=point, ends=quantized_limits(node))

    return ctx.pointwise(quantized if node.is_quantized() else made, *node.operands())


@operator("ADD_N", types=_NUMBERS)
def _add_n(ctx: Lowering, node: Node) -> Result:
    return functools.reduce(lambda x, y: ctx.pointwise(lambda a, b: apply(ctx, "add", a, b), x, y), node.operands())


# Comparisons.

_COMPARED = (*REALS, *INTEGERS, "bool", *QUANTIZED)


@operator("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", types=_COMPARED)
def _compare(ctx: Lowering, node: Node) -> Result:
    x, y = node.operand(0), node.operand(1)
    if node.dtype(0) in ("int8", "uint8") and node.is_quantized(0) and node.is_quantized(1):
        (one, zero), (other, zero_y) = (single(node.quantization(k)) for k in (0, 1))
        x, y = (rescaled(ctx, e, float(s), "int32", -z, left=8) for e, s, z in ((x, one, zero), (y, other, zero_y)))
    return ctx.pointwise(lambda x, y: Elementwise(node.name.lower()).lower(ctx, x, y), x, y)


@operator("EQUAL", "NOT_EQUAL", types=(*_COMPARED, "string"))
def _equal(ctx: Lowering, node: Node) -> Result:
    if node.dtype(0) != "string":
        return _compare(ctx, node)
    from nnefc.operators.text.strings import TextEqual  # few networks have strings

    made = ctx.apply(TextEqual(), node.operand(0), node.operand(1))
    return made if node.name == "EQUAL" else apply(ctx, "logical_not", made)


@operator("SELECT", "SELECT_V2", types=("bool",))
def _select(ctx: Lowering, node: Node) -> Result:
    condition, x, y = node.operands()
    if node.name == "SELECT" and rank_of(condition) == 1 and rank_of(x) > 1:
        condition = ctx.apply(Reshape((shape_of(condition)[0], *[1] * (rank_of(x) - 1))), condition)
    return Where().lower(ctx, condition, x, y)


# Types.


@operator("CAST", limits="complex numbers")
def _cast(ctx: Lowering, node: Node) -> Result:
    """Reals beyond an integer type become its smallest or largest value, and NaN the largest."""
    dtype = node.outputs[0].dtype
    return Value(ctx.apply(Cast(dtype, limits=True, nan="largest"), node.operand(0)), dtype)


@operator("BITCAST")
def _bitcast(ctx: Lowering, node: Node) -> Result:
    """Parts of wider elements are along the last dimension."""
    return BitParts(node.outputs[0].dtype).lower(ctx, node.operand(0))
