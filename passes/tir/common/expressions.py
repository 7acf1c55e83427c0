"""Analyzes expressions: their variables, their cost, rebuilding, and flat indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from itertools import chain

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import detect_linear_equation

from nnefc.passes.tir.common.shapes import Size, size_of, sizes_of, strides_of
from nnefc.symbolic.dims import expression, is_size

__all__ = [
    "IF_THEN_ELSE",
    "conditions_of",
    "conjuncts",
    "converts_floats",
    "flat_offset",
    "in_floats",
    "in_parts",
    "inside",
    "int64",
    "is_number",
    "linear_strides",
    "loads_of",
    "number",
    "parts_of",
    "rebuilt",
    "replaced",
    "size_of_index",
    "substituted",
    "variables_of",
    "work_of",
]

IF_THEN_ELSE = ("prim.if_then_else", "tirx.if_then_else")
"""The operators that compute only one of two values."""

_WORK_OF_A_CALL = 8  # of an elementary function, in additions
_ONE_INSTRUCTION = (*IF_THEN_ELSE, "tirx.reinterpret", "tirx.likely", "tirx.isnan")


def number(value: Size) -> tirx.Expr:
    """Returns a 32-bit index; a dynamic size is converted."""
    return tirx.IntImm("int32", value) if isinstance(value, int) else _with_operands(value.expr, _to_32_bits)


def size_of_index(index: tirx.Expr) -> Size:
    """Returns the size that :func:`number` has converted to an index."""
    return size_of(_with_operands(index, _to_64_bits))


def _with_operands(expr: tirx.Expr, of: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """Rebuilds arithmetic on sizes from the results of `of` for its variables, constants and casts."""
    match expr:
        case tirx.Add() | tirx.Sub() | tirx.Mul() | tirx.FloorDiv() | tirx.FloorMod() | tirx.Min() | tirx.Max():
            return type(expr)(_with_operands(expr.a, of), _with_operands(expr.b, of))
    return of(expr)


def _to_32_bits(size: tirx.Expr) -> tirx.Expr:
    return tirx.IntImm("int32", int(size)) if isinstance(size, tirx.IntImm) else tirx.Cast("int32", size)


def _to_64_bits(index: tirx.Expr) -> tirx.Expr:
    if isinstance(index, tirx.Cast):
        return _with_operands(index.value, _to_64_bits)
    return tirx.IntImm("int64", int(index)) if isinstance(index, tirx.IntImm) else index


def int64(value: Size) -> tirx.Expr:
    """Returns an int64 constant, the type of TE's indices."""
    return expression(value)


