"""Checks indices, divisors and accesses of kernels at run time, in builds with checks.

    x = A[i + 3]     →     x = A[i + 3] if 0 <= i + 3 < n else failed("reads A", i + 3, n)
    B[i] = y         →     if 0 <= i < n: B[i] = y, else: failed("writes B", i, n)
    j = a // b       →     j = a // b if b != 0 else failed("divides by zero")

A failed check is recorded, and the run ends with an error. Until then failed loads and divisions give 0, and failed
stores are skipped, so that nothing outside of the kernel's tensors is accessed. Loops that might not terminate ask
whether a check has failed. The pass runs on the final code, after unrolling and vectorization: of a vector the first
and the last lane are checked, or all lanes if these are not equally spaced.

Proved accesses (:mod:`ranges`) are not checked. Proofs assume that indices do not overflow; this is proved by their
ranges, or checked by computing them in a wider type.

C functions and matrix units are not checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce

import tvm
from tvm import tirx
from tvm.ir.expr import Call, StringImm, TensorLoad
from tvm.target import codegen

from nnefc.ir.attributes import ELEMENT_RANGES
from nnefc.ir.rebuild import with_fields
from nnefc.targets.codegen.cpu.expressions import (
    IF_THEN_ELSE,
    dtype_of,
    is_integer,
    is_pure,
    lanes_of,
    name_of,
    rebuilt,
)
from nnefc.targets.codegen.cpu.ranges import QUOTIENTS, Ranges, known_part

__all__ = ["Checks", "collected_checks", "insert_checks"]

_FAILED = "nnefc_check_failed"  # of the runtime: notes a failure
_RUN_FAILED = "nnefc_run_failed"  # of the runtime: whether something has failed
_ADDRESS = "tirx.address_of"
_DATA = "tirx.buffer_data"
_ON_THE_STACK = {"disable_lower_builtin": tirx.const(True, "bool")}  # an allocation that TVM leaves to LLVM
_LLVM = "tirx.call_llvm_intrin"
_MASKED_LOAD, _MASKED_STORE = map(codegen.llvm_lookup_intrinsic_id, ("llvm.masked.load", "llvm.masked.store"))
_INDICES = {"int32", "int64"}
_ANYWHERE = 1 << 40  # elements of views of unknown extent
_LONGEST = 1 << 31  # iterations of a loop that ends anyway
_SURE = 1 << 62  # integers of 64 bits below it did not overflow
_NOTHING = -1  # of no tensor: it has no elements to be compared with


@dataclass
class Checks:
    """The numbers of checked and of proved accesses and divisions in kernels.

    Attributes:
        proved: that cannot fail.
        checked: that are checked at run time.
    """

    proved: int = 0
    checked: int = 0

    def __add__(self, other: Checks) -> Checks:
        return Checks(self.proved + other.proved, self.checked + other.checked)


_CHECKS: ContextVar[Checks | None] = ContextVar("checks", default=None)


@contextmanager
def collected_checks() -> Iterator[Checks]:
    """Count the checks of the kernels that are lowered within this context."""
    counts = Checks()
    token = _CHECKS.set(counts)
    try:
        yield counts
    finally:
        _CHECKS.reset(token)


def insert_checks(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a flat kernel, after unrolling and vectorization, with checks."""
    kernel = _Kernel(func)
    body = kernel.statement(func.body)
    counts = _CHECKS.get()
    if counts is not None:
        counts.proved += kernel.checks.proved
        counts.checked += kernel.checks.checked
    return with_fields(func, body=body)


