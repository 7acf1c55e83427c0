"""Multiplies by a block-quantized right factor, which is dequantized in registers.

W[K, N] = element[k, n] * scale[k / block, n] + offset[k / block, n]

packed[N / b, K / block, words, b]     a word holds neighbours of one column: see `packed_int4.py`; of 8 bits, an
element scales[N / b, K / block, b], zero points or offsets the same; scales and offsets of int8 have factors
[N / b, K / (count block), b]

Packing subtracts a number from the elements to make them signed; the offsets make up for it.

A matrix of 8-bit elements with at most 16 different values may be stored as 4-bit indices into a table, and one whose
values are in a small range in 5 or 6 bits.

Where the target sums up products of bytes, both factors are integers: those of the left factor have a high and a low
byte, so that little precision is lost, or one byte, if the model allows rounding it to 8 bits:

x[M, K] = q[m, k] * r[m, k / block]            y[M, N] = sum over blocks of (q W)[m, n] * r * scale + sums[m] * offset
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from nnefc.ir.attributes import DEQUANTIZED
from nnefc.operators.nn.block_quantization import number_of_block, packed, with_factors
from nnefc.passes.compute.blocked import block_array, index_in_range
from nnefc.passes.compute.dot.dot_product import Multiplication
from nnefc.passes.compute.dot.packed_int4 import (
    bytes_in_table,
    bytes_of,
    element_in_table,
    element_of,
    fenced,
    group_of,
    quads_in_words,
    small_float,
)
from nnefc.passes.tir.dot.byte_split import join_bytes
from nnefc.symbolic.dims import dimensions

__all__ = [
    "FLOAT_SCALE",
    "Blocks",
    "gather_rows",
    "multiply_blocks",
    "multiply_chosen_blocks",
    "pack_blocks",
    "sums_of_blocks",
]


FLOAT_SCALE = 256.0
"""The factor of 8-bit float scales: :func:`small_float` returns 1/256 of a number."""

_STEPS = 3  # to move the bits, to convert them
_MORE_STEPS = 5  # to join the bits of several words as well, or to multiply a scale by its factor


@dataclass(frozen=True)
class Blocks:
    """The packed form of a matrix.

    Attributes:
        bits: of a stored integer: 2, 4 or 8, or 5 or 6 for elements of 8 bits, where bytes are multiplied.
        columns: N; what fills up the last vector is cut off.
        points: what is stored besides the scales: "zeros", "offsets" or "nothing": zero points of half the range.
        how: bytes are multiplied; None where elements are multiplied as floats.
        look_up: see :func:`element_of`.
        digits: of the other factor's integers: bytes, one or two.
        table: the elements of 8 bits that stored integers of 4 bits stand for; None where they are the elements.
        table_lanes: see :func:`byte_table_lanes`, or where floats are multiplied :func:`float_table_lanes`.
        is_float: whether integers of 8 bits are floats.
        lower: what is subtracted from elements of 8 bits, so that 5, 6 or 7 bits hold them; 0 where these do not.
    """

    bits: int
    columns: int
    points: str
    how: Multiplication | None
    look_up: bool
    digits: int = 1
    table: tuple[int, ...] | None = None
    table_lanes: int = 0
    is_float: bool = False
    lower: int = 0

    @property
    def positions(self) -> int:
        """The iterations that unpack one group of words."""
        if self.how is not None:
            return group_of(self.bits)[1]
        return 1 if self.bits == 8 else 32 // self.bits

    @property
    def group(self) -> int:
        """The number of words that are unpacked together."""
        return 1 if self.how is None else group_of(self.bits)[0]

    @property
    def has_offsets(self) -> bool:
        """Whether results need more than the products with the packed elements: an offset for each block."""
        return self.points != "nothing" or self._origin != self._half

    @property
    def sum_factor(self) -> float:
        """Returns the factor for sums of the left factor, where all elements of the matrix have the same offset."""
        return 1.0 if self.points != "nothing" else float(self._origin - self._half)

    @property
    def element_bits(self) -> int:
        """Returns the bits of an element."""
        return self.bits if self.table is None and self.bits <= 4 else 8

    @property
    def _half(self) -> int:
        return 1 << (self.element_bits - 1)

    @property
    def _origin(self) -> int:
        """Returns the number that packing subtracts from the elements."""
        return self._half if self.how is None or self.is_signed else self.lower

    @property
    def is_signed(self) -> bool:
        """Whether bytes that are multiplied are signed."""
        return self.how is not None and self.how.signed and (self.table is not None or self.bits == 8)

    def pack(self, codes: np.ndarray, lanes: int) -> np.ndarray:
        """Codes `[N, blocks, bytes]`, the lowest bits of a byte first, as `packed` above, for vectors of `lanes`."""
        if self.table is not None:
            numbers = np.zeros(256, np.uint8)
            numbers[list(self.table)] = np.arange(len(self.table), dtype=np.uint8)
            codes = packed(numbers[codes], self.bits)
        elif self.is_float:
            return pack_blocks(codes.view(np.int8), lanes)
        elif self.element_bits == 8:
            codes = codes - np.uint8(self._origin)
            if self.how is None:
                return pack_blocks(codes.view(np.int8), lanes)
            if self.bits != 8:
                return pack_blocks(quads_in_words(codes, self.bits), lanes)
            return pack_blocks(np.ascontiguousarray(codes).view("<i4").astype(np.int32, copy=False), lanes)
        elif self.how is None:
            codes = codes ^ np.uint8(sum(self._half << position for position in range(0, 8, self.bits)))
        words = np.ascontiguousarray(codes).view("<u4")
        if self.how is not None:
            words = _in_quads(words, self.bits)
        return pack_blocks(words.view("<i4").astype(np.int32, copy=False), lanes)

    def quad(self, word_at: Callable[[tirx.Expr], tirx.Expr], group: tirx.Expr, position: tirx.Expr) -> tirx.Expr:
        """Returns the four elements at a position of a group of words, as bytes."""
        found = bytes_of([word_at(group * self.group + n) for n in range(self.group)], position, self.bits)
        if self.table is None:
            return found
        return bytes_in_table(found, [(code - self._origin) & 0xFF for code in self.table], self.table_lanes)

    def number(self, word: tirx.Expr, position: tirx.Expr, look_up: bool) -> tirx.Expr:
        """Returns the element at a position of a word, float32; where bytes are not multiplied."""
        if self.table is not None:
            return element_in_table(word, position, [code - self._half for code in self.table], self.table_lanes)
        if self.is_float:
            return small_float(word)
        return word.astype("float32") if self.bits == 8 else element_of(word, position, self.bits, look_up)

    def offset(
        self, points: Sequence[te.Tensor], position: Sequence[tirx.Expr], scale: tirx.Expr, total: tirx.Expr
    ) -> tirx.Expr:
        """Returns the offset of scaled elements, if there is one, times a number that has :attr:`sum_factor` in it."""
        if not points:
            return total * scale
        point = _number(points, position)
        if self.points == "offsets":
            return total * (point + scale * tirx.const(self._origin, "float32") if self._origin else point)
        return total * ((tirx.const(self._origin, "float32") - point) * scale)


def _number(tensors: Sequence[te.Tensor], position: Sequence[tirx.Expr]) -> tirx.Expr:
    """Returns the scale, the zero point or the offset of a block, float32: two factors are multiplied once."""
    found = number_of_block(tensors, *position)
    return fenced(found) if len(tensors) > 1 else found


_TRANSPOSED = {4: ((8, 0x0000FF00), (4, 0x00F000F0)), 2: ((12, 0x0000F0F0), (6, 0x00CC00CC))}
"""Two steps (shift, mask) for elements of 4 and of 2 bits: each exchanges the bits of the mask with the bits that are
`shift` positions above them.
"""


def _in_quads(words: np.ndarray, bits: int) -> np.ndarray:
    """Returns words whose neighbours, of 2 or 4 bits, lie in neighbouring bytes: a transposition in each word."""
    words = words.copy()
    for distance, mask in _TRANSPOSED[bits]:
        different = words >> distance
        different ^= words
        different &= mask
        words ^= different
        different <<= distance
        words ^= different
    return words


def pack_blocks(array: np.ndarray, size: int) -> np.ndarray:
    """Packs `[N, blocks, …]` as `[N / size, blocks, …, size]`; the last columns are filled up with zeros."""
    return np.ascontiguousarray(block_array(array, 0, size))


def sums_of_blocks(left: te.Tensor, block: int, factor: float) -> te.Tensor:
    """Sums up each block of a row, `[…, M, K]` → `[…, M, K / block]`: offsets are multiplied by these sums."""
    *outer, depth = dimensions(left.shape)
    k = te.reduce_axis((0, block), "k")

    def element(*index: tirx.Var) -> tirx.Expr:
        *position, part = index
        element = left(*position, part * block + k.var)
        return te.sum(element if factor == 1 else element * tirx.const(factor, "float32"), axis=[k])

    return te.compute((*outer, depth // block), element, name="sums_of_blocks")


class _Terms:
    """The terms of a product with a matrix in blocks: an element of the left factor times a dequantized one.

    Attributes:
        panels, lanes: N is so many vectors of so many elements.
        axes: what terms are summed over: blocks, groups of words, and steps that take a group apart.
    """

    def __init__(self, tensors: Sequence[te.Tensor], blocks: Blocks) -> None:
        """Takes the tensors of :func:`multiply_blocks`."""
        self._blocks = blocks
        self._left, self._packed, *others = tensors
        self._ranges = others.pop() if blocks.how is not None else None
        self._sums = others.pop() if blocks.has_offsets else None
        self._scales, *points = with_factors(others)
        self._points = points[0] if points else []
        self.panels, count, words, self.lanes = map(int, self._packed.shape)
        self._size = words // blocks.group
        extents = {"kb": count, "kj": self._size, "kp": blocks.positions}
        self.axes = [te.reduce_axis((0, extent), name) for name, extent in extents.items()]

    @property
    def steps(self) -> int:
        """Estimates the instructions that dequantize a vector of elements."""
        return _STEPS if self._blocks.group == 1 and len(self._scales) == 1 else _MORE_STEPS

    def at(self, source: Sequence[tirx.Expr], panel: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
        """Returns the term of a row of the left factor and an element of a vector of columns."""
        blocks, left = self._blocks, self._left
        block, group, part = (axis.var for axis in self.axes)
        position = (panel, block, lane)
        at = (block * self._size + group) * blocks.positions + part
        scale = _number(self._scales, position)
        if self._ranges is not None:
            assert blocks.how is not None
            elements = blocks.quad(lambda word: self._packed(panel, block, word, lane), group, part)
            if blocks.digits > 1:
                dot = join_bytes(*(blocks.how.product(left(*source, digit, at), elements) for digit in range(2)))
            else:
                dot = blocks.how.product(left(*source, at), elements)
            term = dot.astype("float32") * (scale * self._ranges(*source, block))
        else:
            number = blocks.number(self._packed(panel, block, group, lane), part, blocks.look_up)
            term = left(*source, at) * (number * scale)
        if self._sums is not None:
            share = tirx.const(1 / (self._size * blocks.positions), "float32")
            term = term + blocks.offset(self._points, position, scale, self._sums(*source, block) * share)
        return term


def multiply_blocks(*given: Any) -> te.Tensor:
    """Multiplies `[…, M, K]` by a quantized `[K, N]`: `[…, M, N]`, float32.

    Args:
        given: the left factor, K a whole number of blocks, or packed dot operands `[…, M, K / 4]`, of two bytes
            `[…, M, 2, K / 4]`, either with more words in each row, which are not read; the packed matrix and its
            scales; what is stored besides them; if there are offsets, the sums of the blocks of `left`,
            `[…, M, K / block]`, times `sum_factor`; if bytes are multiplied, their scales, of the same shape; a
            `Blocks`; and M, or a little more, as for `multiply_packed`.
    """
    *tensors, blocks, rows = given
    *batch, height = dimensions(tensors[0].shape)[: -2 if blocks.digits > 1 else -1]
    terms = _Terms(tensors, blocks)

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, row, column = index
        source = (*outer, row if height == rows else tirx.min(row, height - 1))
        return te.sum(terms.at(source, column // terms.lanes, column % terms.lanes), axis=terms.axes)

    wide = terms.panels * terms.lanes
    whole = te.compute((*batch, rows, wide), element, name="matmul", attrs={DEQUANTIZED: terms.steps})
    if rows == height and blocks.columns == wide:
        return whole
    return te.compute((*batch, height, blocks.columns), lambda *index: whole(*index), name="cut")


def multiply_chosen_blocks(*given: Any) -> te.Tensor:
    """Multiplies each row by the matrix that is chosen for it (a mixture of experts): `[R, 1, N]`, float32.

    Args:
        given: the number of a matrix for each result, `[R]`; the left factor, `[M, K]`, and the matrices side by side,
            `[K, count N]`, as for :func:`multiply_blocks`; a `Blocks`; how many matrices there are, N being full
            vectors; and how many results follow each other for each row of the left factor.
    """
    chosen, *tensors, blocks, count, each = given
    (results,) = dimensions(chosen.shape)
    terms = _Terms(tensors, blocks)
    panels = terms.panels // count

    def element(result: tirx.Var, row: tirx.Var, column: tirx.Var) -> tirx.Expr:
        matrix = index_in_range(chosen(result), count, "clip")
        panel = matrix * panels + column // terms.lanes
        return te.sum(terms.at((result // each + row,), panel, column % terms.lanes), axis=terms.axes)

    shape = (results, 1, panels * terms.lanes)
    return te.compute(shape, element, name="matmul", attrs={DEQUANTIZED: terms.steps})


def gather_rows(*given: Any) -> te.Tensor:
    """Gathers columns of a quantized `[K, N]`, as rows: `[…, K]`, float32.

    Args:
        given: the indices, of any shape; the packed matrix and its scales; what is stored besides them; a `Blocks`; K;
            and what indices out of range do, as for Relax's `take`: "clip" or "wrap".
    """
    *tensors, blocks, depth, mode = given
    indices, packed, *others = tensors
    scales, *points = with_factors(others)
    _, _, size, lanes = map(int, packed.shape)
    block = size // blocks.group * blocks.positions * (1 if blocks.how is None else 4)

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, k = index
        column = index_in_range(indices(*outer), blocks.columns, mode)
        position = (column // lanes, k // block, column % lanes)
        scale = _number(scales, position)
        scalar = _element_at(blocks, lambda word: packed(*position[:2], word, position[2]), k % block)
        value = scalar * scale
        if blocks.has_offsets:
            value = value + blocks.offset(
                points[0] if points else [], position, scale, tirx.const(blocks.sum_factor, "float32")
            )
        return value

    return te.compute((*dimensions(indices.shape), depth), element, name="gather_rows")


def _element_at(blocks: Blocks, word_at: Callable[[tirx.Expr], tirx.Expr], position: tirx.Expr) -> tirx.Expr:
    """Return the element of a block at `position`, dequantized."""
    if blocks.how is None:
        return blocks.number(word_at(position // blocks.positions), position % blocks.positions, False)
    four = blocks.quad(word_at, position // (4 * blocks.positions), position // 4 % blocks.positions)
    signed = blocks.is_signed
    parts = [four << (24 - 8 * byte) >> 24 if signed else four >> (8 * byte) & 0xFF for byte in range(4)]
    scalar = parts[0]
    for byte, part in enumerate(parts[1:], 1):
        scalar = tirx.Select(position % 4 == byte, part, scalar)
    return scalar.astype("float32")
