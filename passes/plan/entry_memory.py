"""Builds the loads, stores and copies of the entry's own code."""

from __future__ import annotations

from typing import Protocol

from tvm import tirx
from tvm.ir import PointerType, PrimType

from nnefc.symbolic.dims import Dimension

__all__ = ["Counter", "HostMemory", "Memory"]

_FAILED = "nnefc_run_failed"  # of the runtime: whether a kernel of this run has failed


class Memory(Protocol):
    """Builds the loads, stores and copies of the entry's own code."""

    failed: str
    """The function of the runtime that says whether something of this run has failed."""

    def copy(self, source: tirx.Expr, target: tirx.Expr, count: Dimension) -> tirx.Stmt:
        """Copies bytes from one address to another."""

    def item(self, address: tirx.Expr, dtype: str) -> tuple[list[tirx.Stmt], tirx.Expr]:
        """Returns the single element of this type at an address: its declaration, and the expression that reads it."""

    def counter(self, address: tirx.Expr, *, is_read: bool) -> Counter:
        """Returns the counter of a loop's iterations: an int64 at an address that only the entry writes.

        Args:
            is_read: whether the loop's body reads it there.
        """


class Counter(Protocol):
    """The counter of a loop's iterations, where the loop's body reads it."""

    declared: list[tirx.Stmt]
    value: tirx.Expr

    def become(self, value: tirx.Expr) -> tirx.Stmt:
        """Sets the counter: to 0, or to one more than before."""


class HostMemory:
    """The memory of the processor that runs the entry; `size_type` is C's size_t on it."""

    failed = _FAILED

    def __init__(self, size_type: str) -> None:
        self._size_type = size_type

    def copy(self, source: tirx.Expr, target: tirx.Expr, count: Dimension) -> tirx.Stmt:
        size = tirx.IntImm(self._size_type, count) if isinstance(count, int) else count.expr.astype(self._size_type)
        return tirx.Evaluate(tirx.call_extern("handle", "memcpy", target, source, size))

    def item(self, address: tirx.Expr, dtype: str) -> tuple[list[tirx.Stmt], tirx.Expr]:
        declared, buffer = _viewed(address, dtype)
        return declared, buffer[0]

    def counter(self, address: tirx.Expr, *, is_read: bool) -> Counter:
        return _HostCounter(*_viewed(address, "int64"))


class _HostCounter:
    def __init__(self, declared: list[tirx.Stmt], buffer: tirx.Var) -> None:
        self.declared = declared
        self.value = buffer[0]
        self._buffer = buffer

    def become(self, value: tirx.Expr) -> tirx.Stmt:
        return tirx.BufferStore(self._buffer, value, [0])


def _viewed(address: tirx.Expr, dtype: str) -> tuple[list[tirx.Stmt], tirx.Var]:
    """Returns a buffer of one element at an address, and what declares it."""
    pointer = tirx.Var("item", PointerType(PrimType(dtype)))
    buffer = tirx.decl_buffer((1,), dtype, name="item", data=pointer)
    return [tirx.Bind(pointer, tirx.reinterpret(pointer.ty, address)), tirx.DeclBuffer(buffer, data=pointer)], buffer
