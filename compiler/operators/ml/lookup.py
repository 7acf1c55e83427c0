"""Looks up elements among keys that are known at compile time, as label encoders do.

Numbers are found by binary search in a sorted table. Strings are found in a hash table,
which `targets/runtime/text/table.c` reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.statements import each, looped
from nnefc.operators.text.strings import packed_strings, text_call, utf8
from nnefc.support.diagnostics import CompileError

__all__ = ["Positions", "search", "text_table"]

_MAX_KEYS = 1 << 24


@dataclass(frozen=True, eq=False)
class Positions(Operator):
    """The index of each element in `keys`, int64; `len(keys)` for an element that is not among them.

    Of equal keys the first counts. NaN is equal to NaN.

    Attributes:
        keys: `[n]`, of the elements' type, or strings.
    """

    keys: Array

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        if len(self.keys) > _MAX_KEYS:
            raise CompileError(f"there are {len(self.keys)} keys, more than {_MAX_KEYS}")
        return x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape = self.shape(shape_of(x))
        if is_empty(shape):
            return zeros(shape, np.int64)
        if self.keys.dtype == object:
            if isinstance(x, np.ndarray):
                return _known(self.keys, x)
            return _of_texts(ctx, ctx.expr(x), self.keys)
        return _of_numbers(ctx, ctx.expr(x), self.keys)


def _known(keys: Array, x: Array) -> Array:
    positions = {utf8(key): position for position, key in reversed(list(enumerate(keys)))}
    found = [positions.get(utf8(element), len(keys)) for element in x.reshape(-1)]
    return np.array(found, np.int64).reshape(x.shape)


def _of_texts(ctx: Emitter, x: Operand, keys: Array) -> Operand:
    shape, count = shape_of(x), len(keys)

    def write(source: Any, table: Any, out: Any) -> None:
        address = tirx.address_of(table[0])
        with each(math.prod(shape), math.prod(shape) * 8) as position:
            missing = tirx.const(count, "int64")
            out[position] = text_call(ctx, "nnefc_text_position", "int64", source[position], address, missing)

    return looped(ctx, write, [x, text_table(keys)], [(shape, "int64")], "text_positions")[0]


def _of_numbers(ctx: Emitter, x: Operand, keys: Array) -> Operand:
    """Found among the keys in ascending order, of which `positions` says where they were."""
    shape, dtype, missing = shape_of(x), dtype_of(x), len(keys)
    is_nan = keys != keys
    unique, first = np.unique(keys[~is_nan], return_index=True)
    positions = np.flatnonzero(~is_nan)[first].astype(np.int64)
    nan = int(np.flatnonzero(is_nan)[0]) if is_nan.any() else missing
    count = len(unique)

    def write(source: Any, sorted_keys: Any, order: Any, out: Any) -> None:
        with each(math.prod(shape), math.prod(shape) * 8) as position:
            element, found = source[position], out[position]
            search(sorted_keys, count, element, out, position)
            there = order[tirx.min(found, max(count - 1, 0))]
            out[position] = tirx.Select(found < count, there, tirx.const(missing, "int64"))
            if dtype.startswith("float"):
                out[position] = tirx.Select(tirx.isnan(element), tirx.const(nan, "int64"), found)

    if not count:
        unique, positions = np.zeros(1, keys.dtype), np.array([missing], np.int64)
    return looped(ctx, write, [x, unique, positions], [(shape, "int64")], "positions")[0]


def search(keys: Any, count: int, element: tirx.Expr, out: Any, position: Any) -> None:
    """Let `out[position]` be where an element is among `count` keys in ascending order, or `count` if it is none of
    them."""
    less, minimum = out[position], tirx.const(0, "int64")
    out[position] = minimum
    for half in (1 << bit for bit in reversed(range(count.bit_length()))):
        last = tirx.min(less + (half - 1), max(count - 1, 0))
        goes = tirx.all(less + half <= count, keys[last] < element)
        out[position] = less + tirx.Select(goes, tirx.const(half, "int64"), minimum)
    is_there = tirx.all(less < count, keys[tirx.min(less, max(count - 1, 0))] == element)
    out[position] = tirx.Select(is_there, less, tirx.const(count, "int64"))


def text_table(keys: Sequence[object] | Array) -> Array:
    """Strings as the table of hashes that `nnefc_text_position` reads, uint8."""
    words = [utf8(key) for key in keys]
    slots = 1 << max(1, (2 * len(words)).bit_length())
    pool, offsets = packed_strings(words)
    table = np.zeros(slots, [("hash", "<u8"), ("offset", "<u4"), ("position", "<u4")])
    start, taken = (8 + table.nbytes) // 8, dict[bytes, int]()
    for position, word in enumerate(words):
        if word in taken:
            continue
        taken[word] = position
        hash_ = _hash(word)
        slot = hash_ & (slots - 1)
        while table["position"][slot]:
            slot = (slot + 1) & (slots - 1)
        table[slot] = hash_, start + offsets[position] // 8, position + 1
    mask = np.array([slots - 1], "<u8")
    return np.frombuffer(mask.tobytes() + table.tobytes() + pool, np.uint8)


_ALL = (1 << 64) - 1


def _hash(word: bytes) -> int:
    """The number by which a string is found, as `hash_of` in `table.c` has it."""
    hash_ = len(word)
    for start in range(0, len(word), 8):
        hash_ = ((hash_ ^ int.from_bytes(word[start : start + 8], "little")) * 0x9E3779B97F4A7C15) & _ALL
        hash_ ^= hash_ >> 32
    return hash_
