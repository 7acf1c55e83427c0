"""Makes blocks of integers whose groups along each row share a scale and a zero point.

    w[n, k] = (code[n, k] - zero[n, group of k]) * scale[n, group of k]

Blocks have at most 128 elements: longer groups are several blocks with the same scale. Integers of 3 bits are stored in
4. Zero points that are all the same one are subtracted from the codes, if these have room for it; others become
offsets, `-zero * scale`, in float32.
"""

from __future__ import annotations

import math

import numpy as np

from nnefc.frontends.tensor_types import TensorType
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor, packed, unpacked

__all__ = [
    "elements_of_bytes",
    "group_order",
    "integer_type",
    "size_of_groups",
    "tensor_in_groups",
    "tensor_of_groups",
]

_LARGEST, _MULTIPLE = 128, 16
_STORED = {2: 2, 3: 4, 4: 4, 8: 8}


def integer_type(method: str, bits: int) -> TensorType:
    """Returns what tables call the elements of a method."""

    def decode(blocks: Array) -> Array:
        raise AssertionError("elements lie in several tensors")

    return TensorType(f"{method} {bits} bits", 1, 1, decode, f"{_STORED[bits]}-bit blocks, exact")


def elements_of_bytes(rows: Array, bits: int) -> Array:
    """`[…, bytes]` as integers, uint8: a row of bytes is one row of bits, the lowest ones first."""
    if bits in (2, 4, 8):
        return unpacked(rows, bits)
    single = np.unpackbits(rows, axis=-1, bitorder="little")
    parts = single.reshape(*rows.shape[:-1], rows.shape[-1] * 8 // bits, bits)
    return np.asarray((parts << np.arange(bits, dtype=np.uint8)).sum(-1, dtype=np.uint8))


def tensor_in_groups(
    data: Array, scales: Array, zeros: Array | None, bits: int, group: int, depth: int, order: Array | None = None
) -> Array | BlockTensor:
    """Returns a matrix in blocks; as floats where groups have no common blocks of at least 16 elements with the rows.

    Bytes are taken as they are where they have the codes of blocks already.

    Args:
        data: `[N, bytes]`, uint8, each row those of :func:`elements_of_bytes`, perhaps longer than K codes.
        scales: `[N, groups]`, floats.
        zeros: `[N, groups]`, integers; None for half the range.
        bits: of a code.
        group: how many elements of a row share a scale; the last group may be shorter.
        depth: K.
        order: of the columns; None for all as they are.
    """
    half, block, stored = 1 << (bits - 1), _block(group, depth), _STORED[bits]
    if block is None:
        own = np.arange(depth) // group
        origin = np.float32(half) if zeros is None else zeros.astype(np.float32)[:, own]
        return (_codes(data, bits, depth, order).astype(np.float32) - origin) * scales.astype(np.float32)[:, own]
    shift, offsets = (1 << (stored - 1)) - half, None
    if zeros is not None:
        first = int(zeros.flat[0])
        shift = (1 << (stored - 1)) - first
        if not (zeros == first).all() or not _has_room(data, bits, depth, shift, stored):
            shift, offsets = 0, -(zeros.astype(np.float32) * scales.astype(np.float32))
    if shift or order is not None or stored != bits or data.shape[1] * 8 != depth * bits:
        codes = _codes(data, bits, depth, order)
        data = packed(codes if not shift else (codes.astype(np.int16) + shift).astype(np.uint8), stored)
    own = np.arange(depth // block) * block // group
    blocks = np.ascontiguousarray(data).reshape(len(data), -1, block * stored // 8)
    return BlockTensor((len(data), depth), stored, blocks, scales[:, own], None if offsets is None else offsets[:, own])


def _codes(data: Array, bits: int, depth: int, order: Array | None) -> Array:
    codes = elements_of_bytes(data, bits)[:, :depth]
    return codes if order is None else np.asarray(codes[:, order])


def _has_room(data: Array, bits: int, depth: int, shift: int, stored: int) -> bool:
    """Returns whether codes can be moved by a number and still be such of `stored` bits."""
    if not shift:
        return True
    codes = _codes(data, bits, depth, None)
    return bool(shift + int(codes.min()) >= 0 and shift + int(codes.max()) < 1 << stored)


def group_order(index: Array, groups: int) -> tuple[Array | None, int]:
    """Returns the order in which the columns of a matrix lie group by group, and how many a group has.

    The order is None where they lie so already, and then the last group may have fewer; a group has 0 columns where
    groups differ in their size otherwise.

    Args:
        index: `[K]`, the group of each column, from 0 to `groups - 1`.
        groups: how many there are.
    """
    sizes = np.bincount(index, minlength=groups)
    size = int(sizes[0])
    if size and np.array_equal(index, np.arange(len(index)) // size):
        return None, size
    return np.argsort(index, kind="stable"), size if (sizes == size).all() else 0


def size_of_groups(depth: int, groups: int, stated: object) -> int:
    """Returns how many of the columns of a matrix a group has, the last one perhaps fewer; 0 where nothing says it.

    Args:
        depth: K.
        groups: how many groups there are.
        stated: what the folder's configuration says, for all of its matrices.
    """
    if isinstance(stated, int) and 0 < stated <= depth and -(-depth // stated) == groups:
        return stated
    return 0 if depth % groups else depth // groups


def tensor_of_groups(data: Array, scales: Array, zeros: Array | None, bits: int, index: Array) -> Array | BlockTensor:
    """Returns a matrix whose columns have groups in any order: with its columns in the order of `group_order`.

    The arguments are those of :func:`tensor_in_groups` and :func:`group_order`.
    """
    order, group = group_order(index, scales.shape[1])
    if group:
        return tensor_in_groups(data, scales, zeros, bits, group, len(index), order)
    origin = np.float32(1 << (bits - 1)) if zeros is None else zeros.astype(np.float32)[:, index]
    return (_codes(data, bits, len(index), None).astype(np.float32) - origin) * scales.astype(np.float32)[:, index]


def _block(group: int, depth: int) -> int | None:
    """Returns the elements of a block: as many as divide a group and a row."""
    common = math.gcd(group, depth)
    sizes = [size for size in range(_MULTIPLE, _LARGEST + 1, _MULTIPLE) if common % size == 0]
    return max(sizes, default=None)
