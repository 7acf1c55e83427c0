"""Quantization, dequantization, requantization, and integer matrix products and convolutions.

Products and sums are computed in int32, exactly. Only requantization goes over real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from tvm import relax, tirx

from nnefc.operators.base import (
    Array,
    Emitter,
    Operand,
    Operator,
    SameShape,
    Shape,
    dtype_of,
    is_empty,
    rank_of,
    shape_of,
    zeros,
)
from nnefc.operators.dtypes import STORAGE, numpy_dtype, promoted_type
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import apply, compute
from nnefc.operators.math.functions import element_dtype
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.nn.convolution import Convolution
from nnefc.operators.nn.window import Window, no_padding
from nnefc.operators.tensor.padding import Pad
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import ceil_div, element_count
from nnefc.symbolic.unification import unify_counts, unify_dims, unify_repeated, unify_shapes

__all__ = [
    "RANGES",
    "Dequantization",
    "DynamicQuantization",
    "IntegerConvolution",
    "IntegerProduct",
    "Quantization",
    "QuantizedTensor",
    "Quotients",
    "Requantization",
    "clamped",
    "quantized_product",
]

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


class QuantizedTensor(NamedTuple):
    """Integers of 8 bits and what they stand for, `(elements - zero) * scale`; both broadcast, the scale is float32."""

    elements: Operand
    scale: Operand
    zero: Operand


# Arithmetic in int32, in operators that the passes know.

_ARITHMETIC: dict[str, tuple[Callable[..., relax.Expr], Callable[..., Array]]] = {
    "add": (relax.op.add, np.add),
    "subtract": (relax.op.subtract, np.subtract),
    "multiply": (relax.op.multiply, np.multiply),
}


def _arithmetic(ctx: Emitter, name: str, a: Operand, b: Operand) -> Operand:
    """`a` and `b`, both int32, added, subtracted or multiplied, modulo 2³²."""
    function, on_arrays = _ARITHMETIC[name]
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        with np.errstate(over="ignore"):
            return np.asarray(on_arrays(a, b))
    return ctx.emit(function(ctx.expr(a), ctx.expr(b)))


def _wide(ctx: Emitter, x: Operand) -> Operand:
    """The elements as int32."""
    made: Operand = ctx.apply(Cast("int32"), x)
    return made


def _sum_over(ctx: Emitter, x: Operand, axes: Sequence[int]) -> Operand:
    """The sums over `axes` in int32; the dimensions stay, with the size 1."""
    if isinstance(x, np.ndarray):
        return x.astype(np.int64).sum(tuple(axes), keepdims=True).astype(np.int32)
    return ctx.emit(relax.op.sum(relax.op.astype(ctx.expr(x), "int32"), list(axes), keepdims=True))


def _is_zero(x: Operand | None) -> bool:
    """Returns whether a zero point is left out, or known to be 0."""
    return x is None or (isinstance(x, np.ndarray) and not x.any())


def _without_zero(weights: Operand, zero: Operand | None) -> tuple[Operand, Operand | None]:
    """Weights from which their zero point is subtracted, if the differences have 8 bits too; else both as they are.

    `zero` broadcasts to the weights.
    """
    if _is_zero(zero):
        return weights, None
    if isinstance(weights, np.ndarray) and isinstance(zero, np.ndarray):
        centred = weights.astype(np.int32) - zero.astype(np.int32)
        for dtype in _NARROW:
            low, high = RANGES[dtype]
            if not centred.size or (centred.min() >= low and centred.max() <= high):
                return centred.astype(dtype), None
    return weights, zero


def _centred(ctx: Emitter, x: Operand, zero: Operand | None) -> Operand:
    """`x - zero` in int32."""
    wide = _wide(ctx, x)
    return wide if zero is None else _arithmetic(ctx, "subtract", wide, _wide(ctx, zero))


# Convolutions.


@dataclass(frozen=True)
class IntegerConvolution(Operator):
    """The convolution of integers, `sum((x - x_zero) * (w - w_zero)) + bias` in int32, modulo 2³².

    What padding adds is worth `x_zero`, so that it adds nothing. ONNX `ConvInteger`, and before it is requantized
    `QLinearConv`.
    """

    window: Window
    groups: int = 1

    def shape(
        self, x: Shape, w: Shape, x_zero: Shape | None = None, w_zero: Shape | None = None, bias: Shape | None = None
    ) -> Shape:
        """Return `[N, O, *spatial]` for data `[N, groups C, *spatial]` and a filter `[O, C, *k]`."""
        if x_zero is not None and not unify_dims(element_count(x_zero), 1):
            raise CompileError(f"the input's zero point has the shape {list(x_zero)}, not that of a scalar")
        if w_zero is not None and not unify_repeated(element_count(w_zero), w[0]):
            raise CompileError(f"the filter's zero point {list(w_zero)} should be a scalar or [{w[0]}]")
        if bias is not None and not unify_dims(math.prod(bias), w[0]):
            raise CompileError(f"the bias {list(bias)} does not fit {w[0]} channels")
        return Convolution(self.window, self.groups, sums="int32").shape(x, w)

    def lower(
        self,
        ctx: Emitter,
        x: Operand,
        w: Operand,
        x_zero: Operand | None = None,
        w_zero: Operand | None = None,
        bias: Operand | None = None,
    ) -> Operand:
        """Zero points are of the operands' types: one number, or for the filter one of each output channel."""
        others = [None if operand is None else shape_of(operand) for operand in (x_zero, w_zero, bias)]
        self.shape(shape_of(x), shape_of(w), *others)
        filters, ones = shape_of(w)[0], [1] * (rank_of(w) - 2)
        x_zero = None if x_zero is None else ctx.reshaped(x_zero, ())
        w_zero = None if w_zero is None else ctx.reshaped(w_zero, (element_count(shape_of(w_zero)), 1, *ones))
        bias = None if bias is None else ctx.reshaped(bias, (1, filters, *ones))
        foldable = isinstance(x, np.ndarray) or not isinstance(w, np.ndarray) or is_empty(shape_of(x))
        if foldable or not {dtype_of(x), dtype_of(w)} <= set(_NARROW):
            sums = self._sums(ctx, self.window, _centred(ctx, x, x_zero), _centred(ctx, w, w_zero))
            return sums if bias is None else _arithmetic(ctx, "add", sums, bias)
        return self._narrow(ctx, x, w, x_zero, w_zero, bias)

    def _narrow(
        self, ctx: Emitter, x: Operand, w: Operand, x_zero: Operand | None, w_zero: Operand | None, bias: Operand | None
    ) -> Operand:
        """A convolution of 8-bit integers as they are, and what the zero points change in each sum.

        `sum((x - a)(w - b)) = sum(x w) - a sum(w) - b (sum(x) - a n)`, where n is the number of terms. `sum(w)` is
        known.
        """
        (filters, *terms), rank, window = shape_of(w), rank_of(w), self.window
        w, w_zero = _without_zero(w, w_zero)
        origin: Operand | None = None
        if x_zero is not None and not _is_zero(x_zero):
            x = ctx.bound(Pad((*no_padding(2), *window.padding)).lower(ctx, x, x_zero))
            window = window.unpadded()
            origin = _wide(ctx, x_zero)
            sums = ctx.reshaped(_sum_over(ctx, w, range(1, rank)), (1, filters, *[1] * (rank - 2)))
            less = _arithmetic(ctx, "multiply", sums, origin)
            bias = _arithmetic(ctx, "subtract", np.zeros((), np.int32) if bias is None else bias, less)
        result = self._sums(ctx, window, x, w)
        if bias is not None:
            result = _arithmetic(ctx, "add", result, bias)
        if w_zero is None:
            return result
        ones = np.ones((1 if self.groups == 1 else filters, *terms), w.dtype)
        moved = self._sums(ctx, window, x, ones)
        if origin is not None:
            count = np.array(math.prod(terms), np.int32)
            moved = _arithmetic(ctx, "subtract", moved, _arithmetic(ctx, "multiply", origin, count))
        factor = ctx.reshaped(_wide(ctx, w_zero), (1, shape_of(w_zero)[0], *[1] * (rank - 2)))
        return _arithmetic(ctx, "subtract", result, _arithmetic(ctx, "multiply", moved, factor))

    def _sums(self, ctx: Emitter, window: Window, x: Operand, w: Operand) -> Operand:
        return ctx.bound(Convolution(window, self.groups, sums="int32").lower(ctx, x, w))