class _Kernel:
    """Inserts checks into the statements of a kernel."""

    def __init__(self, func: tirx.PrimFunc) -> None:
        self._name = StringImm(str(func.attrs.get("global_symbol", "")).removeprefix("nnefc_kernel_"))
        self._ranges = Ranges()
        for position, (minimum, greatest) in func.attrs.get(ELEMENT_RANGES, {}).items():
            self._ranges.tables[func.params[int(position)]] = (int(minimum), int(greatest))
        self._addresses: dict[tirx.Var, TensorLoad] = {}  # pointers to elements of tensors
        self._views: dict[tirx.Var, TensorLoad] = {}  # tensors of unknown extent that begin there
        self.checks = Checks()

    def statement(self, stmt: tirx.Stmt) -> tirx.Stmt:
        match stmt:
            case tirx.SeqStmt():
                parts = [self.statement(part) for part in stmt.seq]
                return tirx.SeqStmt([each for part in parts for each in _sequence(part)])
            case tirx.For():
                return self._loop(stmt)
            case tirx.While():
                goes_on = tirx.And(_nothing_failed(), self._value(stmt.condition))
                return tirx.While(goes_on, self.statement(stmt.body))
            case tirx.IfThenElse():
                condition = self._value(stmt.condition)
                with self._ranges.under(stmt.condition):
                    then = self.statement(stmt.then_case)
                tail = None
                if stmt.else_case is not None:
                    with self._ranges.under(tirx.Not(stmt.condition)):
                        tail = self.statement(stmt.else_case)
                return tirx.IfThenElse(condition, then, tail)
            case tirx.AttrStmt():
                return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, self.statement(stmt.body))
            case tirx.Bind():
                return self._bind(stmt)
            case tirx.DeclBuffer():
                if stmt.data in self._addresses and _extent(stmt.buffer) is None:
                    self._views[stmt.buffer] = self._addresses[stmt.data]
                position = (
                    stmt.data.args[0] if isinstance(stmt.data, Call) and name_of(stmt.data) == _DATA else stmt.data
                )
                if position in self._ranges.tables:
                    self._ranges.tables[stmt.buffer] = self._ranges.tables[position]
                return stmt
            case tirx.BufferStore():
                return self._store(stmt)
            case tirx.Evaluate():
                return self._evaluated(stmt)
        return stmt

    def _loop(self, loop: tirx.For) -> tirx.Stmt:
        extent = self._value(loop.extent)
        if not self._ranges.is_short(loop.extent, _LONGEST):
            extent = tirx.if_then_else(_nothing_failed(), extent, tirx.const(0, dtype_of(extent)))
        with self._ranges.within(loop):
            body = self.statement(loop.body)
        return with_fields(loop, min=self._value(loop.min), extent=extent, body=body)

    def _bind(self, stmt: tirx.Bind) -> tirx.Stmt:
        address = stmt.value
        while isinstance(address, Call) and (name_of(address) == "tirx.reinterpret" or name_of(address) == _LLVM):
            address = address.args[-1]
        if isinstance(address, Call) and name_of(address) == _ADDRESS:
            self._addresses[stmt.var] = address.args[0]
        elif is_integer(stmt.value):
            self._ranges.bind(stmt.var, stmt.value)
        value = self._value(stmt.value)
        if is_integer(value) and not isinstance(value, tirx.IntImm | tirx.Var):
            return _kept(stmt.var, value)
        return tirx.Bind(stmt.var, value)

    def _store(self, stmt: tirx.BufferStore) -> tirx.Stmt:
        value = self._value(stmt.value)
        (position,) = stmt.indices
        index = self._value(position)
        before: list[tirx.Stmt] = []
        if _takes_work(index):
            var = tirx.Var("slot", index.expr_ty())
            before, index = [tirx.Bind(var, index)], var
        check = self._check("writes", stmt.buffer, position, index)
        store = tirx.BufferStore(stmt.buffer, value, [index])
        if check is not None:
            store = tirx.IfThenElse(check.holds, store, tirx.Evaluate(check.failed))
        return tirx.SeqStmt([*before, store]) if before else store

    def _evaluated(self, stmt: tirx.Evaluate) -> tirx.Stmt:
        call = stmt.value
        if not (isinstance(call, Call) and name_of(call) == _LLVM and int(call.args[0]) == _MASKED_STORE):
            return tirx.Evaluate(self._value(call))
        number, value, address, inside = call.args
        check = self._masked("writes", address, inside)
        made = tirx.Evaluate(Call(call.op, [number, self._value(value), address, inside], call.attrs, ret_ty=call.ty))
        return made if check is None else tirx.IfThenElse(check.holds, made, tirx.Evaluate(check.failed))

    def _value(self, value: tirx.Expr) -> tirx.Expr:
        match value:
            case tirx.IntImm() | tirx.FloatImm() | StringImm():
                return value
            case TensorLoad():
                return self._load(value)
            case Call() if name_of(value) in IF_THEN_ELSE:
                condition, then, tail = value.args
                with self._ranges.under(condition):
                    then = self._value(then)
                with self._ranges.under(tirx.Not(condition)):
                    tail = self._value(tail)
                return tirx.if_then_else(self._value(condition), then, tail)
            case Call() if name_of(value) == _ADDRESS:
                return value
            case Call() if name_of(value) == _LLVM and int(value.args[0]) == _MASKED_LOAD:
                check = self._masked("reads", value.args[1], value.args[2])
                return value if check is None else check.guarding(value)
            case tirx.Let():
                if is_integer(value.value):
                    self._ranges.bind(value.var, value.value)
                return tirx.Let(value.var, self._value(value.value), self._value(value.body))
        if isinstance(value, QUOTIENTS) and is_integer(value, any_lanes=True):
            return self._quotient(value)
        return rebuilt(value, self._value)

    def _load(self, load: TensorLoad) -> tirx.Expr:
        (position,) = load.indices
        index = self._value(position)
        if not _takes_work(index):
            check = self._check("reads", load.source, position, index)
            return load if check is None else check.guarding(load)
        var = tirx.Var("slot", index.expr_ty())
        check = self._check("reads", load.source, position, var)
        found = tirx.BufferLoad(load.source, [var])
        return tirx.Let(var, index, found if check is None else check.guarding(found))

    def _quotient(self, value: tirx.Expr) -> tirx.Expr:
        a, b = self._value(value.a), self._value(value.b)
        made = value if a.same_as(value.a) and b.same_as(value.b) else type(value)(a, b)
        lanes = lanes_of(value.b)
        divisor = value.b.value if isinstance(value.b, tirx.Broadcast) else value.b
        if isinstance(divisor, tirx.IntImm) and int(divisor) != 0:
            return made
        if lanes == 1 and self._ranges.proves(divisor != 0):
            self.checks.proved += 1
            return made
        if isinstance(value.b, tirx.Broadcast) and self._ranges.proves(divisor != 0):
            self.checks.proved += 1
            return made
        self.checks.checked += 1
        failed = self._failure("divides by zero", tirx.IntImm("int64", 0), tirx.IntImm("int64", _NOTHING))
        once = tirx.Var("divisor", b.expr_ty()) if _takes_work(b) else b
        guarded = _Check(_all([part != 0 for part in _parts(once)]), failed).guarding(type(value)(a, once))
        return guarded if once is b else tirx.Let(once, b, guarded)

    def _check(self, does: str, tensor: tirx.Var, position: tirx.Expr, index: tirx.Expr) -> _Check | None:
        """Return the check that an index is within a tensor; None if that is proved.

        Args:
            does: the access, for messages.
            tensor: the buffer.
            position: the original index, for proofs.
            index: the same index, to be computed.
        """
        name = tensor.name
        while tensor in self._views:  # a view that begins at an element of another one
            begin = self._views[tensor]
            tensor, (first,) = begin.source, begin.indices
            position, index = _moved(position, first), _moved(index, first)
        extent = _extent(tensor)
        if extent is None:
            return None
        return self._inside(f"{does} {name}", _ends(position), _ends(index), extent)

    def _masked(self, does: str, address: tirx.Expr, inside: tirx.Expr) -> _Check | None:
        """Return the check for the lanes of a vector that a mask enables, those below a number."""
        load = address.args[0]
        (first,) = load.indices
        lanes = tirx.const(lanes_of(inside), dtype_of(first))
        left = lanes
        if isinstance(inside, tirx.LT) and isinstance(inside.b, tirx.Broadcast):
            left = tirx.min(known_part(inside.b.value).astype(dtype_of(first)), lanes)
        tensor, name = load.source, load.source.name
        while tensor in self._views:
            begin = self._views[tensor]
            tensor, first = begin.source, begin.indices[0] + first
        extent = _extent(tensor)
        if extent is None:
            return None
        ends = [first, first + tirx.max(left, tirx.const(1, dtype_of(first))) - 1]
        check = self._inside(f"{does} {name}", ends, ends, extent)
        if check is None:
            return None
        return _Check(tirx.Or(left <= 0, check.holds), check.failed)

    def _inside(
        self, does: str, positions: Sequence[tirx.Expr], indices: Sequence[tirx.Expr], extent: tirx.Expr
    ) -> _Check | None:
        if all(self._ranges.is_inside(position, extent) for position in positions):
            self.checks.proved += 1
            return None
        self.checks.checked += 1
        wide, size = [index.astype("int64") for index in indices], extent.astype("int64")
        fits = [tirx.And(index >= 0, index < size) for index in wide]
        fits += [test for index in indices if (test := self._without_overflow(index)) is not None]
        wrong = wide[-1]
        for index in reversed(wide[:-1]):
            wrong = tirx.Select(tirx.And(index >= 0, index < size), wrong, index)
        return _Check(_all(fits), self._failure(does, wrong, size))

    def _without_overflow(self, index: tirx.Expr) -> tirx.Expr | None:
        """Return the condition that no sum or product in an index overflows; None if that is proved."""
        if not self._ranges.may_overflow(index):
            return None
        if int(tvm.DataType(dtype_of(index)).bits) < 64:
            return _in_type(index, "int64") == index.astype("int64")
        wide = _in_type(index, "float64")
        limit = tirx.const(float(_SURE), "float64")
        return tirx.And(wide < limit, wide > -limit)

    def _failure(self, does: str, index: tirx.Expr, size: tirx.Expr) -> tirx.Expr:
        return tirx.call_extern("int32", _FAILED, self._name, StringImm(does), index, size)


