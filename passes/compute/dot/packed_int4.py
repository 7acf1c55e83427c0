"""Unpacks integers of 2 to 6 bits as four bytes at once, or those of 2 and 4 bits, 16 or 8 in a 32-bit word, as floats.

A word is an int32. As floats its elements are signed, the lowest bits the first one. Where a register of float32 has 16
lanes, it holds all numbers of 4 bits, and one instruction looks up one for each lane (`vpermps`); elsewhere two shifts
and a conversion make it.

As bytes they are unsigned, in quads: four neighbours lie in the four bytes of a word. Quads fill up groups of words: 4
or 2 quads one word (2 or 4 bits), 8 quads 5 words (5 bits), 4 quads 3 words (6 bits). The lowest bits of each word are
a quad, which one mask takes out; the bits above them, word by word, are those of the quads that follow:

6 bits:   quad 0, 1, 2 = word 0, 1, 2 & 63         quad 3 = word 0 >> 6 | (word 1 >> 6) << 2 | (word 2 >> 6) << 4

Codes of 4 bits may stand for 16 other bytes, which an instruction looks up in a table (`vpshufb`, `tbl`), or `vpermps`
as floats. Floats of 8 bits are the upper bits of float16 but one of the exponent's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tvm
from tvm import tirx

from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.targets.machine.cpu.target import Target

__all__ = [
    "byte_table_lanes",
    "bytes_in_table",
    "bytes_of",
    "element_in_table",
    "element_of",
    "fenced",
    "float_table_lanes",
    "group_of",
    "joins_words",
    "looks_up_elements",
    "quads_in_words",
    "small_float",
    "use_packed_elements",
]

_ELEMENTS = {bits: f"nnefc.item_of_{bits}_bits" for bits in (2, 4)}
_BYTES = {bits: f"nnefc.bytes_of_{bits}_bits" for bits in (2, 4, 5, 6)}
_LOOK_UP = "nnefc.look_up_4_bits"
_PERMUTE = "llvm.x86.avx512.permvar.sf.512"
_LANES = 16
_SMALL_FLOAT = "nnefc.small_float"
_FENCE, _LLVM_FENCE = "nnefc.fence", "llvm.arithmetic.fence"
_TABLE_ELEMENT, _TABLE_BYTES = "nnefc.element_in_table", "nnefc.bytes_in_table"
_SHUFFLES = {
    ("aarch64", 4): ("", "llvm.aarch64.neon.tbl1.v16i8"),
    ("x86_64", 8): ("avx2", "llvm.x86.avx2.pshuf.b"),
    ("x86_64", 16): ("avx512bw", "llvm.x86.avx512.pshuf.b.512"),
}
"""(Architecture, lanes of int32) → (CPU feature, LLVM intrinsic) of the instruction that looks up bytes in a table of
16."""
_BY_LANES = {lanes: function for (_, lanes), (_, function) in _SHUFFLES.items()}
_TOP_BYTE = 24
"""Bits before the byte that is looked up for a float: above it nothing has to be cut off."""


def byte_table_lanes(target: Target) -> int:
    """Returns the lanes of int32 in which an instruction of the target looks up bytes in a table of 16; 0 for none."""
    lanes = target.lanes("float32")
    feature, function = _SHUFFLES.get((target.triple.split("-")[0], lanes), ("", ""))
    return lanes if function and (not feature or feature in target.features) else 0


def float_table_lanes(target: Target) -> int:
    """Returns the lanes in which instructions of the target look up float32 in a table of 16; 0 for none."""
    if looks_up_elements(target):
        return _LANES
    return 8 if "avx2" in target.features and target.lanes("float32") == 8 else 0


def looks_up_elements(target: Target) -> bool:
    """Whether one instruction of the target makes float32 of elements of 4 bits."""
    return "avx512f" in target.features and target.lanes("float32") == _LANES


def element_of(word: tirx.Expr, position: tirx.Expr, bits: int, look_up: bool) -> tirx.Expr:
    """Returns the element of `bits` bits at a position of a word, float32."""
    return tirx.call_intrin("float32", _LOOK_UP if look_up and bits == 4 else _ELEMENTS[bits], word, position)


def joins_words(target: Target) -> bool:
    """Whether quads that lie in several words are joined quickly."""
    return "avx2" in target.features


def group_of(bits: int) -> tuple[int, int]:
    """Returns the words of a group of elements of `bits` bits, and the quads in it."""
    common = math.gcd(bits, 8)
    return bits // common, 8 // common


def _parts(bits: int, quad: int) -> Iterator[tuple[int, int, int, int]]:
    """Returns the parts of an element of a quad in its byte of each word: the word, the first bit in it, the first bit
    of the element, and the bits."""
    words, _ = group_of(bits)
    if quad < words:
        yield quad, 0, 0, bits
        return
    above = 8 - bits
    start = (quad - words) * bits  # among the bits above the lowest quads
    end = start + bits
    while start < end:
        word, skipped = divmod(start, above)
        count = min(above - skipped, end - start)
        yield word, bits + skipped, bits - (end - start), count
        start += count


def quads_in_words(elements: np.ndarray, bits: int) -> np.ndarray:
    """`[…, elements]`, uint8, as `[…, words]` int32, from which :func:`bytes_of` takes quads."""
    words, quads = group_of(bits)
    groups = np.ascontiguousarray(elements).view("<u4").reshape(*elements.shape[:-1], -1, quads)
    made = groups[..., :words].copy()
    for quad in range(words, quads):
        for word, start, first, count in _parts(bits, quad):
            made[..., word] |= (groups[..., quad] >> first & _in_bytes(count)) << start
    return made.view("<i4").astype(np.int32, copy=False).reshape(*elements.shape[:-1], -1)


def bytes_of(words: Sequence[tirx.Expr], position: tirx.Expr, bits: int) -> tirx.Expr:
    """Returns the quad at a position of a group of words, as four bytes; of 8 bits, the word itself."""
    return words[0] if bits == 8 else tirx.call_intrin("int32", _BYTES[bits], *words, position)


def element_in_table(word: tirx.Expr, position: tirx.Expr, table: Sequence[int], lanes: int) -> tirx.Expr:
    """Returns the int8 of a table that 4 bits of a word stand for, as float32.

    `lanes` are those of :func:`float_table_lanes`.
    """
    factor = 1.0 if lanes == _LANES else 2.0**_TOP_BYTE
    numbers = [tirx.const(number * factor, "float32") for number in table]
    found = tirx.call_intrin("float32", _TABLE_ELEMENT, word, position, *numbers, tirx.const(lanes, "int32"))
    return found if factor == 1 else found * tirx.const(1 / factor, "float32")


def bytes_in_table(word: tirx.Expr, table: Sequence[int], lanes: int) -> tirx.Expr:
    """Returns the four bytes of a table that the bytes of a word, from 0 to 15, stand for.

    `lanes` are those of :func:`byte_table_lanes`.
    """
    words = _words_of(np.array(table, np.uint8))
    return tirx.call_intrin("int32", _TABLE_BYTES, word, *words, tirx.const(lanes, "int32"))


def _words_of(table: np.ndarray) -> list[tirx.Expr]:
    """Returns 16 bytes as four words."""
    return [tirx.const(int(word), "int32") for word in table.view("<i4")]


def small_float(code: tirx.Expr) -> tirx.Expr:
    """Returns a 256th of a float of 8 bits (E4M3) but NaN, an int8, as float32."""
    return tirx.call_intrin("float32", _SMALL_FLOAT, code)


def fenced(product: tirx.Expr) -> tirx.Expr:
    """Returns a product of float32 whose factors LLVM does not multiply by others first, in each row again."""
    return tirx.call_intrin("float32", _FENCE, product)


@functools.cache  # TVM refuses a second registration
def use_packed_elements() -> None:
    """Registers the operators with TVM and its code generator for CPUs, in this process."""
    for bits, name in _ELEMENTS.items():
        register_pure_operator(name, "elements of few bits", functools.partial(_shifted, bits))
    for bits, name in _BYTES.items():
        register_pure_operator(name, "elements of few bits", functools.partial(_masked, bits))
    register_pure_operator(_LOOK_UP, "elements of few bits", _looked_up)
    register_pure_operator(_SMALL_FLOAT, "a float of 8 bits", _as_float16)
    register_pure_operator(_FENCE, "a product that is not reordered", _behind_fence)
    register_pure_operator(_TABLE_ELEMENT, "elements of a table", _in_table)
    register_pure_operator(_TABLE_BYTES, "bytes of a table", _bytes_in_table)


def _shifted(bits: int, call: tvm.ir.Call) -> tirx.Expr:
    """Sign-extends an integer of `bits` bits at a bit position: shifts it to the top of the word, and back."""
    word, position = call.args
    lanes = _lanes_of(call)
    tail = _all_lanes(tirx.const(32 - bits, "int32"), lanes)
    return (word << (tail - _bits_before(position, bits, lanes)) >> tail).astype(str(call.expr_ty().dtype))


def _masked(bits: int, call: tvm.ir.Call) -> tirx.Expr:
    *words, position = call.args
    lanes, known = _lanes_of(call), _of_all_lanes(position)
    if len(words) == 1:
        mask = _all_lanes(tirx.const(_in_bytes(bits), "int32"), lanes)
        return (words[0] >> _bits_before(position, bits, lanes)) & mask
    if isinstance(known, tirx.IntImm):
        return _joined(bits, words, int(known), lanes)
    index = _position_in_lanes(position, lanes)
    *others, found = (_joined(bits, words, quad, lanes) for quad in range(group_of(bits)[1]))
    for quad, other in enumerate(others):
        found = tirx.Select(index == _all_lanes(tirx.const(quad, "int32"), lanes), other, found)
    return found


def _joined(bits: int, words: Sequence[tirx.Expr], quad: int, lanes: int) -> tirx.Expr:
    """Extracts the integers of a quad, one in each byte, from the parts of them that several words hold."""
    found = None
    for word, start, first, count in _parts(bits, quad):
        shift = _all_lanes(tirx.const(abs(start - first), "int32"), lanes)
        moved = words[word] >> shift if start > first else words[word] << shift if start < first else words[word]
        part = moved & _all_lanes(tirx.const(_in_bytes(count) << first, "int32"), lanes)
        found = part if found is None else found | part
    assert found is not None
    return found


def _in_bytes(bits: int) -> int:
    """Returns an int32 mask of the lowest `bits` bits of each byte."""
    return ((1 << bits) - 1) * 0x01010101


def _looked_up(call: tvm.ir.Call) -> tirx.Expr:
    """Converts signed 4-bit integers to float32 by a table in a register, which a permutation reads."""
    lanes = _lanes_of(call)
    if lanes != _LANES:
        return _shifted(4, call)
    word, position = call.args
    numbers = [tirx.const(float(code - 16 if code > 7 else code), "float32") for code in range(16)]
    return _permuted(numbers, word >> _bits_before(position, 4, lanes))


def _as_float16(call: tvm.ir.Call) -> tirx.Expr:
    """Reinterpret E4M3 as float16: the sign, a zero bit, then the lower 7 bits. The exponent is 8 too small then."""
    lanes = _lanes_of(call)
    wide = call.args[0].astype(f"int16x{lanes}" if lanes > 1 else "int16")
    shift, mask = (_all_lanes(tirx.const(value, "int16"), lanes) for value in (7, 0xBFFF - 0x10000))
    kind = f"float16x{lanes}" if lanes > 1 else "float16"
    return tirx.reinterpret(kind, (wide << shift) & mask).astype(str(call.expr_ty().dtype))


def _behind_fence(call: tvm.ir.Call) -> tirx.Expr:
    (product,) = call.args
    lanes = _lanes_of(call)
    if lanes == 1:
        return product
    return tirx.call_llvm_pure_intrin(f"float32x{lanes}", f"{_LLVM_FENCE}.v{lanes}f32", product)


def _permuted(numbers: Sequence[tirx.Expr], codes: tirx.Expr) -> tirx.Expr:
    table = tirx.Shuffle(list(numbers), list(range(_LANES)))
    return tirx.call_llvm_pure_intrin(f"float32x{_LANES}", _PERMUTE, table, codes)


def _in_table(call: tvm.ir.Call) -> tirx.Expr:
    """Look up 4-bit codes, into an integer's upper byte: by an instruction if a register holds the table, else by
    selects."""
    word, position, *given = call.args
    *numbers, size = map(_of_all_lanes, given)
    lanes = _lanes_of(call)
    codes = word >> _bits_before(position, 4, lanes)
    if lanes == int(size) == _LANES:
        return _permuted(numbers, codes)
    if lanes == int(size) == 8:
        entries = np.array([float(number) / 2.0**_TOP_BYTE for number in numbers], np.int8)
        found = _shuffled(codes & _all_lanes(tirx.const(15, "int32"), lanes), _words_of(entries), lanes)
        return (found << _all_lanes(tirx.const(_TOP_BYTE, "int32"), lanes)).astype("float32x8")
    return _chosen(codes, [_all_lanes(number, lanes) for number in numbers], 1, lanes)


def _chosen(codes: tirx.Expr, choices: Sequence[tirx.Expr], bit: int, lanes: int) -> tirx.Expr:
    """Returns one of some numbers by the bits of codes, from `bit` on."""
    is_set = (codes & _all_lanes(tirx.const(bit, "int32"), lanes)) > _all_lanes(tirx.const(0, "int32"), lanes)
    pairs = zip(choices[::2], choices[1::2], strict=True)
    left = [tirx.Select(is_set, odd, even) for even, odd in pairs]
    return left[0] if len(left) == 1 else _chosen(codes, left, 2 * bit, lanes)


def _bytes_in_table(call: tvm.ir.Call) -> tirx.Expr:
    """Look up bytes in a table: by the instruction, one part of its lanes after the other, or else byte by byte."""
    word, *parts = call.args
    *table, size = map(_of_all_lanes, parts)
    lanes, each = _lanes_of(call), int(size)
    if lanes % each:
        return _each_byte(word, lambda code: _table_byte(code, table, lanes), lanes)
    made = []
    for first in range(0, lanes, each):
        own = word if lanes == each else tirx.Shuffle([word], list(range(first, first + each)))
        made.append(_shuffled(own, table, each))
    return made[0] if len(made) == 1 else tirx.Shuffle(made, list(range(lanes)))


def _shuffled(codes: tirx.Expr, table: Sequence[tirx.Expr], lanes: int) -> tirx.Expr:
    """Returns the bytes of a table of four words that the bytes of words, from 0 to 15, stand for."""
    entries = tirx.Shuffle([*table] * (lanes // 4), list(range(lanes)))
    given = (tirx.reinterpret(f"int8x{4 * lanes}", operand) for operand in (entries, codes))
    return tirx.reinterpret(f"int32x{lanes}", tirx.call_llvm_pure_intrin(f"int8x{4 * lanes}", _BY_LANES[lanes], *given))


def _each_byte(word: tirx.Expr, function: Callable[[tirx.Expr], tirx.Expr], lanes: int) -> tirx.Expr:
    """Returns words whose bytes are a function of those of others, as int32 each."""
    mask = _all_lanes(tirx.const(0xFF, "int32"), lanes)
    made = _all_lanes(tirx.const(0, "int32"), lanes)
    for shift in (_all_lanes(tirx.const(8 * n, "int32"), lanes) for n in range(4)):
        made = made | (function((word >> shift) & mask) << shift)
    return made


def _table_byte(code: tirx.Expr, table: Sequence[tirx.Expr], lanes: int) -> tirx.Expr:
    """Returns the byte of four words that codes from 0 to 15 stand for, as int32."""

    def spread(value: int) -> tirx.Expr:
        return _all_lanes(tirx.const(value, "int32"), lanes)

    word = _chosen(code, [_all_lanes(part, lanes) for part in table], 4, lanes)
    return (word >> ((code & spread(3)) * spread(8))) & spread(0xFF)


def _of_all_lanes(value: tirx.Expr) -> tirx.Expr:
    return value.value if isinstance(value, tirx.Broadcast) else value


def _lanes_of(call: tvm.ir.Call) -> int:
    return int(tvm.DataType(str(call.expr_ty().dtype)).lanes)


def _bits_before(position: tirx.Expr, bits: int, lanes: int) -> tirx.Expr:
    """Returns the bits before a position, which may differ from lane to lane, int32."""
    known = _of_all_lanes(position)
    if isinstance(known, tirx.IntImm):
        return _all_lanes(tirx.const(int(known) * bits, "int32"), lanes)
    return _position_in_lanes(position, lanes) * _all_lanes(tirx.const(bits, "int32"), lanes)


def _position_in_lanes(position: tirx.Expr, lanes: int) -> tirx.Expr:
    """Returns a position, the same in all lanes or not, as int32 of so many lanes."""
    position = _of_all_lanes(position)
    if int(tvm.DataType(str(position.expr_ty().dtype)).lanes) > 1:
        return position.astype(f"int32x{lanes}")
    return _all_lanes(position.astype("int32"), lanes)


def _all_lanes(value: tirx.Expr, lanes: int) -> tirx.Expr:
    return value if lanes == 1 else tirx.Broadcast(value, lanes)