# Products of matrices.


@dataclass(frozen=True)
class IntegerProduct(Operator):
    """The matrix product of integers, `(a - a_zero) @ (b - b_zero)` in int32, modulo 2³².

    Vectors are rows and columns, dimensions before the last two broadcast, as in NumPy. ONNX `MatMulInteger`, and
    before it is requantized `QLinearMatMul`.
    """

    def shape(self, a: Shape, b: Shape, a_zero: Shape | None = None, b_zero: Shape | None = None) -> Shape:
        """Return the shape of NumPy's `matmul`."""
        return MatMul().shape(a, b)

    def lower(
        self, ctx: Emitter, a: Operand, b: Operand, a_zero: Operand | None = None, b_zero: Operand | None = None
    ) -> Operand:
        """Zero points are of the operands' types and broadcast: one number, of each row of `a`, each column of `b`."""
        shape = self.shape(shape_of(a), shape_of(b))
        if is_empty(shape_of(a)) or is_empty(shape_of(b)):
            return zeros(shape, np.int32)
        known = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
        if known or not {dtype_of(a), dtype_of(b)} <= set(_NARROW):
            return ctx.bound(MatMul().lower(ctx, _centred(ctx, a, a_zero), _centred(ctx, b, b_zero)))
        a = a if rank_of(a) > 1 else ctx.reshaped(a, (1, *shape_of(a)))
        b = b if rank_of(b) > 1 else ctx.reshaped(b, (*shape_of(b), 1))
        return ctx.reshaped(_narrow_product(ctx, a, b, a_zero, b_zero), shape)