@dataclass(frozen=True)
class _Check:
    """A condition that must hold, and the int32 expression that reports a failure and is 0."""

    holds: tirx.Expr
    failed: tirx.Expr

    def guarding(self, value: tirx.Expr) -> tirx.Expr:
        """Return the value if the condition holds, else zeros."""
        scalar, lanes = dtype_of(value).partition("x")[0], lanes_of(value)
        zero = self.failed
        if scalar == "bool":
            zero = zero != 0
        elif scalar != "int32":
            zero = zero.astype("float32").astype(scalar) if "float" in scalar else zero.astype(scalar)
        return tirx.if_then_else(self.holds, value, tirx.Broadcast(zero, lanes) if lanes > 1 else zero)


def _nothing_failed() -> tirx.Expr:
    return tirx.call_extern("int32", _RUN_FAILED) == 0


def _all(conditions: Sequence[tirx.Expr]) -> tirx.Expr:
    return reduce(tirx.And, conditions)


def _extent(tensor: tirx.Var) -> tirx.Expr | None:
    """Returns the number of elements of a flat tensor; None for a view of unknown extent."""
    size = math.prod(tensor.shape[1:], start=tensor.shape[0]) if len(tensor.shape) else tirx.IntImm("int64", 1)
    return None if isinstance(size, tirx.IntImm) and int(size) >= _ANYWHERE else size


