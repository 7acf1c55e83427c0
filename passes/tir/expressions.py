"""Rebuilding expressions and making flat indices of them: what rules that write their own loops share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

__all__ = ["conjuncts", "flat_offset", "inside", "int64", "number", "parts_of", "rebuilt", "replaced", "substituted"]


def number(value: int) -> tirx.IntImm:
    """An index."""
    return tirx.IntImm("int32", value)


def int64(value: int) -> tirx.IntImm:
    """A constant, as TE's indices are."""
    return tirx.IntImm("int64", value)


def conjuncts(condition: tirx.Expr) -> list[tirx.Expr]:
    """The conditions that a condition says hold together."""
    if isinstance(condition, tirx.And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


def parts_of(expr: tirx.Expr) -> list[tirx.Expr]:
    """The expressions right inside an expression."""
    match expr:
        case Call():
            return [arg for arg in expr.args if isinstance(arg, tirx.Expr)]
        case TensorLoad():
            return list(expr.indices)
        case tirx.Select():
            return [expr.condition, expr.true_value, expr.false_value]
        case tirx.Cast() | tirx.Broadcast():
            return [expr.value]
        case tirx.Ramp():
            return [expr.base]
        case tirx.Let():
            return [expr.value, expr.body]
        case tirx.Not():
            return [expr.a]
    return [getattr(expr, side) for side in "ab" if hasattr(expr, side)]


def rebuilt(expr: tirx.Expr, change: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """The expression with `change` applied to each one right inside it."""
    match expr:
        case Call():
            args = [change(arg) if isinstance(arg, tirx.Expr) else arg for arg in expr.args]
            return tvm.ir.Call(expr.op, args, expr.attrs, ret_ty=expr.ty)
        case TensorLoad():
            return tirx.BufferLoad(expr.source, [change(index) for index in expr.indices])
        case tirx.Select():
            return tirx.Select(change(expr.condition), change(expr.true_value), change(expr.false_value))
        case tirx.Cast():
            return tirx.Cast(str(expr.expr_ty().dtype), change(expr.value))
        case tirx.Let():
            return tirx.Let(expr.var, change(expr.value), change(expr.body))
        case tirx.Not():
            return tirx.Not(change(expr.a))
    if hasattr(expr, "a") and hasattr(expr, "b"):
        return type(expr)(change(expr.a), change(expr.b))
    return expr


def substituted(
    expr: tirx.Expr,
    values: Mapping[tirx.Var, tirx.Expr],
    load: Callable[[tirx.Var, Sequence[tirx.Expr]], tirx.Expr] = tirx.BufferLoad,
) -> tirx.Expr:
    """The expression with variables replaced by `values`, and what it loads by `load(tensor, new indices)`."""

    def change(part: tirx.Expr) -> tirx.Expr:
        if isinstance(part, TensorLoad):
            return load(part.source, [change(index) for index in part.indices])
        if isinstance(part, tirx.Var) and part in values:
            return values[part]
        return rebuilt(part, change)

    return change(expr)


def replaced(expr: tirx.Expr, known: Sequence[tuple[tirx.Expr, tirx.Expr]]) -> tirx.Expr:
    """`expr` with parts of it replaced: each that equals the first of a pair by the second."""
    for part, replacement in known:
        if tvm_ffi.structural_equal(expr, part):
            return replacement
    return rebuilt(expr, lambda part: replaced(part, known))


def flat_offset(shape: Sequence[int], indices: Sequence[tirx.Expr]) -> tirx.Expr:
    """The place of an element in a tensor that lies in memory row by row."""
    total: tirx.Expr = number(0)
    for axis, index in enumerate(indices):
        total = total + index * number(math.prod(shape[axis + 1 :]))
    return total


def inside(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    """The expression and all of those inside."""
    yield expr
    for part in parts_of(expr):
        yield from inside(part)