def _narrow_product(ctx: Emitter, a: Operand, b: Operand, a_zero: Operand | None, b_zero: Operand | None) -> Operand:
    """A product of 8-bit matrices as they are, and what the zero points change in each sum, as for convolutions."""
    b, b_zero = _without_zero(b, b_zero)
    result: Operand = ctx.emit(relax.op.matmul(ctx.expr(a), ctx.expr(b), out_dtype="int32"))
    origin: Operand | None = None
    if a_zero is not None and not _is_zero(a_zero):
        origin = _wide(ctx, a_zero)
        less = _arithmetic(ctx, "multiply", _sum_over(ctx, b, [rank_of(b) - 2]), origin)
        result = _arithmetic(ctx, "subtract", result, less)
    if b_zero is None:
        return result
    elements = a if origin is None else _arithmetic(ctx, "subtract", _wide(ctx, a), origin)
    moved = _sum_over(ctx, elements, [rank_of(a) - 1])
    return _arithmetic(ctx, "subtract", result, _arithmetic(ctx, "multiply", moved, _wide(ctx, b_zero)))


def quantized_product(ctx: Emitter, x: QuantizedTensor, w: QuantizedTensor) -> relax.Expr:
    """The product of matrices that stand for real numbers: summed in int32, then scaled, in float32."""
    sums = _narrow_product(ctx, x.elements, w.elements, x.zero, w.zero)
    return ctx.expr(apply(ctx, "multiply", ctx.apply(Cast("float32"), sums), apply(ctx, "multiply", x.scale, w.scale)))


@dataclass(frozen=True)
class Requantization(SameShape):
    """`round(sums * (a * b / y)) + zero` clipped to the range of a type, rounded to even, in float32.

    Attributes:
        dtype: one of `RANGES`, of 8 or 16 bits.
    """

    dtype: str

    def lower(self, ctx: Emitter, sums: Operand, a: Operand, b: Operand, y: Operand, zero: Operand) -> relax.Expr:
        """The scales of both factors and of the result, float32, and its zero point; all broadcast to the sums."""
        factor = apply(ctx, "divide", apply(ctx, "multiply", a, b), y)
        low, high = RANGES[self.dtype]
        moved = relax.op.round(relax.op.multiply(relax.op.astype(ctx.expr(sums), "float32"), ctx.expr(factor)))
        if not _is_zero(zero):
            moved = relax.op.add(moved, ctx.expr(ctx.apply(Cast("float32"), zero)))
        cut = relax.op.clip(moved, float(low), float(high))
        return relax.op.astype(relax.op.astype(cut, "int32"), self.dtype)


# From real numbers and back.


