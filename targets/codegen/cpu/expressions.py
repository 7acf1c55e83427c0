"""What is inside of expressions that become code: vectors are vectors already, and names have values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvm import tirx
from tvm.ir.expr import Call, StringImm, TensorLoad

__all__ = ["IF_THEN_ELSE", "inside", "operands_of", "rebuilt"]

IF_THEN_ELSE = ("prim.if_then_else", "tirx.if_then_else")
"""Names of the operator that computes one of two values alone."""


def inside(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    """The expression and all of those inside."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += operands_of(part)


def operands_of(expr: tirx.Expr) -> list[tirx.Expr]:
    """The expressions right inside an expression."""
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
    """The expression with `change` applied to each one right inside it; itself if nothing changes."""
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
