"""Analyzes statements: the variables that they use, the pointers that they write through, the arrays that may become
variables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TypeGuard

import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType
from tvm.ir.expr import Call, TensorLoad

from nnefc.targets.codegen.c.texts import TEXT_RESULTS
from nnefc.targets.codegen.cpu.expressions import inside, name_of, operands_of

__all__ = [
    "BUFFER_DATA",
    "has_effect",
    "is_either",
    "kept_in_variables",
    "reads_others",
    "used_variables",
    "written_pointers",
]


BUFFER_DATA = "tirx.buffer_data"
_EITHER = "nnefc_either"  # of the runtime: one address or another
_SCALARS = 128
"""Maximum elements of an array that becomes variables."""


def reads_others(store: tirx.BufferStore) -> bool:
    """Return whether lanes of a vector are computed from elements that other lanes are stored to."""

    def crosses(expr: tirx.Expr, is_shuffled: bool) -> bool:
        if isinstance(expr, TensorLoad) and expr.source.same_as(store.buffer):
            return is_shuffled or not tvm_ffi.structural_equal(expr.indices[0], store.indices[0])
        shuffled = is_shuffled or isinstance(expr, tirx.Shuffle)
        return any(crosses(part, shuffled) for part in operands_of(expr))

    return crosses(store.value, False)


def has_effect(value: tirx.Expr) -> bool:
    """Return whether evaluating an expression has side effects."""
    return any(isinstance(part, Call) and name_of(part) == "tirx.call_extern" for part in inside(value))


def _expressions(stmt: tirx.Stmt) -> Iterator[tirx.Expr]:
    """Yield the expressions of statements and their subexpressions."""
    for part in _ordered(stmt):
        yield from _expressions_of(part)


def _expressions_of(part: tirx.Stmt) -> Iterator[tirx.Expr]:
    """Yield the expressions of a statement and their subexpressions, without those of inner statements."""
    match part:
        case tirx.For():
            yield from (*inside(part.min), *inside(part.extent))
        case tirx.While() | tirx.IfThenElse():
            yield from inside(part.condition)
        case tirx.Bind() | tirx.Evaluate():
            yield from inside(part.value)
        case tirx.Return() if part.value is not None:
            yield from inside(part.value)
        case tirx.DeclBuffer():
            yield from inside(part.data)
        case tirx.BufferStore():
            yield from (*inside(part.value), *inside(part.indices[0]))


def used_variables(stmt: tirx.Stmt) -> Counter[tirx.Var]:
    """Count the uses of variables, pointers and buffers by code that is used itself or has side effects."""
    found: Counter[tirx.Var] = Counter()
    for part in reversed(list(_ordered(stmt))):  # what is bound comes before where it is used
        match part:
            case tirx.Bind() if not found[part.var] and not has_effect(part.value):
                continue
            case tirx.DeclBuffer() if not found[part.buffer]:
                continue
            case tirx.BufferStore():
                found[part.buffer] += 1
        for expr in _expressions_of(part):
            if isinstance(expr, tirx.Var):
                found[expr] += 1
            elif isinstance(expr, TensorLoad):
                found[expr.source] += 1
    return found


def kept_in_variables(stmt: tirx.Stmt) -> set[tirx.Var]:
    """Return the small arrays that are accessed at constant indices only, and whose address is not taken."""
    found: dict[tirx.Var, bool] = {}
    for part in _ordered(stmt):
        if isinstance(part, tirx.AllocBuffer):
            sizes = [extent for extent in part.buffer.shape if isinstance(extent, tirx.IntImm)]
            small = len(sizes) == len(part.buffer.shape) and _product(sizes) <= _SCALARS
            found[part.buffer] = found.get(part.buffer, True) and small

    def refuse(buffer: tirx.Var) -> None:
        if buffer in found:
            found[buffer] = False

    for part in _ordered(stmt):
        if isinstance(part, tirx.BufferStore) and not _is_constant(part.indices[0]):
            refuse(part.buffer)
    for expr in _expressions(stmt):
        if isinstance(expr, TensorLoad) and not _is_constant(expr.indices[0]):
            refuse(expr.source)
        elif isinstance(expr, tirx.Var):
            refuse(expr)
        elif isinstance(expr, Call) and name_of(expr) == "tirx.address_of":
            refuse(expr.args[0].source)
        elif isinstance(expr, Call) and name_of(expr) == BUFFER_DATA:
            refuse(expr.args[0])
    return {buffer for buffer, kept in found.items() if kept}


def _product(sizes: Collection[tirx.IntImm]) -> int:
    made = 1
    for size in sizes:
        made *= int(size)
    return made


def _is_constant(index: tirx.Expr) -> bool:
    if isinstance(index, tirx.Ramp):
        return isinstance(index.base, tirx.IntImm) and isinstance(index.stride, tirx.IntImm)
    return isinstance(index, tirx.IntImm)


def written_pointers(func: tirx.PrimFunc) -> set[tirx.Var]:
    """Return a function's pointer parameters through which it writes."""
    roots: dict[tirx.Var, set[tirx.Var]] = {param: {param} for param in func.params}
    found: set[tirx.Var] = set()

    def roots_of(address: object) -> set[tirx.Var]:
        return set().union(*(roots.get(base, set()) for base in _bases(address)))

    for part in _ordered(func.body):
        match part:
            case tirx.Bind() if isinstance(part.var.ty, PointerType):
                roots[part.var] = roots_of(part.value)
            case tirx.DeclBuffer():
                roots[part.buffer] = roots_of(part.data)
            case tirx.BufferStore():
                found |= roots.get(part.buffer, set())
            case tirx.Evaluate() if isinstance(part.value, Call) and name_of(part.value) == "tirx.call_extern":
                symbol, *args = part.value.args
                written = TEXT_RESULTS.get(str(symbol.value), range(len(args)))
                found = found.union(*(roots_of(args[position]) for position in written))
    return found


def is_either(expr: object) -> TypeGuard[Call]:
    """Return whether an expression selects one of two addresses."""
    return isinstance(expr, Call) and name_of(expr) == "tirx.call_extern" and str(expr.args[0].value) == _EITHER


def _bases(expr: object) -> Iterator[tirx.Var]:
    """Yield the pointers or buffers that an address may point into."""
    if is_either(expr):
        for value in expr.args[2:]:
            yield from _bases(value)
    elif isinstance(expr, Call) and name_of(expr) in ("tirx.reinterpret", "tirx.address_of", BUFFER_DATA) and expr.args:
        yield from _bases(expr.args[0])
    elif isinstance(expr, TensorLoad):
        yield from _bases(expr.source)
    elif isinstance(expr, tirx.Var):
        yield expr


def _ordered(stmt: tirx.Stmt) -> Iterator[tirx.Stmt]:
    """Yield a statement and its inner statements, in the order in which they are written."""
    yield stmt
    match stmt:
        case tirx.SeqStmt():
            for part in stmt.seq:
                yield from _ordered(part)
        case tirx.For() | tirx.While() | tirx.AttrStmt():
            yield from _ordered(stmt.body)
        case tirx.IfThenElse():
            yield from _ordered(stmt.then_case)
            if stmt.else_case is not None:
                yield from _ordered(stmt.else_case)