@dataclass(frozen=True)
class _Scaled(Operator):
    """An operator on each element with its scale and its zero point.

    Attributes:
        axis: the dimension along which scales differ; None: there is one scale.
        block: how many consecutive positions of that dimension share a scale; 0: scales are a vector along it.
    """

    axis: int | None = None
    block: int = 0

    def shape(self, x: Shape, scale: Shape, zero: Shape | None = None) -> Shape:
        """Return the shape of the first operand."""
        if zero is not None and not unify_counts(zero, scale):
            raise CompileError(f"the zero point {list(zero)} does not fit the scale {list(scale)}")
        if self.block:
            blocks = tuple(ceil_div(size, self.block) if a == self.axis else size for a, size in enumerate(x))
            if not unify_shapes(scale, blocks):
                raise CompileError(f"blocks of {self.block} need scales of the shape {list(blocks)}, not {list(scale)}")
        elif self.axis is not None and not unify_shapes(scale, (x[self.axis],)):
            raise CompileError(f"the scales {list(scale)} do not fit axis {self.axis} of {list(x)}")
        return x

    def check(self, x: Operand, scale: Operand, zero: Operand | None) -> None:
        """Check that the shapes fit."""
        self.shape(shape_of(x), shape_of(scale), None if zero is None else shape_of(zero))

    def _position(self, index: tuple[Any, ...], rank: int) -> tuple[Any, ...]:
        """Returns the index of an element's scale, which has this rank."""
        if self.axis is None:
            return (0,) * rank
        if self.block:
            return tuple(tirx.floordiv(i, self.block) if a == self.axis else i for a, i in enumerate(index))
        return (index[self.axis],)

    def _parameters(self, ctx: Emitter, x: Shape, scale: Operand, zero: Operand | None, dtype: str) -> list[Any] | None:
        """Scale, zero point and axis as `relax.op.quantize` and `dequantize` take them, which passes know.

        None where they do not: unless both are known, float32 and integers in the range of `dtype`, of the whole
        tensor or along a dimension.
        """
        zero = zeros(shape_of(scale), dtype) if zero is None else zero
        known = isinstance(scale, np.ndarray) and isinstance(zero, np.ndarray) and scale.dtype == np.float32
        if not known or self.block or not x:
            return None
        if not np.can_cast(zero.dtype, dtype) and not np.array_equal(zero, zero.astype(dtype)):
            return None
        shape = () if self.axis is None else shape_of(scale)
        return [*(ctx.expr(ctx.reshaped(one, shape)) for one in (scale, zero)), -1 if self.axis is None else self.axis]


