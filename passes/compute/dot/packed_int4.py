"""Integers of 2 and 4 bits, of which 16 or 8 lie in a word, as what is multiplied: floats, or four bytes at once.

A word is an int32. As floats its items are signed, the lowest bits the first one. Where a register of float32 has 16
lanes, it holds all numbers of 4 bits, and one instruction looks up one for each lane (`vpermps`); elsewhere two shifts
and a conversion make it. As bytes they are unsigned: the lowest bits of the word's bytes are the first four items.
"""

from __future__ import annotations

import functools

import tvm
from tvm import tirx

from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.targets.machine.cpu.target import Target

__all__ = ["bytes_of", "item_of", "looks_up_items", "use_packed_items"]

_ITEMS = {bits: f"nnefc.item_of_{bits}_bits" for bits in (2, 4)}
_BYTES = {bits: f"nnefc.bytes_of_{bits}_bits" for bits in (2, 4)}
_LOOK_UP = "nnefc.look_up_4_bits"
_PERMUTE = "llvm.x86.avx512.permvar.sf.512"
_LANES = 16


def looks_up_items(target: Target) -> bool:
    """Whether one instruction of the target makes float32 of items of 4 bits."""
    return "avx512f" in target.features and target.lanes("float32") == _LANES


def item_of(word: tirx.Expr, place: tirx.Expr, bits: int, look_up: bool) -> tirx.Expr:
    """The item of `bits` bits at a place of a word, float32."""
    return tirx.call_intrin("float32", _LOOK_UP if look_up and bits == 4 else _ITEMS[bits], word, place)


def bytes_of(word: tirx.Expr, place: tirx.Expr, bits: int) -> tirx.Expr:
    """The items at a place of the four bytes of a word, as four bytes; of 8 bits, the word itself."""
    return word if bits == 8 else tirx.call_intrin("int32", _BYTES[bits], word, place)


@functools.cache  # TVM refuses a second registration
def use_packed_items() -> None:
    """Make the operators known to TVM, and its code generator for CPUs, in this process."""
    for bits, name in _ITEMS.items():
        register_pure_operator(name, "items of few bits", functools.partial(_shifted, bits))
    for bits, name in _BYTES.items():
        register_pure_operator(name, "items of few bits", functools.partial(_masked, bits))
    register_pure_operator(_LOOK_UP, "items of few bits", _looked_up)


def _shifted(bits: int, call: tvm.ir.Call) -> tirx.Expr:
    """To the highest bits, and down again as a signed number."""
    word, place = call.args
    lanes = _lanes_of(call)
    rest = _all_lanes(tirx.const(32 - bits, "int32"), lanes)
    return (word << (rest - _bits_before(place, bits, lanes)) >> rest).astype(str(call.expr_ty().dtype))


def _masked(bits: int, call: tvm.ir.Call) -> tirx.Expr:
    word, place = call.args
    lanes, mask = _lanes_of(call), ((1 << bits) - 1) * 0x01010101
    return (word >> _bits_before(place, bits, lanes)) & _all_lanes(tirx.const(mask, "int32"), lanes)


def _looked_up(call: tvm.ir.Call) -> tirx.Expr:
    """The instruction reads the lowest 4 bits of each lane."""
    lanes = _lanes_of(call)
    if lanes != _LANES:
        return _shifted(4, call)
    word, place = call.args
    numbers = [tirx.const(float(code - 16 if code > 7 else code), "float32") for code in range(16)]
    table = tirx.Shuffle(numbers, list(range(_LANES)))
    moved = word >> _bits_before(place, 4, lanes)
    return tirx.call_llvm_pure_intrin(f"float32x{lanes}", _PERMUTE, table, moved)


def _lanes_of(call: tvm.ir.Call) -> int:
    return int(tvm.DataType(str(call.expr_ty().dtype)).lanes)


def _bits_before(place: tirx.Expr, bits: int, lanes: int) -> tirx.Expr:
    """The bits before a place, which may differ from lane to lane, int32."""
    if isinstance(place, tirx.Broadcast):
        place = place.value
    if int(tvm.DataType(str(place.expr_ty().dtype)).lanes) > 1:
        return place.astype(f"int32x{lanes}") * _all_lanes(tirx.const(bits, "int32"), lanes)
    count = tirx.const(int(place), "int32") if isinstance(place, tirx.IntImm) else place.astype("int32")
    return _all_lanes(count * bits, lanes)


def _all_lanes(value: tirx.Expr, lanes: int) -> tirx.Expr:
    return value if lanes == 1 else tirx.Broadcast(value, lanes)
