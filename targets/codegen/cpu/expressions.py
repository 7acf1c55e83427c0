"""Analyzes and rebuilds expressions at code generation, after vectorization and with let-bound variables resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tvm
from tvm import tirx
from tvm.ir.expr import Call, StringImm, TensorLoad

__all__ = [
    "IF_THEN_ELSE",
    "LIKELY",
    "dtype_of",
    "inside",
    "is_integer",
    "is_pure",
    "lanes_of",
    "name_of",
    "operands_of",
    "rebuilt",
]

IF_THEN_ELSE = ("prim.if_then_else", "tirx.if_then_else")
"""The names of the operator that evaluates only one of two values."""

LIKELY = "tirx.likely"
"""The operator that marks a condition as usually true."""


def name_of(call: Call) -> str:
    """Returns the name of the callee."""
    return str(getattr(call.op, "name", ""))


def dtype_of(expr: tirx.Expr) -> str:
    """Return the element type of an expression with the number of its lanes."""
    return str(expr.expr_ty().dtype)


def lanes_of(expr: tirx.Expr) -> int:
    """Returns the number of lanes of an expression."""
    return int(tvm.DataType(dtype_of(expr)).lanes)


def is_integer(expr: tirx.Expr, any_lanes: bool = False) -> bool:
    """Return whether an expression is an integer, or with `any_lanes` a vector of integers."""
    dtype = dtype_of(expr) if hasattr(expr.ty, "dtype") else ""
    return dtype.startswith(("int", "uint")) and (any_lanes or lanes_of(expr) == 1)


def is_pure(expr: tirx.Expr) -> bool:
    """Return whether an expression always has the same value: it reads no memory, and calls nothing."""
    return not any(
        isinstance(part, TensorLoad) or (isinstance(part, Call) and name_of(part) not in (*IF_THEN_ELSE, LIKELY))
        for part in inside(expr)
    )


def inside(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    """Yield an expression and its subexpressions."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += operands_of(part)


def operands_of(expr: tirx.Expr) -> list[tirx.Expr]:
    """Return the immediate subexpressions."""
    match expr:
        case tirx.IntImm() | tirx.FloatImm() | tirx.Var() | StringImm():
            return []
        case Call():
            return [arg for arg in expr.args if isinstance(arg, tirx.Expr)]
        case TensorLoad():
            return list(expr.indices)
        case tirx.Select():
            return [expr.condition, expr.true_value, expr.false_value]
        case tirx.Cast() | tirx.Broadcast():
            return [expr.value]
        case tirx.Ramp():
            return [expr.base, expr.stride]
        case tirx.Shuffle():
            return list(expr.vectors)
        case tirx.Let():
            return [expr.value, expr.body]
        case tirx.Not() | tirx.BitwiseNot():
            return [expr.a]
    return [expr.a, expr.b] if hasattr(expr, "b") else []


def rebuilt(expr: tirx.Expr, change: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """Return an expression with `change` applied to each immediate subexpression; itself if nothing changes."""
    before = operands_of(expr)
    after = [change(part) for part in before]
    if all(new.same_as(old) for new, old in zip(after, before, strict=True)):
        return expr
    match expr:
        case Call():
            made = iter(after)
            args = [next(made) if isinstance(arg, tirx.Expr) else arg for arg in expr.args]
            return Call(expr.op, args, expr.attrs, ret_ty=expr.ty)
        case TensorLoad():
            return tirx.BufferLoad(expr.source, after)
        case tirx.Select():
            return tirx.Select(*after)
        case tirx.Cast():
            return tirx.Cast(str(expr.expr_ty().dtype), *after)
        case tirx.Broadcast():
            return tirx.Broadcast(*after, expr.lanes)
        case tirx.Ramp():
            return tirx.Ramp(*after, expr.lanes)
        case tirx.Shuffle():
            return tirx.Shuffle(after, expr.indices)
        case tirx.Let():
            return tirx.Let(expr.var, *after)
    return type(expr)(*after)
