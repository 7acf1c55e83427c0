"""Computes depthwise convolutions by instructions that sum four int8 products (int8x4).

Four neighbouring pixels of a channel are one word. They lie a block apart, and one or two instructions bring those of a
block together; neighbouring results have most of their windows in the same words:

    w0 = pixels 0 1 2 3    r0 = w0 · [a b c 0]                   of a row of a filter [a b c], at each pixel
                           r1 = w0 · [0 a b c]
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import te, tirx
from tvm.ir.expr import TensorLoad
from tvm.sym import Analyzer

from nnefc.ir.attributes import SHARED_WORDS
from nnefc.passes.compute.dot.dot_product import Multiplication, multiplication_of
from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.symbolic.dims import Dimension, ceil_div, dimension, is_known
from nnefc.targets.machine.cpu.target import Target

__all__ = ["Words", "convolve_int8x4", "use_int8x4", "words_of"]


_NAME = "nnefc.word_of_neighbours"
_PIXELS = 4  # in a word
_WRITTEN_OUT = 16  # the longest row whose results are unrolled, with words at constant positions


@dataclass(frozen=True)
class Words:
    """The packing of windows along the last spatial axis into words.

    Attributes:
        how: bytes are multiplied.
        stride: along the axis.
        taps: of the filter along the axis.
        results: neighbours whose windows lie in the same words.
    """

    how: Multiplication
    stride: int
    taps: int
    results: int

    @property
    def count(self) -> int:
        """Words of a window."""
        return ceil_div(self.taps, _PIXELS)

    def width(self, results: int) -> int:
        """Pixels that are read of a row for so many results."""
        return (results - 1) // self.results * self.results * self.stride + self.count * _PIXELS

    def pack(self, filters: np.ndarray) -> np.ndarray:
        """`[C, *k, taps]` int8 → `[C, *k, words, results]`, int32."""
        *outer, taps = filters.shape
        made = np.zeros((*outer, self.results, self.count * _PIXELS), np.int8)
        for result in range(self.results):
            first = result * self.stride
            made[..., result, first : first + taps] = filters
        return np.ascontiguousarray(np.swapaxes(made.view("<i4"), -1, -2).astype(np.int32))


def words_of(
    target: Target, data: str, filters: np.ndarray, strides: Sequence[int], dilation: Sequence[int], width: Dimension
) -> Words | None:
    """Returns the packing of windows into words; None where that is not possible, or not faster.

    Args:
        data: the type of the data.
        filters: `[C, *k]`.
        width: of the result.
    """
    taps = int(filters.shape[-1])
    if filters.dtype != np.int8 or dilation[-1] != 1 or taps < 2 or not is_known(width):
        return None
    if target.triple.split("-")[0] != "x86_64" or target.lanes("float32") < 8:
        return None
    how = multiplication_of(target, data, "int8")
    if how.terms != _PIXELS or how.offset:
        return None
    maximum = (ceil_div(taps, _PIXELS) * _PIXELS - taps) // strides[-1] + 1
    results = maximum if width <= _WRITTEN_OUT else next(n for n in range(maximum, 0, -1) if width % n == 0)
    return Words(how, strides[-1], taps, results)


def convolve_int8x4(
    data: te.Tensor, weights: te.Tensor, strides: Sequence[int], dilation: Sequence[int], words: Words, width: int
) -> te.Tensor:
    """Convolution of each channel by a filter of its own, without padding.

    Args:
        data: `[N, C blocks, *spatial, block]`, as wide as `Words.width` says.
        weights: `[C blocks, *k, words, results, block]`, all but the last of the filter's axes.
        width: of the result.

    Returns:
        `[N, C blocks, *spatial, block]`, int32.
    """
    batch, outer, *sizes, _, block = data.shape
    kernel = weights.shape[1:-3]
    reach = [(int(k) - 1) * d + 1 for k, d in zip(kernel, dilation, strict=False)]
    spatial = [(dimension(e) - r) // s + 1 for e, r, s in zip(sizes, reach, strides, strict=False)]
    taps = [te.reduce_axis((0, size), f"k{axis}") for axis, size in enumerate((*kernel, words.count))]

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, x, lane = tail
        *rows, word = taps
        at = [p * s + t * d for p, s, t, d in zip(position, strides, rows, dilation, strict=False)]
        first = tirx.floordiv(x, words.results) * (words.results * words.stride) + word * _PIXELS
        pixels = [data(n, o, *at, first + pixel, lane) for pixel in range(_PIXELS)]
        filters = weights(o, *taps, tirx.floormod(x, words.results), lane)
        return te.sum(words.how.product(tirx.call_intrin("int32", _NAME, *pixels), filters), axis=taps)

    shape = (batch, outer, *spatial, width, block)
    return te.compute(shape, element, name="convolution", attrs={SHARED_WORDS: words.results})


@functools.cache  # TVM refuses a second registration
def use_int8x4() -> None:
    """Registers the operator with TVM and its code generator for CPUs, in this process."""
    register_pure_operator(_NAME, "four bytes as a word", _word)


def _word(call: tvm.ir.Call) -> tirx.Expr:
    """Return a vector of int32 whose lane `i` holds the bytes `i` of four vectors of int8, the first one lowest."""
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    if lanes % _PIXELS:
        parts = [tirx.Cast("int32", pixel) << tirx.const(8 * n, "int32") for n, pixel in enumerate(call.args)]
        return functools.reduce(tirx.bitwise_or, parts)
    whole = _joined(call.args, lanes)
    # Words of four channels of a pixel, brought together for all pixels, then four bytes by four bytes transposed.
    quads = lanes // _PIXELS
    words = tirx.reinterpret(f"int32x{lanes}", whole)
    by_quad = tirx.Shuffle([words], [pixel * quads + quad for quad in range(quads) for pixel in range(_PIXELS)])
    elements = tirx.reinterpret(f"uint8x{_PIXELS * lanes}", by_quad)
    order = [
        quad * 16 + pixel * 4 + channel for quad in range(quads) for channel in range(4) for pixel in range(_PIXELS)
    ]
    return tirx.reinterpret(f"int32x{lanes}", tirx.Shuffle([elements], order))


def _joined(vectors: Sequence[tirx.Expr], lanes: int) -> tirx.Expr:
    """Vectors of bytes one after the other: in one load, if they lie so."""
    loads = [vector for vector in vectors if isinstance(vector, TensorLoad) and len(vector.indices) == 1]
    ramps = [load.indices[0] for load in loads if isinstance(load.indices[0], tirx.Ramp)]
    if len(ramps) == len(vectors):
        first = ramps[0].base
        apart = [Analyzer().simplify(ramp.base - first) for ramp in ramps]
        if all(isinstance(far, tirx.IntImm) and int(far) == lanes * n for n, far in enumerate(apart)):
            return tirx.BufferLoad(
                loads[0].source, [tirx.Ramp(first, tirx.const(1, first.expr_ty().dtype), lanes * len(vectors))]
            )
    return tirx.Shuffle(list(vectors), list(range(lanes * len(vectors))))