@dataclass(frozen=True)
class Quotients(_Scaled):
    """`x / scale`, rounded to the type `work`, as float32. ONNX `QuantizeLinear` before it rounds to a float."""

    work: str = "float32"

    def lower(self, ctx: Emitter, x: Operand, scale: Operand, zero: Operand | None = None) -> Operand:
        """The zero point does not matter: it is zero."""
        self.check(x, scale, zero)
        if is_empty(shape_of(x)):
            return zeros(shape_of(x), np.float32)

        def element(t: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            return self._quotient(t, index).astype("float32")

        return ctx.elements(shape_of(x), element, x, scale, name="quotients")

    def _quotient(self, t: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        """16-bit floats are divided as such: the quotient is rounded to their type before it is rounded to an
        integer."""
        wide = promoted_type(self.work)
        quotient = t[0](*index).astype(wide) / t[1](*self._position(index, len(t[1].shape))).astype(wide)
        return quotient if self.work == wide else quotient.astype(self.work).astype(wide)


@dataclass(frozen=True)
class Quantization(Quotients):
    """`round(x / scale) + zero` clipped to the range of an integer type, rounded to even. ONNX `QuantizeLinear`.

    Attributes:
        dtype: one of `RANGES`; those of fewer bits are kept in 8.
        work: the type that `x / scale` is rounded to.
    """

    dtype: str = "uint8"

    def lower(self, ctx: Emitter, x: Operand, scale: Operand, zero: Operand | None = None) -> Operand:
        self.check(x, scale, zero)
        if is_empty(shape_of(x)):
            return zeros(shape_of(x), STORAGE.get(self.dtype, self.dtype))
        if self.dtype in _NARROW and self.work == dtype_of(x) == "float32":
            parameters = self._parameters(ctx, shape_of(x), scale, zero, self.dtype)
            if parameters is not None:
                return relax.op.quantize(ctx.expr(x), *parameters, self.dtype)
        extra = [] if zero is None else [ctx.reshaped(zero, shape_of(scale))]
        wide = promoted_type(self.work)

        def element(t: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            value = tirx.nearbyint(self._quotient(t, index))
            value = value + t[2](*self._position(index, len(t[2].shape))).astype(wide) if extra else value
            return clamped(value, *RANGES[self.dtype]).astype("int32").astype(STORAGE.get(self.dtype, self.dtype))

        return ctx.elements(shape_of(x), element, x, scale, *extra, name="quantize")


@dataclass(frozen=True)
class Dequantization(_Scaled):
    """`(x - zero) * scale` of integers; also `x * scale` of float32. ONNX `DequantizeLinear`.

    Attributes:
        dtype: of the result.
    """

    dtype: str = "float32"

    def lower(self, ctx: Emitter, x: Operand, scale: Operand, zero: Operand | None = None) -> Operand:
        """Emit the dequantized tensor. If `x` is float32, the zero point is zero and is ignored."""
        self.check(x, scale, zero)
        if is_empty(shape_of(x)):
            return zeros(shape_of(x), numpy_dtype(self.dtype))
        if dtype_of(x) in (*_NARROW, "int32") and self.dtype == "float32":
            parameters = self._parameters(ctx, shape_of(x), scale, zero, dtype_of(x))
            if parameters is not None:
                return relax.op.dequantize(ctx.expr(x), *parameters, "float32")
        work = "float64" if dtype_of(scale) == "float64" else "float32"
        inner = "float32" if dtype_of(x) == "float32" else "int32"
        extra = [] if zero is None or inner == "float32" else [ctx.reshaped(zero, shape_of(scale))]

        def element(t: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            position = self._position(index, len(t[1].shape))
            value = t[0](*index).astype(inner)
            value = value - t[2](*position).astype(inner) if extra else value
            return (value.astype(work) * t[1](*position).astype(work)).astype(self.dtype)

        return ctx.elements(shape_of(x), element, x, scale, *extra, name="dequantize")


@dataclass(frozen=True)
class DynamicQuantization(Operator):
    """A float32 tensor as uint8, its scale and its zero point: its range, with zero in it, is mapped to 0 … 255.

    ONNX `DynamicQuantizeLinear`.
    """

    def shape(self, x: Shape) -> tuple[Shape, Shape, Shape]:
        """Return the shapes of the integers, the scale and the zero point."""
        return x, (), ()

    def lower(self, ctx: Emitter, x: Operand) -> QuantizedTensor:
        zero = np.zeros((1, 1), np.float32)
        low = apply(ctx, "minimum", _min_or_max(ctx, relax.op.min, x), zero)
        high = apply(ctx, "maximum", _min_or_max(ctx, relax.op.max, x), zero)
        span = apply(ctx, "divide", apply(ctx, "subtract", high, low), np.array(255, np.float32))
        scale = ctx.bound(compute(ctx, _or_one, span, name="scale", dtype="float32"))

        def origin(low: Any, scale: Any) -> Any:
            return _as_byte(tirx.nearbyint(tirx.const(0, "float32") - low / scale))

        def quantized(element: Any, scale: Any, origin: Any) -> Any:
            return _as_byte(tirx.nearbyint(element / scale) + origin.astype("float32"))

        point = ctx.reshaped(ctx.bound(compute(ctx, origin, low, scale, name="zero_point", dtype="uint8")), ())
        scale = ctx.reshaped(scale, ())
        elements = ctx.bound(compute(ctx, quantized, x, scale, point, name="quantize", dtype="uint8"))
        return QuantizedTensor(elements, scale, point)


def clamped(value: tirx.Expr, low: int, high: int) -> tirx.Expr:
    """Returns a real between two limits; NaN becomes the lower one, as in onnxruntime on x86-64."""
    lower, upper = (tirx.const(limit, element_dtype(value)) for limit in (low, high))
    return tirx.min(tirx.max(value, lower), upper)


def _min_or_max(ctx: Emitter, function: Callable[..., relax.Expr], x: Operand) -> relax.Expr:
    """The smallest or the greatest element, `[1, 1]`; the whole tensor is one row."""
    row = ctx.reshaped(x, (1, math.prod(shape_of(x))))
    return ctx.emit(function(ctx.expr(row), [-1], keepdims=True))


def _or_one(scale: Any) -> Any:
    """The scale; 1, as in onnxruntime, of zeros or no elements, for which ONNX's formula gives 0 and divides by it."""
    return tirx.Select(scale == tirx.const(0, "float32"), tirx.const(1, "float32"), scale)


def _as_byte(value: Any) -> Any:
    return clamped(value, *RANGES["uint8"]).astype("int32")