def _ends(index: tirx.Expr) -> list[tirx.Expr]:
    """Return the lanes of a vector of indices between which all others are."""
    if isinstance(index, tirx.Ramp):
        return [index.base, index.base + index.stride * tirx.const(int(index.lanes) - 1, dtype_of(index.base))]
    return [index.value] if isinstance(index, tirx.Broadcast) else _parts(index)


def _sequence(stmt: tirx.Stmt) -> Sequence[tirx.Stmt]:
    """Return the statements of a sequence in the same scope."""
    return list(stmt.seq) if isinstance(stmt, tirx.SeqStmt) else [stmt]


def _kept(var: tirx.Var, value: tirx.Expr) -> tirx.Stmt:
    """Return a statement that binds an integer by way of memory, which LLVM promotes to a register.

    TVM substitutes and simplifies the values of let-bound names, but not of memory. With checks in all of them, that
    would take minutes for an index whose sizes are sums of minima.
    """
    element = tirx.decl_buffer((1,), dtype_of(value), var.name, scope="local")
    first = tirx.IntImm("int64", 0)
    stored = tirx.BufferStore(element, value, [first])
    return tirx.SeqStmt(
        [tirx.AllocBuffer(element, _ON_THE_STACK), stored, tirx.Bind(var, tirx.BufferLoad(element, [first]))]
    )


def _parts(value: tirx.Expr) -> list[tirx.Expr]:
    """Returns the lanes of a vector."""
    if isinstance(value, tirx.Broadcast):
        return [value.value]
    lanes = lanes_of(value)
    return [tirx.Shuffle([value], [lane]) for lane in range(lanes)] if lanes > 1 else [value]


def _moved(index: tirx.Expr, by: tirx.Expr) -> tirx.Expr:
    if isinstance(index, tirx.Ramp):
        return tirx.Ramp(index.base + by, index.stride, index.lanes)
    return index + (tirx.Broadcast(by, lanes_of(index)) if lanes_of(index) > 1 else by)


def _takes_work(index: tirx.Expr) -> bool:
    """Return whether an index should be computed once, and then compared and used."""
    is_vector = lanes_of(index) > 1 and not isinstance(index, tirx.Ramp | tirx.Broadcast | tirx.Var)
    return is_vector or not is_pure(index)


def _in_type(expr: tirx.Expr, dtype: str) -> tirx.Expr:
    """Return an index computed in a wider type."""
    match expr:
        case tirx.FloorDiv() | tirx.FloorMod() if dtype == "float64":
            whole, divisor = _in_type(expr.a, dtype), _in_type(expr.b, dtype)
            quotient = tirx.floor(whole / divisor)
            return quotient if isinstance(expr, tirx.FloorDiv) else whole - quotient * divisor
        case tirx.Add() | tirx.Sub() | tirx.Mul() | tirx.Min() | tirx.Max() | tirx.FloorDiv() | tirx.FloorMod():
            return type(expr)(_in_type(expr.a, dtype), _in_type(expr.b, dtype))
        case tirx.Div() | tirx.Mod() if dtype != "float64":
            return type(expr)(_in_type(expr.a, dtype), _in_type(expr.b, dtype))
        case tirx.Select():
            chosen = _in_type(expr.true_value, dtype), _in_type(expr.false_value, dtype)
            return tirx.Select(expr.condition, *chosen)
        case tirx.Cast() if {dtype_of(expr), dtype_of(expr.value)} <= _INDICES:  # others change numbers by intent
            return _in_type(expr.value, dtype)
    return expr.astype(dtype)