def in_parts(x: tirx.Expr, lanes: int, function: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """Applies a function to a vector, `lanes` at a time."""
    count = int(tvm.DataType(str(x.expr_ty().dtype)).lanes)
    if count == lanes:
        return function(x)
    parts = [tirx.Shuffle([x], list(range(first, first + lanes))) for first in range(0, count, lanes)]
    return tirx.Shuffle([function(part) for part in parts], list(range(count)))


def converts_floats(expr: tirx.Expr) -> bool:
    """Whether a part of an integer expression is converted from a float."""
    found: list[tirx.Cast] = []
    tvm_ffi.structural_walk(expr, (tirx.Cast, found.append))
    return any("float" in str(cast.value.expr_ty().dtype) for cast in found)


def is_number(expr: tirx.Expr, value: float) -> bool:
    """Whether an expression is this constant; False for data-dependent sizes."""
    return isinstance(expr, tirx.IntImm | tirx.FloatImm) and bool(expr.value == value)


def conjuncts(condition: tirx.Expr) -> list[tirx.Expr]:
    """Splits a condition into the conditions that it joins by `and`."""
    if isinstance(condition, tirx.And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


def parts_of(expr: tirx.Expr) -> list[tirx.Expr]:
    """Returns the operands of an expression."""
    found = _PARTS.get(type(expr))  # many questions are asked of every part of a kernel: each class is looked up once
    if found is None:
        found = _PARTS[type(expr)] = _parts_by_class(expr)
    return found(expr)


_PARTS: dict[type, Callable[[tirx.Expr], list[tirx.Expr]]] = {}


def _parts_by_class(expr: tirx.Expr) -> Callable[[tirx.Expr], list[tirx.Expr]]:
    """Returns the function that finds the operands of expressions of this class."""
    match expr:
        case Call():
            return lambda expr: [arg for arg in expr.args[:] if isinstance(arg, tirx.Expr)]
        case TensorLoad():
            return lambda expr: expr.indices[:]
        case tirx.Select():
            return lambda expr: [expr.condition, expr.true_value, expr.false_value]
        case tirx.Cast() | tirx.Broadcast():
            return lambda expr: [expr.value]
        case tirx.Ramp():
            return lambda expr: [expr.base]
        case tirx.Let():
            return lambda expr: [expr.value, expr.body]
        case tirx.Not() | tirx.BitwiseNot():
            return lambda expr: [expr.a]
    sides = [side for side in "ab" if hasattr(expr, side)]
    return lambda expr: [getattr(expr, side) for side in sides]


def rebuilt(expr: tirx.Expr, change: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """Returns the expression with `change` applied to each operand."""
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
        case tirx.Broadcast():
            return tirx.Broadcast(change(expr.value), expr.lanes)
        case tirx.Ramp():
            return tirx.Ramp(change(expr.base), expr.stride, expr.lanes)
        case tirx.Let():
            return tirx.Let(expr.var, change(expr.value), change(expr.body))
        case tirx.Not() | tirx.BitwiseNot():
            return type(expr)(change(expr.a))
    if hasattr(expr, "a") and hasattr(expr, "b"):
        return type(expr)(change(expr.a), change(expr.b))
    return expr


def substituted(
    expr: tirx.Expr,
    values: Mapping[tirx.Var, tirx.Expr],
    load: Callable[[tirx.Var, Sequence[tirx.Expr]], tirx.Expr] = tirx.BufferLoad,
) -> tirx.Expr:
    """Returns the expression with variables replaced by `values`, and what it loads by `load(tensor, new indices)`."""

    def change(part: tirx.Expr) -> tirx.Expr:
        if isinstance(part, TensorLoad):
            return load(part.source, [change(index) for index in part.indices])
        if isinstance(part, tirx.Var) and part in values:
            return values[part]
        return rebuilt(part, change)

    return change(expr)


def replaced(expr: tirx.Expr, known: Sequence[tuple[tirx.Expr, tirx.Expr]]) -> tirx.Expr:
    """Replaces parts of `expr`: each part that equals the first of a pair becomes the second."""
    for part, replacement in known:
        if tvm_ffi.structural_equal(expr, part):
            return replacement
    return rebuilt(expr, lambda part: replaced(part, known))


def inside(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    """Yields the expression and all its subexpressions."""
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(parts_of(part))


def loads_of(expr: tirx.Expr) -> list[TensorLoad]:
    """Returns all loads of tensors in an expression."""
    return [part for part in inside(expr) if isinstance(part, TensorLoad)]


def variables_of(exprs: Iterable[tirx.Expr]) -> KeysView[tirx.Var]:
    """Returns the variables in some expressions, in the order in which they are first used."""
    return dict.fromkeys(chain.from_iterable(map(_variables_of, exprs))).keys()


def _variables_of(expr: tirx.Expr) -> Iterable[tirx.Var]:
    if type(expr) is tirx.Var:  # as many indices are
        return (expr,)
    variables: Iterable[tirx.Var] = tirx.analysis.undefined_vars(tirx.Evaluate(expr), [])
    return variables


def conditions_of(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    """Returns the conditions of the selects in an expression."""
    for part in inside(expr):
        match part:
            case tirx.Select():
                yield part.condition
            case Call(op=tvm.ir.Op()) if part.op.name in IF_THEN_ELSE:
                yield part.args[0]


def work_of(expr: tirx.Expr) -> int:
    """Instructions that computing `expr` takes, very roughly; those of indices are not included."""
    match expr:
        case tirx.IntImm() | tirx.FloatImm() | tirx.Var():
            return 0
        case TensorLoad():
            return 1
        case Call() if not isinstance(expr.op, tvm.ir.Op) or expr.op.name not in _ONE_INSTRUCTION:
            own = _WORK_OF_A_CALL
        case _:
            own = 1
    return own + sum(map(work_of, parts_of(expr)))


def flat_offset(tensor: tirx.Var, indices: Sequence[tirx.Expr]) -> tirx.Expr:
    """Returns the flat index of an element of a row-major tensor."""
    dtypes = {str(index.ty.dtype) for index in indices} or {"int32"}
    dtype = dtypes.pop() if len(dtypes) == 1 else "int64"
    total: tirx.Expr = tirx.IntImm(dtype, 0)
    for index, stride in zip(indices, strides_of(sizes_of(tensor)), strict=True):
        step = number(stride) if dtype == "int32" else expression(stride)
        total = total + (index.astype(dtype) if dtypes else index) * step
    return total


def linear_strides(position: tirx.Expr, variables: Sequence[tirx.Var]) -> list[Size] | None:
    """Returns the stride of an index along each variable; None if it is not constant."""
    linear = detect_linear_equation(position, list(variables))
    if not linear or not all(map(is_size, linear[:-1])):
        return None
    return [size_of(step) for step in linear[:-1]]


def in_floats(expr: tirx.Expr) -> tirx.Expr:
    """Returns an integer expression computed in float64: inexact, but large where the integers would overflow."""

    def change(part: tirx.Expr) -> tirx.Expr:
        match part:
            case tirx.FloorDiv():
                return tirx.floor(change(part.a) / change(part.b))
            case tirx.FloorMod():
                whole, divisor = change(part.a), change(part.b)
                return whole - tirx.floor(whole / divisor) * divisor
            case tirx.Add() | tirx.Sub() | tirx.Mul() | tirx.Min() | tirx.Max():
                return type(part)(change(part.a), change(part.b))
        return part.astype("float64")

    return change(expr)
