"""Writes vectors that repeat one byte as vectors of words.

    broadcast(int8(-100), 16)      →      reinterpret(int8x16, broadcast(0x9c9c9c9c, 4))

TVM's code generator writes the former as `make_int4` with 16 arguments, which CUDA C does not have.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields
from nnefc.support.element_types import BYTES

__all__ = ["repeat_bytes_in_words"]

_OF_WORD = 4
_ONES = 0x01010101


def repeat_bytes_in_words(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function of the device's in which no vector repeats a byte more than four times."""

    def written(expr: tirx.Broadcast) -> tirx.Expr:
        lanes, dtype = int(expr.lanes), str(expr.value.expr_ty().dtype)
        if dtype not in BYTES or lanes <= _OF_WORD or lanes % _OF_WORD:
            return expr
        words = tirx.Broadcast(_word(expr.value), lanes // _OF_WORD)
        return tirx.reinterpret(f"{dtype}x{lanes}", words)

    return with_fields(func, body=tvm_ffi.structural_map(func.body, (tirx.Broadcast, written)))


def _word(byte: tirx.Expr) -> tirx.Expr:
    """Returns the int32 of which each byte is one byte."""
    if isinstance(byte, tirx.IntImm):
        word = (int(byte.value) & 0xFF) * _ONES
        return tirx.IntImm("int32", word - (1 << 32) if word >> 31 else word)
    return tirx.bitwise_and(tirx.Cast("int32", byte), tirx.IntImm("int32", 0xFF)) * tirx.IntImm("int32", _ONES)
