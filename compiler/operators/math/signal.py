"""Signal operators: discrete Fourier transforms of whole signals and of frames, mel filter banks.

A transform of a length known at compile time is one or two products with constant matrices; other lengths use
`fourier.py`.

Signals and spectra have a last dimension for the real and the imaginary part; that of real signals has the size 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, shape_of
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.fourier import fourier_of_any_length
from nnefc.operators.tensor.shape import Slice, Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, is_known, known_less, minimum
from nnefc.symbolic.unification import covers, unify_dims, unify_shapes, within

__all__ = ["FourierTransform", "MelWeights", "ShortTimeFourierTransform"]

_MAX = 1 << 14
"""The longest transform by matrices: where that is prime, its matrix has the square of this."""

_Matrix = Callable[[int, int, int, int], Array]
"""The type of `_forward` and `_backward`."""


def _forward(count: int, length: int, bins: int, parts: int) -> Array:
    """`[count * parts, bins * 2]`: from interleaved signals to interleaved spectra; elements beyond `length` are
    cut."""
    angle = -2 * np.pi * (np.arange(count)[:, None] * np.arange(bins)[None, :] % length) / length
    cosine, sine = np.cos(angle), np.sin(angle)
    whole = np.zeros((count, parts, bins, 2))
    whole[:, 0, :, 0], whole[:, 0, :, 1] = cosine, sine
    if parts == 2:
        whole[:, 1, :, 0], whole[:, 1, :, 1] = -sine, cosine
    return whole.reshape(count * parts, bins * 2)


def _backward(count: int, length: int, bins: int, parts: int) -> Array:
    """The same from spectra to signals, not divided by the length: with conjugated numbers."""
    rotated = _forward(count, length, bins, parts).reshape(count, parts, bins, 2)
    rotated[:, 0, :, 1] *= -1
    rotated[:, 1:, :, 0] *= -1
    return rotated.reshape(count * parts, bins * 2)


def _inverse_of_half(count: int, length: int, parts: int) -> Array:
    """Return the matrix `[count * parts, length]` from the lower half of a real signal's spectrum to the signal."""
    both = np.array([1.0 if k == 0 or 2 * k == length else 2.0 for k in range(count)])
    angle = 2 * np.pi * (np.arange(count)[:, None] * np.arange(length)[None, :] % length) / length
    whole = np.stack([np.cos(angle), -np.sin(angle)], 1)[:, :parts] * both[:, None, None]
    return np.asarray(whole.reshape(count * parts, length) / length)


def _multiplied(ctx: Emitter, rows: Operand, matrix: Array) -> Operand:
    """The product with a matrix, or of several each with one of its own, bound to a variable."""
    own = matrix.astype(ctx.number(0, rows).dtype)
    return rows @ own if isinstance(rows, np.ndarray) else ctx.emit(relax.op.matmul(ctx.expr(rows), ctx.expr(own)))


def _transformed(ctx: Emitter, rows: Operand, matrix: _Matrix, length: int, bins: int, parts: int) -> Operand:
    """`[rows, length * parts]` → `[rows, bins * 2]`: a product with one matrix, or, where these need a quarter of the
    multiplications or fewer, two with smaller ones (Cooley and Tukey, 1965).

    With `length = p q`, an element is at `q n + m` and a frequency at `k + p l`. For each `m` the elements are
    transformed over `n`, which gives `k`; then for each `k` over `m`, which gives `l`.
    """
    p = max((size for size in range(1, math.isqrt(length) + 1) if length % size == 0), default=1)
    q, count = length // p, -(-bins // p)
    if 4 * length * (2 * p * parts + 4 * count) > 2 * length * parts * bins:
        return _multiplied(ctx, rows, matrix(length, length, bins, parts))
    number = shape_of(rows)[0]
    apart = ctx.apply(Transpose((0, 2, 1, 3)), ctx.reshaped(rows, (number, p, q, parts)))
    first = _multiplied(ctx, ctx.reshaped(apart, (number * q, p * parts)), matrix(p, p, p, parts))
    rotated = ctx.apply(Transpose((2, 0, 1, 3)), ctx.reshaped(first, (number, q, p, 2)))
    second = matrix(q, length, p * count, 2).reshape(2 * q, count, p, 2).transpose(2, 0, 1, 3)
    made = _multiplied(ctx, ctx.reshaped(rotated, (p, number, 2 * q)), second.reshape(p, 2 * q, 2 * count))
    joined = ctx.apply(Transpose((1, 2, 0, 3)), ctx.reshaped(made, (p, number, count, 2)))
    spectra = ctx.reshaped(joined, (number, count * p * 2))
    return ctx.apply(Slice({1: (0, bins * 2, 1)}), spectra)


