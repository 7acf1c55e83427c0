"""Assigns buffers inside loops to the stack, to a worker's scratch memory, or to the workspace.

    for i in parallel(m):                for i in parallel(m):
        t = alloc(n)              →          t = workspace[i * n:]
        …                                    …

Scratch memory has the max size that a kernel may need, in each worker. Where that is large because of dynamic
dimensions, each iteration of a parallel loop uses a part of the workspace instead, sized by the dimensions of the run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, PrimType

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.alignment import aligned
from nnefc.passes.tir.common.shapes import size_of, tensor_bytes
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import bounds, expression, is_known, variables

__all__ = [
    "ALONE",
    "BARE",
    "THREADS",
    "Frames",
    "keep_small_buffers_on_stack",
    "move_large_scratch_to_workspace",
    "scratch_bytes",
    "without_scratch",
]

_ON_THE_STACK = "disable_lower_builtin"  # annotation of allocations that TVM leaves to LLVM

_MAX_SCRATCH = 16 << 20
"""The maximum size of a buffer that each worker reserves, used or not."""


@dataclass(frozen=True)
class Frames:
    """The limits of local memory of kernels, besides their workspace.

    Attributes:
        largest: bytes of one buffer on the stack.
        maximum: bytes of all of a kernel's.
        scratch: whether threads have memory for larger ones; else there is one thread, and the workspace has them.
    """

    largest: int
    maximum: int
    scratch: bool


THREADS = Frames(4 << 10, 64 << 10, scratch=True)
"""Stack use of libraries with threads: some C libraries give a thread a stack of 128 KiB."""

ALONE = Frames(4 << 10, 64 << 10, scratch=False)
"""Stack use of libraries without threads, under an operating system."""

BARE = Frames(256, 1 << 10, scratch=False)
"""Stack use on machines without an operating system."""


def keep_small_buffers_on_stack(func: tirx.PrimFunc, frames: Frames) -> tirx.PrimFunc:
    """Marks small buffers to stay on the stack, instead of becoming scratch memory.

    LLVM can hold in registers what lies on the stack, as the tiles of contractions do from their first zero to their
    epilogue; what lies elsewhere it writes there and reads back.
    """

    def is_small(buffer: tirx.Var) -> bool:
        size = tensor_bytes(buffer)
        return is_known(size) and size <= frames.largest

    def onto_the_stack(stmt: tirx.AllocBuffer) -> tirx.AllocBuffer:
        if is_small(stmt.buffer):
            return tirx.AllocBuffer(stmt.buffer, {_ON_THE_STACK: tirx.const(True, "bool")})
        return stmt

    small = [buffer for buffer in _allocations(func.body) if is_small(buffer)]
    if sum(aligned(tensor_bytes(buffer)) for buffer in small) > frames.maximum:
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.AllocBuffer, onto_the_stack))
    return with_fields(func, body=body)


def move_large_scratch_to_workspace(
    func: tirx.PrimFunc, sizes: Collection[tirx.Var]
) -> tuple[tirx.PrimFunc, list[tirx.Var]]:
    """Moves large buffers of dynamic sizes to the workspace: returns the function with them as its last parameters, and
    these.

    Args:
        sizes: what is known when the function is called.
    """
    found = _LargeScratch(sizes)
    body = found.changed(func.body, None)
    return with_fields(func, params=[*func.params, *found.parameters], body=body), found.parameters


class _LargeScratch:
    def __init__(self, sizes: Collection[tirx.Var]) -> None:
        self._sizes = set(sizes)
        self.parameters: list[tirx.Var] = []

    def changed(self, stmt: tirx.Stmt, around: tirx.For | None) -> tirx.Stmt:
        """Returns a statement within a parallel loop, if there is one, in which large buffers are parts of the
        workspace.
        """
        match stmt:
            case tirx.AllocBuffer():
                return self._placed(stmt, around)
            case tirx.SeqStmt():
                return tirx.SeqStmt([piece for part in stmt.seq for piece in _pieces(self.changed(part, around))])
            case tirx.For():
                body = self.changed(stmt.body, stmt if stmt.kind == tirx.ForKind.PARALLEL else around)
                return with_fields(stmt, body=body)
            case tirx.AttrStmt():
                return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, self.changed(stmt.body, around))
            case tirx.While():
                return tirx.While(stmt.condition, self.changed(stmt.body, around))
            case tirx.IfThenElse():
                tail = None if stmt.else_case is None else self.changed(stmt.else_case, around)
                return tirx.IfThenElse(stmt.condition, self.changed(stmt.then_case, around), tail)
        return stmt

    def _placed(self, stmt: tirx.AllocBuffer, around: tirx.For | None) -> tirx.Stmt:
        buffer, size = stmt.buffer, tensor_bytes(stmt.buffer)
        if _ON_THE_STACK in stmt.annotations or is_known(size) or bounds(size)[1] <= _MAX_SCRATCH:
            return stmt
        trip_count = None if around is None else around.extent
        asked = {*variables(expression(size)), *(variables(trip_count) if trip_count is not None else ())}
        if not asked <= self._sizes:  # the kernel computes some of these sizes itself
            return stmt
        dtype = str(buffer.dtype)
        elements = aligned(size) // element_bytes(dtype)
        count = elements * size_of(trip_count) if trip_count is not None else elements
        whole = tirx.decl_buffer((expression(count),), dtype, name=f"{buffer.name}_of_all")
        self.parameters.append(whole)
        number = tirx.const(0, "int64") if around is None else (around.loop_var - around.min).astype("int64")
        pointer = tirx.Var(f"{buffer.name}_here", PointerType(PrimType(dtype)))
        begin = tirx.address_of(whole[number * expression(elements)])
        return tirx.SeqStmt(
            [tirx.Bind(pointer, tirx.reinterpret(pointer.ty, begin)), tirx.DeclBuffer(buffer, data=pointer)]
        )


def _pieces(stmt: tirx.Stmt) -> list[tirx.Stmt]:
    return list(stmt.seq) if isinstance(stmt, tirx.SeqStmt) else [stmt]


def without_scratch(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, list[tirx.Var]]:
    """Returns the function with the buffers that are not on the stack as its last parameters, and these buffers."""
    buffers = list(dict.fromkeys(_allocations(func.body)))

    def gone(stmt: tirx.AllocBuffer) -> tirx.Stmt:
        return tirx.Evaluate(tirx.IntImm("int32", 0)) if stmt.buffer in buffers else stmt

    body = tvm_ffi.structural_map(func.body, (tirx.AllocBuffer, gone)) if buffers else func.body
    return with_fields(func, params=[*func.params, *buffers], body=body), buffers


def scratch_bytes(body: tirx.Stmt) -> int:
    """Returns an upper bound of the scratch memory that statements request while they run, each request rounded up to
    the alignment.
    """
    return sum(bounds(aligned(tensor_bytes(buffer)))[1] for buffer in _allocations(body))


def _allocations(stmt: tirx.Stmt) -> list[tirx.Var]:
    """Returns the allocations in the statements, except those on the stack already."""
    match stmt:
        case tirx.AllocBuffer():
            return [] if _ON_THE_STACK in stmt.annotations else [stmt.buffer]
        case tirx.SeqStmt():
            return [buffer for part in stmt.seq for buffer in _allocations(part)]
        case tirx.For() if stmt.kind == tirx.ForKind.UNROLLED:  # its copies lie in one scope, all alive to its end
            return _allocations(stmt.body) * size_of(stmt.extent)
        case tirx.For() | tirx.AttrStmt() | tirx.While():
            return _allocations(stmt.body)
        case tirx.IfThenElse():
            tail = [] if stmt.else_case is None else _allocations(stmt.else_case)
            return _allocations(stmt.then_case) + tail
    return []
