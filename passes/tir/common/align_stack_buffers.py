"""Aligns the stack frames of functions that spill vectors to the size of a vector.

Tiles of partial sums exceed the registers: while one part is computed, LLVM spills the sum of the parts before it.
Callers align the stack to 16 bytes only, and vectors of 64 bytes would each lie in two lines of the cache. LLVM can
align the frame itself, for which it needs a frame pointer; whether to have one it decides before it knows what will not
fit into registers. A function that takes the address of its frame has one from the start.

    for tile in parallel:  # annotated             for tile in parallel:
        …                                   →          prefetch(address of the frame)  # it is in the cache anyway
                                                       …
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, PrimType

from nnefc.ir.attributes import ALIGNED_FRAME
from nnefc.ir.rebuild import with_fields

__all__ = ["align_stack_buffers"]


def align_stack_buffers(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statement with aligned stack frames in the loops that are annotated for it."""
    return tvm_ffi.structural_map(stmt, (tirx.For, _with_aligned_frame))


def _with_aligned_frame(stmt: tirx.For) -> tirx.For:
    if ALIGNED_FRAME not in stmt.annotations:
        return stmt
    body = tirx.SeqStmt([_touch_frame(), stmt.body])
    tail = {key: value for key, value in stmt.annotations.items() if key != ALIGNED_FRAME}
    return with_fields(stmt, body=body, annotations=tail)


_POINTER = PointerType(PrimType("uint8"))


def _touch_frame() -> tirx.Stmt:
    read, near, data = tirx.const(0, "int32"), tirx.const(3, "int32"), tirx.const(1, "int32")
    frame = tirx.call_llvm_pure_intrin(_POINTER, "llvm.frameaddress", tirx.const(0, "int32"))
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", frame, read, near, data))
