"""Unpacks integers of 2 and 4 bits, 16 or 8 in a 32-bit word, as floats or as four bytes at once.

A word is an int32. As floats its elements are signed, the lowest bits the first one. Where a register of float32 has 16
lanes, it holds all numbers of 4 bits, and one instruction looks up one for each lane (`vpermps`); elsewhere two shifts
and a conversion make it. As bytes they are unsigned: the lowest bits of the word's bytes are the first four elements.
"""

from __future__ import annotations

import functools

import tvm
from tvm import tirx

from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.targets.machine.cpu.target import Target

__all__ = ["bytes_of", "element_of", "looks_up_elements", "use_packed_elements"]

_ELEMENTS = {bits: f"nnefc.item_of_{bits}_bits" for bits in (2, 4)}
_BYTES = {bits: f"nnefc.bytes_of_{bits}_bits" for bits in (2, 4)}
_LOOK_UP = "nnefc.look_up_4_bits"
_PERMUTE = "llvm.x86.avx512.permvar.sf.512"
_LANES = 16


def looks_up_elements(target: Target) -> bool:
    """Whether one instruction of the target makes float32 of elements of 4 bits."""
    return "avx512f" in target.features and target.lanes("float32") == _LANES


def element_of(word: tirx.Expr, position: tirx.Expr, bits: int, look_up: bool) -> tirx.Expr:
    """Returns the element of `bits` bits at a position of a word, float32."""
    return tirx.call_intrin("float32", _LOOK_UP if look_up and bits == 4 else _ELEMENTS[bits], word, position)


def bytes_of(word: tirx.Expr, position: tirx.Expr, bits: int) -> tirx.Expr:
    """Returns the elements at a position of the four bytes of a word, as four bytes; of 8 bits, the word itself."""
    return word if bits == 8 else tirx.call_intrin("int32", _BYTES[bits], word, position)


@functools.cache  # TVM refuses a second registration
def use_packed_elements() -> None:
    """Registers the operators with TVM and its code generator for CPUs, in this process."""
    for bits, name in _ELEMENTS.items():
        register_pure_operator(name, "elements of few bits", functools.partial(_shifted, bits))
    for bits, name in _BYTES.items():
        register_pure_operator(name, "elements of few bits", functools.partial(_masked, bits))
    register_pure_operator(_LOOK_UP, "elements of few bits", _looked_up)


def _shifted(bits: int, call: tvm.ir.Call) -> tirx.Expr:
    """To the highest bits, and down again as a signed number."""
    word, position = call.args
    lanes = _lanes_of(call)
    tail = _all_lanes(tirx.const(32 - bits, "int32"), lanes)
    return (word << (tail - _bits_before(position, bits, lanes)) >> tail).astype(str(call.expr_ty().dtype))


def _masked(bits: int, call: tvm.ir.Call) -> tirx.Expr:
    word, position = call.args
    lanes, mask = _lanes_of(call), ((1 << bits) - 1) * 0x01010101
    return (word >> _bits_before(position, bits, lanes)) & _all_lanes(tirx.const(mask, "int32"), lanes)


def _looked_up(call: tvm.ir.Call) -> tirx.Expr:
    """The instruction reads the lowest 4 bits of each lane."""
    lanes = _lanes_of(call)
    if lanes != _LANES:
        return _shifted(4, call)
    word, position = call.args
    numbers = [tirx.const(float(code - 16 if code > 7 else code), "float32") for code in range(16)]
    table = tirx.Shuffle(numbers, list(range(_LANES)))
    moved = word >> _bits_before(position, 4, lanes)
    return tirx.call_llvm_pure_intrin(f"float32x{lanes}", _PERMUTE, table, moved)


def _lanes_of(call: tvm.ir.Call) -> int:
    return int(tvm.DataType(str(call.expr_ty().dtype)).lanes)


def _bits_before(position: tirx.Expr, bits: int, lanes: int) -> tirx.Expr:
    """Returns the bits before a position, which may differ from lane to lane, int32."""
    if isinstance(position, tirx.Broadcast):
        position = position.value
    if int(tvm.DataType(str(position.expr_ty().dtype)).lanes) > 1:
        return position.astype(f"int32x{lanes}") * _all_lanes(tirx.const(bits, "int32"), lanes)
    count = tirx.const(int(position), "int32") if isinstance(position, tirx.IntImm) else position.astype("int32")
    return _all_lanes(count * bits, lanes)


def _all_lanes(value: tirx.Expr, lanes: int) -> tirx.Expr:
    return value if lanes == 1 else tirx.Broadcast(value, lanes)
