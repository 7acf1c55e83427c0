"""Questions about what the statements of a block read and compute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import tvm
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.passes.tir.expressions import inside, parts_of

__all__ = [
    "conditions_of",
    "flat_index",
    "loads_of",
    "strides_of",
    "values_of",
    "work_of",
]

_WORK_OF_A_CALL = 8  # of an elementary function, in additions
_IF_THEN_ELSE = ("prim.if_then_else", "tirx.if_then_else")
_FREE = (*_IF_THEN_ELSE, "tirx.reinterpret", "tirx.likely", "tirx.isnan")


def values_of(stmt: tirx.Stmt) -> list[tirx.Expr]:
    """What the assignments in the statements of a block compute, and where they write it."""
    match stmt:
        case tirx.BufferStore():
            return [stmt.value, *stmt.indices]
        case tirx.Bind():
            return [stmt.value]
        case tirx.SeqStmt():
            return [value for part in stmt.seq for value in values_of(part)]
        case tirx.IfThenElse():
            rest = [] if stmt.else_case is None else values_of(stmt.else_case)
            return [stmt.condition, *values_of(stmt.then_case), *rest]
        case tirx.For():
            return values_of(stmt.body)
    return []


def loads_of(expr: tirx.Expr) -> list[TensorLoad]:
    """All places where an expression reads tensors."""
    return [part for part in inside(expr) if isinstance(part, TensorLoad)]


def conditions_of(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    """What the choices in an expression depend on."""
    for part in inside(expr):
        match part:
            case tirx.Select():
                yield part.condition
            case Call(op=tvm.ir.Op()) if part.op.name in _IF_THEN_ELSE:
                yield part.args[0]


def work_of(expr: tirx.Expr) -> int:
    """Instructions that computing `expr` takes, very roughly; those of indices are not counted."""
    match expr:
        case tirx.IntImm() | tirx.FloatImm() | tirx.Var():
            return 0
        case TensorLoad():
            return 1
        case Call(op=tvm.ir.Op()) if expr.op.name in _FREE:
            own = 1
        case Call():
            own = _WORK_OF_A_CALL
        case _:
            own = 1
    return own + sum(map(work_of, parts_of(expr)))


def flat_index(buffer: tirx.Var, indices: Sequence[tirx.Expr]) -> tirx.Expr:
    """The place of an element in its tensor, all dimensions counted."""
    dtypes = {str(index.ty.dtype) for index in indices}
    dtype = dtypes.pop() if len(dtypes) == 1 else "int64"
    place: tirx.Expr = tirx.IntImm(dtype, 0)
    for extent, index in zip(buffer.shape, indices, strict=True):
        place = place * tirx.IntImm(dtype, int(extent)) + (index if not dtypes else index.astype(dtype))
    return place


def strides_of(shape: Sequence[int]) -> list[int]:
    """How far apart neighbours along each dimension lie."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
