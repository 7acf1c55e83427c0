"""Casts between element types, and rounds to the narrow floating-point types."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, SameShape, Shape, dtype_of, shape_of
from nnefc.operators.dtypes import STORAGE, is_float, numpy_dtype, promoted_type
from nnefc.operators.math.elementwise import compute
from nnefc.operators.math.functions import converted, element_dtype
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.unification import unify_dims

__all__ = ["BitCast", "BitParts", "Cast", "cast_array", "float_code", "float_values"]


@dataclass(frozen=True)
class Cast(SameShape):
    """The elements in another element type: reals towards zero where they become integers, and as 0 or 1 from `bool`.

    True is what is not zero. Integers that do not fit keep their low bits; reals that do not, and NaN, become integers
    as on x86-64, see :func:`nnefc.operators.math.functions.converted`.

    Attributes:
        dtype: of the result; of a type in `STORAGE` the expression has the type that the program keeps it in.
        source: the operand's element type, where the program keeps it in another one.
        saturate: whether narrow floats become the largest number where one is too large, else infinity or NaN.
        rounding: of powers of two (float8_e8m0fnu): "up", "down" or "nearest". Others are rounded to even.
        limits: whether reals beyond an integer type become its smallest or largest value.
        nan: what NaN becomes then: "zero" or "largest".
    """

    dtype: str
    source: str | None = None
    saturate: bool = True
    rounding: str = "up"
    limits: bool = False
    nan: str = "zero"

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        source, dtype = self.source or dtype_of(x), self.dtype
        if source == dtype:
            return x
        limited = self.limits and is_float(source) and dtype.startswith(("int", "uint")) and dtype not in STORAGE
        if isinstance(x, np.ndarray):
            return _limited_known(x, dtype, self.nan) if limited else cast_array(x, dtype, self.saturate, self.rounding)
        if source in _FORMATS:
            x, source = ctx.emit(_dequantized(ctx, x, source)), "float32"
        if dtype in _FORMATS:
            form = _FORMATS[dtype]
            wide = ctx.bound(Cast("float32", source).lower(ctx, x))
            return compute(ctx, lambda element: self._code(form, element), wide, name="narrow", dtype=dtype)
        if dtype in _BITS:
            return compute(ctx, lambda element: _low_bits(element, *_BITS[dtype]), x, name="narrow", dtype=dtype)
        if limited:
            return compute(ctx, lambda element: _limited(element, dtype, self.nan), x, name="cast", dtype=dtype)
        if dtype == "bool" or (is_float(source) and not is_float(dtype)):
            return compute(ctx, lambda element: converted(element, dtype), x, name="cast", dtype=dtype)
        return relax.op.astype(ctx.expr(x), dtype)

    def _code(self, form: _Format, element: tirx.Expr) -> tirx.Expr:
        if not form.mantissa:
            return _power_code(form, element, self.saturate, self.rounding)
        # Four bits have no room for NaN.
        return _code(form, element, self.saturate or self.dtype == "float4_e2m1fn")


def _limited(element: tirx.Expr, dtype: str, nan: str) -> tirx.Expr:
    """A real as an integer, within the integer type."""
    real, ends = element.astype(promoted_type(element_dtype(element))), np.iinfo(dtype)
    low, high = (tirx.const(float(end), element_dtype(real)) for end in (ends.min, ends.max + 1))
    of_nan = tirx.const(0, dtype) if nan == "zero" else tirx.max_value(dtype)
    inner = tirx.Select(tirx.isnan(real), of_nan, real.astype(dtype))
    return tirx.Select(real >= high, tirx.max_value(dtype), tirx.Select(real <= low, tirx.min_value(dtype), inner))


def _limited_known(array: Array, dtype: str, nan: str) -> Array:
    ends = np.iinfo(dtype)
    real = np.nan_to_num(
        array.astype(np.float64), nan=0 if nan == "zero" else math.inf, posinf=math.inf, neginf=-math.inf
    )
    inside = (real > ends.min) & (real < float(ends.max + 1))
    whole = np.where(inside, real, 0).astype(dtype)
    return np.where(inside, whole, np.where(real > 0, ends.max, ends.min).astype(dtype))


_BITS = {"int4": (4, True), "uint4": (4, False), "int2": (2, True), "uint2": (2, False)}
"""Narrow integers: their bits and whether they are signed."""


def _low_bits(element: tirx.Expr, bits: int, signed: bool) -> tirx.Expr:
    """The low bits of the value towards zero, as a value of the storage type."""
    low = converted(element, "int32") & ((1 << bits) - 1)
    sign = 1 << (bits - 1)
    return (low ^ sign) - sign if signed else low


def _dequantized(ctx: Emitter, codes: relax.Expr, dtype: str) -> relax.Expr:
    """The float32 of every code, by a table."""
    table = float_values(dtype)

    def element(tensors: tuple[te.Tensor, ...], index: tuple[Any, ...]) -> tirx.Expr:
        return tensors[1](tensors[0](*index).astype("int32"))

    return ctx.elements(shape_of(codes), element, codes, table, name="widen")


def float_values(dtype: str) -> Array:
    """Returns the float32 that each code of a narrow float stands for, `[256]`, or `[16]` of four bits."""
    every = np.arange(16 if dtype == "float4_e2m1fn" else 256, dtype=np.uint8)
    values: Array = every.view(numpy_dtype(dtype)).astype(np.float32)
    return values


@dataclass(frozen=True)
class _Format:
    """A narrow floating-point format: sign, exponent, mantissa.

    Attributes:
        mantissa: bits of the mantissa.
        bias: of the exponent.
        largest: the code of the largest finite number.
        beyond: the code of what is larger, without saturation.
        nan: the code of NaN.
        sign: the bit of the sign.
        negative_zero: whether there is one.
    """

    mantissa: int
    bias: int
    largest: int
    beyond: int
    nan: int
    sign: int = 0x80
    negative_zero: bool = True


_FORMATS = {
    "float8_e4m3fn": _Format(3, 7, 0x7E, beyond=0x7F, nan=0x7F),
    "float8_e4m3fnuz": _Format(3, 8, 0x7F, beyond=0x80, nan=0x80, negative_zero=False),
    "float8_e5m2": _Format(2, 15, 0x7B, beyond=0x7C, nan=0x7E),
    "float8_e5m2fnuz": _Format(2, 16, 0x7F, beyond=0x80, nan=0x80, negative_zero=False),
    "float8_e8m0fnu": _Format(0, 127, 0xFE, beyond=0xFF, nan=0xFF, sign=0),
    "float4_e2m1fn": _Format(1, 1, 0x7, beyond=0x7, nan=0x8, sign=0x8),
}


def float_code(dtype: str, value: tirx.Expr, saturate: bool = True) -> tirx.Expr:
    """Returns the code, a uint8, of a float32 in a narrow float with a mantissa, rounded to even."""
    return _code(_FORMATS[dtype], value, saturate).astype("uint8")


def _code(form: _Format, value: tirx.Expr, saturate: bool) -> tirx.Expr:
    """`((exponent + bias - 1) << mantissa) + digits`: the digits' leading one counts into the exponent.

    Below the smallest normal number the exponent stays, and the leading digit is zero.
    """
    # All in unsigned integers; `exponent` has the bias 127 of float32.
    bits = tirx.reinterpret("uint32", value)
    size = bits & _unsigned(0x7FFFFFFF)
    exponent = tirx.max(size >> _unsigned(23), _unsigned(128 - form.bias))
    scale = tirx.reinterpret("float32", (_unsigned(254 + form.mantissa) - exponent) << _unsigned(23))
    digits = tirx.nearbyint(tirx.reinterpret("float32", size) * scale).astype("uint32")
    made = ((exponent - _unsigned(128 - form.bias)) << _unsigned(form.mantissa)) + digits
    edge = _unsigned(form.largest if saturate else form.beyond)
    # Scales of infinities mean nothing.
    made = tirx.Select(tirx.any(made > _unsigned(form.largest), size >= _unsigned(0x7F800000)), edge, made)
    negative = bits > _unsigned(0x7FFFFFFF)
    signed = made | tirx.Select(negative, _unsigned(form.sign), _unsigned(0))
    if not form.negative_zero:
        signed = tirx.Select(made == _unsigned(0), _unsigned(0), signed)
        signed = tirx.Select(made == _unsigned(form.nan), made, signed)
    return tirx.Select(size > _unsigned(0x7F800000), _unsigned(form.nan), signed)


def _unsigned(number: int) -> tirx.Expr:
    return tirx.const(number, "uint32")


def _power_code(form: _Format, value: tirx.Expr, saturate: bool, rounding: str) -> tirx.Expr:
    """The exponent of the power of two above, below or next to the value; negative values have none."""
    bits = tirx.reinterpret("int32", value)
    exponent, tail = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    never = tirx.const(False)
    more = {"up": tail > 0, "nearest": tail >= 0x400000}.get(rounding, never)
    # A number below the smallest normal one has the code 0 for 2**-127, which is 0x400000 of its digits.
    small = {"up": tail > 0x400000, "nearest": tail > 0x600000}.get(rounding, never)
    made = exponent + tirx.Select(tirx.Select(exponent == 0, small, more), 1, 0)
    edge = form.largest if saturate else form.nan
    made = tirx.Select(made > form.largest, tirx.const(edge, "int32"), made)
    return tirx.Select((bits & 0x7FFFFFFF) > 0x7F800000, tirx.const(form.nan, "int32"), made)


def cast_array(array: Array, dtype: str, saturate: bool = True, rounding: str = "up") -> Array:
    """Casts a value known at compile time as `Cast` does at run time."""
    if dtype == "float8_e8m0fnu":
        return _powers_known(array.astype(np.float32), saturate, rounding)
    with np.errstate(all="ignore"):
        if is_float(str(array.dtype)) and dtype.lstrip("u") in ("int8", "int16", "int32", "int64"):
            return _whole_known(array, dtype)
        if not saturate or not dtype.startswith("float8"):
            return array.astype(numpy_dtype(dtype))
        limit = float(ml_dtypes.finfo(numpy_dtype(dtype)).max)  # type: ignore[no-untyped-call]
        wide = array.astype(np.float32)
        return np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit)).astype(numpy_dtype(dtype))


def _whole_known(array: Array, dtype: str) -> Array:
    """Reals as integers, as :func:`nnefc.operators.math.functions.converted` has them."""
    real = array.astype(np.float64)
    signed = np.int64 if dtype in ("int64", "uint32", "uint64") else np.int32
    large = (real >= 2.0**63) & (dtype == "uint64")
    tail = np.where(large, real - 2.0**63, real)
    fits = np.abs(tail) < -float(np.iinfo(signed).min)
    low = np.where(fits, np.where(fits, tail, 0).astype(signed), np.iinfo(signed).min)
    bits = np.where(large, low.astype(np.uint64) ^ np.uint64(1 << 63), low.astype(np.uint64))
    return bits.astype(dtype)


def _powers_known(array: Array, saturate: bool, rounding: str) -> Array:
    mantissa, exponent = np.frexp(np.abs(array))
    code = np.where(array == 0, 0, exponent.astype(np.int64) - 1 + 127)
    code += {"up": mantissa > 0.5, "nearest": mantissa >= 0.75}.get(rounding, np.zeros(array.shape, bool))
    code = np.clip(code, 0, 254) if saturate else np.where(code > 254, 255, np.maximum(code, 0))
    code = np.where(np.isinf(array), 254 if saturate else 255, code)
    return np.where(np.isnan(array), 255, code).astype(np.uint8).view(numpy_dtype("float8_e8m0fnu"))


@dataclass(frozen=True)
class BitCast(SameShape):
    """The same bits as another element type of the same width."""

    dtype: str

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        source = dtype_of(x)
        if numpy_dtype(self.dtype).itemsize != numpy_dtype(source).itemsize:
            raise CompileError(f"{source} and {self.dtype} differ in width")
        if isinstance(x, np.ndarray):
            return np.ascontiguousarray(x).reshape(-1).view(numpy_dtype(self.dtype)).reshape(x.shape)
        if "bool" in (self.dtype, source):
            return Cast(self.dtype).lower(ctx, x)
        return ctx.elements(shape_of(x), lambda t, i: tirx.reinterpret(self.dtype, t[0](*i)), x, name="bit_cast")


@dataclass(frozen=True)
class BitParts(Operator):
    """The same bits as another element type, whose elements are `count` times as narrow or as wide.

    Narrow ones lie along a last dimension of `count` elements, those of the low bits first.
    """

    dtype: str

    def shape(self, x: Shape, source: str = "") -> Shape:
        """`[…]` of wide elements, `[…, count]` of narrow ones."""
        wide, narrow = (numpy_dtype(name).itemsize for name in (source, self.dtype))
        if wide > narrow:
            return (*x, wide // narrow)
        if wide < narrow and (not x or not unify_dims(x[-1], narrow // wide)):
            raise CompileError(f"{list(x)} of {source} has no last dimension of {narrow // wide} for {self.dtype}")
        return x[:-1] if wide < narrow else x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        source, dtype = dtype_of(x), self.dtype
        shape = self.shape(shape_of(x), source)
        if isinstance(x, np.ndarray):
            return np.ascontiguousarray(x).reshape(-1).view(numpy_dtype(dtype)).reshape(shape)
        wide, narrow = (8 * numpy_dtype(name).itemsize for name in (source, dtype))
        if wide == narrow:
            return BitCast(dtype).lower(ctx, x)
        if "bool" in (source, dtype):
            raise CompileError(f"{source} as {dtype} is not supported")
        larger, smaller = f"uint{max(wide, narrow)}", f"uint{min(wide, narrow)}"
        width = tirx.const(min(wide, narrow), larger)

        def part(t: tuple[Any, ...], i: tuple[Any, ...]) -> tirx.Expr:
            bits = tirx.reinterpret(larger, t[0](*i[:-1])) >> (i[-1].astype(larger) * width)
            return tirx.reinterpret(dtype, bits.astype(smaller))

        def joined(t: tuple[Any, ...], i: tuple[Any, ...]) -> tirx.Expr:
            parts = [
                tirx.reinterpret(smaller, t[0](*i, k)).astype(larger) << (tirx.const(k, larger) * width)
                for k in range(narrow // wide)
            ]
            return tirx.reinterpret(dtype, functools.reduce(lambda x, y: x | y, parts))

        return ctx.elements(shape, part if wide > narrow else joined, x, name="bit_parts")
