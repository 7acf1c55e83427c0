"""Rewrites the entry of a GPU network, whose pointers are the device's: the runtime copies for it.

    memcpy(b, a, 400)                  nnefc_cuda_copy(b, a, 400)
    if *(bool *)condition      →       if nnefc_device_bool(condition)                       # waits for the device
    *(int64 *)number = 3               counter = 3; nnefc_cuda_count(number, counter)        # if a kernel reads it

`nnefc_device_bool` and `nnefc_device_int64` are in the file of the launches, see `targets/codegen/cuda/launches.py`.
"""

from __future__ import annotations

from tvm import tirx

from nnefc.passes.plan.entry_memory import Counter
from nnefc.symbolic.dims import Dimension

__all__ = ["READERS", "DeviceMemory"]

READERS = {"int8": "nnefc_device_bool", "int64": "nnefc_device_int64"}
"""The functions that read an element of the device's memory, by its type."""

_ON_THE_STACK = {"disable_lower_builtin": tirx.const(True, "bool")}  # an allocation that TVM leaves to LLVM


class DeviceMemory:
    """Builds accesses to the memory of a GPU. To read an element of it, the entry waits for the device."""

    failed = "nnefc_cuda_run_failed"

    def copy(self, source: tirx.Expr, target: tirx.Expr, count: Dimension) -> tirx.Stmt:
        size = tirx.IntImm("uint64", count) if isinstance(count, int) else count.expr.astype("uint64")
        return tirx.Evaluate(tirx.call_extern("int32", "nnefc_cuda_copy", target, source, size))

    def item(self, address: tirx.Expr, dtype: str) -> tuple[list[tirx.Stmt], tirx.Expr]:
        return [], tirx.call_extern(dtype, READERS[dtype], address)

    def counter(self, address: tirx.Expr, *, is_read: bool) -> Counter:
        return _DeviceCounter(address if is_read else None)


class _DeviceCounter:
    """A counter of the host, which is written to an address of the device whenever it changes."""

    def __init__(self, address: tirx.Expr | None) -> None:
        self._buffer = tirx.decl_buffer((1,), "int64", name="counter")
        self._address = address
        self.declared: list[tirx.Stmt] = [tirx.AllocBuffer(self._buffer, _ON_THE_STACK)]
        self.value = self._buffer[0]

    def become(self, value: tirx.Expr) -> tirx.Stmt:
        kept = tirx.BufferStore(self._buffer, value, [0])
        if self._address is None:
            return kept
        write = tirx.call_extern("int32", "nnefc_cuda_count", self._address, self._buffer[0])
        return tirx.SeqStmt([kept, tirx.Evaluate(write)])
