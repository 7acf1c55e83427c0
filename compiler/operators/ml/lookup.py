"""Where elements are among keys that are known at compile time: what label encoders are made of.

Numbers are found in a sorted table, in as many steps as a number of keys has bits. Strings are found in a table of
hashes, which `targets/runtime/text/table.c` reads.
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
from nnefc.operators.text.strings import packed_texts, text_call, utf8
from nnefc.support.diagnostics import CompileError

__all__ = ["Positions", "search", "text_table"]

_MOST_KEYS = 1 << 24


@dataclass(frozen=True, eq=False)
class Positions(Operator):
    """Where each element is among keys, int64; their number for an element that is none of them.

    Of equal keys the first counts. NaN is equal to NaN.

    Attributes:
        keys: `[n]`, of the elements' type, or strings.
    """

    keys: Array

    def shape(self, x: Shape) -> Shape:
        """That of the operand."""
        if len(self.keys) > _MOST_KEYS:
            raise CompileError(f"there are {len(self.keys)} keys, more than {_MOST_KEYS}")
        return x

    def lower(self, at: Emitter, x: Operand) -> Operand:
        shape = self.shape(shape_of(x))
        if is_empty(shape):
            return zeros(shape, np.int64)
        if self.keys.dtype == object:
            if isinstance(x, np.ndarray):
                return _known(self.keys, x)
            return _of_texts(at, at.expr(x), self.keys)
        return _of_numbers(at, at.expr(x), self.keys)


def _known(keys: Array, x: Array) -> Array:
    places = {utf8(key): place for place, key in reversed(list(enumerate(keys)))}
    found = [places.get(utf8(item), len(keys)) for item in x.reshape(-1)]
    return np.array(found, np.int64).reshape(x.shape)


def _of_texts(at: Emitter, x: Operand, keys: Array) -> Operand:
    shape, count = shape_of(x), len(keys)

    def write(source: Any, table: Any, out: Any) -> None:
        address = tirx.address_of(table[0])
        with each(math.prod(shape), math.prod(shape) * 8) as place:
            missing = tirx.const(count, "int64")
            out[place] = text_call(at, "nnefc_text_position", "int64", source[place], address, missing)

    return looped(at, write, [x, text_table(keys)], [(shape, "int64")], "text_positions")[0]


def _of_numbers(at: Emitter, x: Operand, keys: Array) -> Operand:
    """Found among the keys in ascending order, of which `places` says where they were."""
    shape, dtype, missing = shape_of(x), dtype_of(x), len(keys)
    is_nan = keys != keys
    unique, first = np.unique(keys[~is_nan], return_index=True)
    places = np.flatnonzero(~is_nan)[first].astype(np.int64)
    nan = int(np.flatnonzero(is_nan)[0]) if is_nan.any() else missing
    count = len(unique)

    def write(source: Any, sorted_keys: Any, order: Any, out: Any) -> None:
        with each(math.prod(shape), math.prod(shape) * 8) as place:
            item, found = source[place], out[place]
            search(sorted_keys, count, item, out, place)
            there = order[tirx.min(found, max(count - 1, 0))]
            out[place] = tirx.Select(found < count, there, tirx.const(missing, "int64"))
            if dtype.startswith("float"):
                out[place] = tirx.Select(tirx.isnan(item), tirx.const(nan, "int64"), found)

    if not count:
        unique, places = np.zeros(1, keys.dtype), np.array([missing], np.int64)
    return looped(at, write, [x, unique, places], [(shape, "int64")], "positions")[0]


def search(keys: Any, count: int, item: tirx.Expr, out: Any, place: Any) -> None:
    """Let `out[place]` be where an item is among `count` keys in ascending order, or `count` if it is none of them."""
    less, least = out[place], tirx.const(0, "int64")
    out[place] = least
    for half in (1 << bit for bit in reversed(range(count.bit_length()))):
        last = tirx.min(less + (half - 1), max(count - 1, 0))
        goes = tirx.all(less + half <= count, keys[last] < item)
        out[place] = less + tirx.Select(goes, tirx.const(half, "int64"), least)
    is_there = tirx.all(less < count, keys[tirx.min(less, max(count - 1, 0))] == item)
    out[place] = tirx.Select(is_there, less, tirx.const(count, "int64"))


def text_table(keys: Sequence[object] | Array) -> Array:
    """Strings as the table of hashes that `nnefc_text_position` reads, uint8."""
    words = [utf8(key) for key in keys]
    slots = 1 << max(1, (2 * len(words)).bit_length())
    pool, offsets = packed_texts(words)
    table = np.zeros(slots, [("hash", "<u8"), ("place", "<u4"), ("position", "<u4")])
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
