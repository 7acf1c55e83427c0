"""Keeps predicates as `bool` expressions: TVM's bound analysis fails on predicates that are cast or bound by a let.

    c = ramp(i) == j;  y[…] = select(c, x, float(ramp(i) == j))
    →    c = select(ramp(i) == j, 1, 0);  y[…] = select(c != 0, x, select(ramp(i) == j, 1.0, 0.0))

LLVM makes the same of both.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields

__all__ = ["keep_boolean_vectors"]


def keep_boolean_vectors(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function in which vectors of booleans that are cast or let-bound are selections between numbers."""
    names: dict[tirx.Var, tirx.Var] = {}

    def note(stmt: tirx.Bind) -> None:
        if _is_boolean_vector(stmt.value):
            names[stmt.var] = tirx.Var(stmt.var.name, _numbers(stmt.value, "int8").ty)

    def renamed(stmt: tirx.Bind) -> tirx.Stmt:
        return tirx.Bind(names[stmt.var], _numbers(stmt.value, "int8")) if stmt.var in names else stmt

    def truth(var: tirx.Var) -> tirx.Expr:
        return names[var] != _all(0, "int8", var) if var in names else var

    def chosen(cast: tirx.Cast) -> tirx.Expr:
        if not _is_boolean_vector(cast.value):
            return cast
        return _numbers(cast.value, str(cast.ty).partition("x")[0])

    tvm_ffi.structural_walk(func.body, (tirx.Bind, note))
    body = tvm_ffi.structural_map(func.body, (tirx.Cast, chosen))
    if names:
        body = tvm_ffi.structural_map(tvm_ffi.structural_map(body, (tirx.Bind, renamed)), (tirx.Var, truth))
    return func if body.same_as(func.body) else with_fields(func, body=body)


def _is_boolean_vector(value: tirx.Expr) -> bool:
    return str(value.ty).startswith("boolx")


def _numbers(condition: tirx.Expr, dtype: str) -> tirx.Expr:
    """Return 1 where a condition is true, else 0."""
    return tirx.Select(condition, _all(1, dtype, condition), _all(0, dtype, condition))


def _all(number: int, dtype: str, like: tirx.Expr) -> tirx.Expr:
    """Return a vector of one number, as long as `like`."""
    return tirx.Broadcast(tirx.const(number, dtype), int(str(like.ty).removeprefix("boolx")))
