"""Masks the last vector of a row of dynamic length: lanes beyond the end are neither read nor written.

    attribute MASK = left:                         inside = (0, 1, …, 15) < left
        y[i : i + 16] = x[i : i + 16] + 1    →     masked store(y + i, masked load(x + i, inside) + 1, inside)

Kernels say this of vectorized loops: see `passes/tir/common/mask_vector_tail.py`. What TVM did not make a vector of
is a loop
over the lanes still, which then leaves out those.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.attributes import MASK
from nnefc.ir.rebuild import with_fields

__all__ = ["lower_masks"]

_LARGEST = (1 << 31) - 1


def lower_masks(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a vectorized function with masked accesses where its attributes request them."""
    registers: list[tirx.Var] = []

    def note(stmt: tirx.AllocBuffer) -> None:
        if all(isinstance(size, tirx.IntImm) for size in stmt.buffer.shape):
            registers.append(stmt.buffer)

    tvm_ffi.structural_walk(func.body, (tirx.AllocBuffer, note))
    own = set(registers)

    def change(stmt: tirx.AttrStmt) -> tirx.Stmt:
        return _Masked(stmt.value, own).statement(stmt.body) if stmt.attr_key == MASK else stmt

    return tvm_ffi.structural_map(func, (tirx.AttrStmt, change))


class _Masked:
    """Restricts the accesses in a statement to the first `left` lanes.

    Buffers of known size, which LLVM may keep in registers, are accessed as a whole, and new values are selected. Both
    operands of a selection are evaluated; TVM simplifies the first by the condition, and would so enable all lanes of a
    load in it. The mask of a load is therefore opaque to TVM, but not to LLVM.
    """

    def __init__(self, left: tirx.Expr, registers: set[tirx.Var]) -> None:
        self._left = left.astype("int32")
        self._opaque = tirx.call_llvm_intrin("int32", "llvm.smin.i32", tirx.const(_LARGEST, "int32"), self._left)
        self._registers = registers

    def statement(self, stmt: tirx.Stmt) -> tirx.Stmt:
        return tvm_ffi.structural_map(
            stmt, [(TensorLoad, self._load), (tirx.BufferStore, self._store), (tirx.For, self._loop)]
        )

    def _inside(self, lanes: int) -> tirx.Expr:
        return _below(self._left, lanes)

    def _load(self, load: TensorLoad) -> tirx.Expr:
        (index,) = load.indices
        lanes = _lanes(index)
        if lanes == 1 or load.source in self._registers:
            return load
        if not _is_dense(index):  # lanes beyond the end read what another one reads
            inside = _below(self._opaque, lanes)
            return tirx.BufferLoad(load.source, [tirx.Select(inside, index, _nowhere(index))])
        dtype = str(load.source.dtype)
        address = tirx.address_of(tirx.BufferLoad(load.source, [index.base]))
        nothing = tirx.Broadcast(tirx.const(0, dtype), lanes)
        mask = _below(self._opaque, lanes)
        return tirx.call_llvm_intrin(f"{dtype}x{lanes}", "llvm.masked.load", address, mask, nothing)

    def _store(self, store: tirx.BufferStore) -> tirx.Stmt:
        (index,) = store.indices
        lanes = _lanes(index)
        if lanes == 1:
            return store
        if store.buffer in self._registers:
            before = tirx.BufferLoad(store.buffer, [index])
            return tirx.BufferStore(store.buffer, tirx.Select(self._inside(lanes), store.value, before), [index])
        assert _is_dense(index)
        address = tirx.address_of(tirx.BufferLoad(store.buffer, [index.base]))
        value = store.value if _lanes(store.value) == lanes else tirx.Broadcast(store.value, lanes)
        return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.masked.store", value, address, self._inside(lanes)))

    def _loop(self, loop: tirx.For) -> tirx.For:
        body = tirx.IfThenElse(loop.loop_var.astype("int32") < self._left, loop.body, None)
        return with_fields(loop, body=body)


def _below(left: tirx.Expr, lanes: int) -> tirx.Expr:
    """Return the mask of the lanes below a number."""
    return tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), lanes) < tirx.Broadcast(left, lanes)


def _lanes(expr: tirx.Expr) -> int:
    return int(tvm.DataType(str(expr.expr_ty().dtype)).lanes)


def _is_dense(index: tirx.Expr) -> bool:
    return isinstance(index, tirx.Ramp) and isinstance(index.stride, tirx.IntImm) and int(index.stride) == 1


def _nowhere(index: tirx.Expr) -> tirx.Expr:
    """Return an index for disabled lanes: that of the first lane if it is simple, else the first of the tensor."""
    first = index.base if isinstance(index, tirx.Ramp) else tirx.IntImm("int64", 0)
    return tirx.Broadcast(first, _lanes(index))