def _holds_parts(size: Dimension, is_real: bool) -> bool:
    """Returns whether a dimension may hold a real and an imaginary part, or a real one alone."""
    if is_known(size):
        return size in (1, 2)
    return unify_dims(size, 1) if is_real else within(size, 1, 2)


@dataclass(frozen=True)
class FourierTransform(Operator):
    """The discrete Fourier transform along an axis, or back. ONNX `DFT`.

    Attributes:
        axis: from the front; not the last one.
        length: of the transform: signals are cut to it, or zeros follow them; None: what the operand has. It may be
            known at run time only.
        inverse: from spectra to signals, divided by the length.
        onesided: of real signals, spectra are the lower half, which determines the other.
    """

    axis: int
    length: Dimension | None = None
    inverse: bool = False
    onesided: bool = False

    def shape(self, x: Shape) -> Shape:
        """Return the shape with the number of frequencies, or of the signal's elements, along the axis."""
        if len(x) < 2 or not _holds_parts(x[-1], self.onesided and not self.inverse):
            raise CompileError(f"the last dimension of {list(x)} is neither 1 nor 2")
        if self.axis == len(x) - 1:
            raise CompileError(f"axis {self.axis} holds the real and imaginary parts")
        length = self._length(x)
        if not covers(length, 1):
            raise CompileError(f"there is no transform of {length} elements")
        count = length // 2 + 1 if self.onesided and not self.inverse else length
        return (*x[: self.axis], count, *x[self.axis + 1 : -1], 1 if self.onesided and self.inverse else 2)

    def _length(self, x: Shape) -> int:
        if self.length is not None:
            return self.length
        return 2 * (x[self.axis] - 1) if self.inverse and self.onesided else x[self.axis]

    def _product(self, ctx: Emitter, rows: Operand, count: Dimension, length: Dimension, parts: Dimension) -> Operand:
        """Emit the transform of rows of `count` elements, `[rows, count * parts]`."""
        if not is_known(count, length, parts) or length > _MAX:
            bins = length // 2 + 1 if self.onesided and not self.inverse else length
            half = self.onesided and self.inverse
            return fourier_of_any_length(ctx, rows, length, bins, parts, self.inverse, half)
        if self.inverse and self.onesided:
            return _multiplied(ctx, rows, _inverse_of_half(count, length, parts))
        bins = length // 2 + 1 if self.onesided else length
        matrix = _backward if self.inverse else _forward
        if count == length:
            made = _transformed(ctx, rows, matrix, length, bins, parts)
        else:
            made = _multiplied(ctx, rows, matrix(count, length, bins, parts))
        return apply(ctx, "multiply", made, ctx.number(1 / length, made)) if self.inverse else made

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape, result = shape_of(x), self.shape(shape_of(x))
        length, parts, last = self._length(shape), shape[-1], len(shape) - 1
        count = minimum(shape[self.axis], length // 2 + 1 if self.inverse and self.onesided else length)
        order = [*(axis for axis in range(last) if axis != self.axis), self.axis, last]
        cut = ctx.apply(Slice({self.axis: (0, count, 1)}), x)
        lead = [shape[axis] for axis in order[:-2]]
        rows = ctx.reshaped(ctx.apply(Transpose(tuple(order)), cut), (math.prod(lead), count * parts))
        product = self._product(ctx, rows, count, length, parts)
        made = ctx.reshaped(product, (*lead, *(result[axis] for axis in order[-2:])))
        return Transpose(tuple(map(order.index, range(last + 1)))).lower(ctx, made)


@dataclass(frozen=True)
class ShortTimeFourierTransform(Operator):
    """The discrete Fourier transform of each frame of signals `[N, elements, parts]`: `[N, frames, bins, 2]`. ONNX
    `STFT`.

    Attributes:
        step: between the beginnings of frames.
        length: of a frame; it is multiplied by the second operand, a window, if there is one.
        onesided: whether spectra are the lower half only.
    """

    step: int
    length: Dimension
    onesided: bool

    def shape(self, x: Shape, window: Shape | None = None) -> Shape:
        """`[N, frames, bins, 2]`."""
        fits = (
            len(x) in (2, 3)
            and self.step >= 1
            and covers(self.length, 1)
            and all(_holds_parts(n, self.onesided) for n in x[2:])
        )
        if not fits or known_less(x[1], self.length):
            raise CompileError(f"frames of {self.length} elements every {self.step} do not fit {list(x)}")
        if window is not None and not unify_shapes(window, (self.length,)):
            raise CompileError(f"the window {list(window or ())} does not fit frames of {self.length} elements")
        frames = (x[1] - self.length) // self.step + 1
        return x[0], frames, self.length // 2 + 1 if self.onesided else self.length, 2

    def lower(self, ctx: Emitter, x: Operand, window: Operand | None = None) -> Operand:
        """Real signals may be `[N, elements]`."""
        result = self.shape(shape_of(x), None if window is None else shape_of(window))
        count, elements, *parts = shape_of(x)
        parts = parts or [1]

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            n, frame, scalar, part = index
            value = tensors[0](n, frame * self.step + scalar, part)
            return value * tensors[1](scalar) if window is not None else value

        operands = [ctx.reshaped(x, (count, elements, *parts)), *([] if window is None else [window])]
        frames = ctx.elements((*result[:2], self.length, *parts), element, *operands, name="frames")
        rows = ctx.reshaped(ctx.emit(frames), (count * result[1], self.length * parts[0]))
        if is_known(self.length, *parts) and self.length <= _MAX:
            return ctx.reshaped(_transformed(ctx, rows, _forward, self.length, result[2], parts[0]), result)
        return ctx.reshaped(fourier_of_any_length(ctx, rows, self.length, result[2], parts[0]), result)


@dataclass(frozen=True)
class MelWeights(Operator):
    """The matrix from spectra to bands, `[length // 2 + 1, bands]`, an array. ONNX `MelWeightMatrix`.

    Bands are triangles that rise and fall between neighbours among frequencies evenly spaced in mel.

    Attributes:
        bands: how many.
        length: of the transforms that the spectra are of.
        rate: elements of a signal a second.
        low, high: edges of the first and the last band, in Hz.
    """

    bands: int
    length: int
    rate: int
    low: float
    high: float

    def shape(self) -> Shape:
        """A row for each frequency, a column for each band."""
        if not (0 < self.bands <= _MAX and 0 < self.length <= 1 << 20 and self.rate > 0):
            raise CompileError(f"cannot make {self.bands} bands of {self.length} elements at {self.rate} Hz")
        return self.length // 2 + 1, self.bands

    def lower(self, ctx: Emitter) -> Array:
        weights = np.zeros(self.shape())
        if min(self.low, self.high) <= -700:
            raise CompileError(f"bands from {self.low} to {self.high} Hz have no position in mel")
        low, high = (2595 * np.log10(1 + edge / 700) for edge in (self.low, self.high))
        mel = np.arange(self.bands + 2) * ((high - low) / (self.bands + 2)) + low
        positions = np.floor((self.length + 1) * 700 * (10 ** (mel / 2595) - 1) / self.rate).astype(np.int64)
        if positions.min() < 0 or positions.max() > len(weights):
            raise CompileError("the edges are beyond half of the sample rate")
        for band, (first, centre, last) in enumerate(zip(positions, positions[1:], positions[2:], strict=False)):
            if centre == first:
                weights[centre, band] = 1
            else:
                rising = np.arange(first, min(centre + 1, len(weights)))
                weights[rising, band] = (rising - first) / (centre - first)
            if last > centre:
                falling = np.arange(centre, min(last, len(weights)))
                weights[falling, band] = (last - falling) / (last - centre)
        return weights
