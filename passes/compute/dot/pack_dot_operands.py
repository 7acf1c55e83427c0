"""Packs elements into the operands of dot products; see :mod:`dot_instructions`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te, tirx

from nnefc.passes.compute.blocked import blocks
from nnefc.support.element_types import bits_of
from nnefc.symbolic.dims import Dimension, dimension

__all__ = ["pack_dot_matrix", "pack_dot_operands", "packed_array"]


def packed_array(array: np.ndarray, axis: int, terms: int) -> np.ndarray:
    """Pack each `terms` elements along `axis` into one integer (an operand or half of one); the last is zero-padded."""
    moved = np.moveaxis(array, axis, -1)
    missing = -moved.shape[-1] % terms
    padded = np.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, missing)])
    return np.moveaxis(np.ascontiguousarray(padded).view(f"<i{terms * array.itemsize}"), -1, axis)


def pack_dot_operands(data: te.Tensor) -> te.Tensor:
    """Returns the elements of `data` packed along the last axis, whose size is a multiple of the terms of an
    instruction.

    The bytes are the same on a little-endian machine: the memory plan need not run this.
    """
    bits = bits_of(str(data.dtype))
    terms = 32 // bits
    *outer, size = data.shape

    def element(*index: tirx.Var) -> tirx.Expr:
        *position, word = index
        return _joined([data(*position, word * terms + term) for term in range(terms)], bits)

    return te.compute((*outer, dimension(size) // terms), element, name="dot_operands")


def pack_dot_matrix(matrix: te.Tensor, size: int, terms: int, rows: Dimension) -> te.Tensor:
    """`[…, K, N]` → packed `[…, N / size, rows / terms, size]`, filled up with zeros, at run time.

    `rows` is a multiple of `terms`, and no less than K.
    """
    *batch, depth, columns = matrix.shape
    is_whole = dimension(depth) == rows, dimension(columns) % size == 0
    bits = bits_of(str(matrix.dtype))

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, block, word, lane = index
        column = block * size + lane
        elements = []
        for term in range(terms):
            row = word * terms + term
            inside = ([] if is_whole[0] else [row < depth]) + ([] if is_whole[1] else [column < columns])
            scalar = matrix(*outer, row, column)
            elements.append(
                tirx.if_then_else(tirx.all(*inside), scalar, tirx.const(0, matrix.dtype)) if inside else scalar
            )
        return _joined(elements, bits)

    shape = (*batch, blocks(dimension(columns), size), rows // terms, size)
    return te.compute(shape, element, name="pack_dot_operands")


def _joined(elements: Sequence[tirx.Expr], bits: int) -> tirx.Expr:
    """Elements packed into 32 bits, the first in the lowest."""
    word: tirx.Expr = tirx.const(0, "int32")
    for term, scalar in enumerate(elements):
        if bits == 16 and "float" in str(scalar.expr_ty().dtype):
            scalar = tirx.reinterpret("uint16", scalar)
        narrow = scalar.astype("int32") & tirx.const((1 << bits) - 1, "int32")
        word = word | (narrow << tirx.const(bits * term, "int32"))
    return word
