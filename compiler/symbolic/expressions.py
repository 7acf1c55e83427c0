"""Analyzes and rewrites integer expressions of TVM: their variables, and equivalent forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import tvm
import tvm_ffi
from tvm import tirx

__all__ = [
    "by_positive",
    "factors_of",
    "has_remainder",
    "has_sum_as_factor",
    "in_int64",
    "in_python",
    "multiplied_out",
    "of_positive",
    "structural_key",
    "text",
    "use_count",
    "variables",
    "without_remainders",
]

structural_key = cast(Callable[[Any], Any], tvm_ffi.StructuralKey)
"""Returns a key for dictionaries that is equal for structurally equal expressions and types of TVM."""


def variables(expr: tvm.ir.Expr) -> list[tirx.Var]:
    """Return the dynamic dimensions in an expression of TIR or Relax, each once, in the order of their occurrence."""
    found: dict[tirx.Var, None] = {}

    def note(var: tirx.Var) -> None:
        if isinstance(var.ty, tvm.ir.PrimType):
            found[var] = None

    tvm_ffi.structural_walk(expr, (tirx.Var, note))
    return list(found)


def in_int64(expr: tirx.Expr) -> tirx.Expr:
    """Return the int64 expression that was converted to a 32-bit index, as in kernels for GPUs."""
    match expr:
        case tirx.Cast(value=tirx.Expr()) if str(expr.value.ty.dtype) == "int64":
            return expr.value
        case tirx.Add() | tirx.Sub() | tirx.Mul() | tirx.FloorDiv() | tirx.FloorMod() | tirx.Min() | tirx.Max():
            return type(expr)(in_int64(expr.a), in_int64(expr.b))
    return expr.astype("int64")


def factors_of(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    """Yield the factors of a product in order; an expression that is not a product is its only factor."""
    if isinstance(expr, tirx.Mul):
        yield from factors_of(expr.a)
        yield from factors_of(expr.b)
    else:
        yield expr


def has_sum_as_factor(expr: tirx.Expr) -> bool:
    """Returns whether an expression multiplies a sum."""
    found: list[bool] = []

    def note(product: tirx.Mul) -> None:
        found.append(any(isinstance(factor, tirx.Add | tirx.Sub) for factor in factors_of(product)))

    tvm_ffi.structural_walk(expr, (tirx.Mul, note))
    return any(found)


def multiplied_out(expr: tirx.Expr) -> tirx.Expr:
    """Return a sum with products of sums expanded."""
    match expr:
        case tirx.Add() | tirx.Sub():
            return type(expr)(multiplied_out(expr.a), multiplied_out(expr.b))
        case tirx.Mul():
            left, right = multiplied_out(expr.a), multiplied_out(expr.b)
            for one, other in ((left, right), (right, left)):
                if isinstance(one, tirx.Add | tirx.Sub):
                    return type(one)(multiplied_out(one.a * other), multiplied_out(one.b * other))
            return left * right
    return expr


def use_count(expr: tirx.Expr) -> int:
    """Return the number of uses of variables in an expression."""
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(expr, (tirx.Var, found.append))
    return len(found)


def of_positive(quotient: tirx.FloorDiv) -> tirx.Expr:
    """Rewrite `-x // c` and `x // -c` to `-((x + c - 1) // c)`: TVM converts the first to the second, for which it
    generates wrong code.
    """
    match quotient.a, quotient.b:
        case above, tirx.IntImm() as below if int(below) < 0:
            divisor = -int(below)
        case tirx.Sub(a=tirx.IntImm() as zero, b=above), tirx.IntImm() as below if int(zero) == 0:
            divisor = int(below)
        case _:
            return quotient
    rounded_up = tirx.floordiv(above + tirx.IntImm("int64", divisor - 1), tirx.IntImm("int64", divisor))
    return tirx.IntImm("int64", 0) - rounded_up


def by_positive(remainder: tirx.FloorMod) -> tirx.Expr:
    """Rewrite `x % -c` to `x - (x + c - 1) // c * c`, which TVM can simplify."""
    if not isinstance(remainder.b, tirx.IntImm) or int(remainder.b) > 0:
        return remainder
    return remainder.a + of_positive(tirx.FloorDiv(remainder.a, remainder.b)) * -remainder.b


def has_remainder(expr: tirx.Expr) -> bool:
    """Returns whether an expression has a remainder in it."""
    found: list[object] = []

    def note(node: object) -> None:
        found.append(node)

    tvm_ffi.structural_walk(expr, (tirx.FloorMod, note))
    return bool(found)


def without_remainders(expr: tirx.Expr) -> tirx.Expr:
    """Rewrite `x % c` to `x - x // c * c`, so that `x - x % c` is recognized as a multiple of c."""
    return tvm_ffi.structural_map(expr, (tirx.FloorMod, lambda m: m.a - tirx.floordiv(m.a, m.b) * m.b))


def text(expr: tirx.Expr) -> str:
    """Format an expression for users, in the syntax of Python."""
    choices: list[tirx.Select] = []

    def noted(choice: tirx.Select) -> tirx.Var:
        choices.append(choice)
        return tirx.Var(f"choice_{len(choices) - 1}_", str(choice.ty.dtype))

    made = in_python(str(tvm_ffi.structural_map(expr, (tirx.Select, noted))))
    for index, choice in reversed(list(enumerate(choices))):
        one, condition, other = map(text, (choice.true_value, choice.condition, choice.false_value))
        made = made.replace(f"choice_{index}_", f"({one} if {condition} else {other})")
    return made


def in_python(printed: str) -> str:
    """Return a text that TVM printed with integers, minima and maxima in the syntax of Python."""
    return re.sub(r"T\.(min|max)\(", r"\1(", re.sub(r"T\.int64\((\d+)\)", r"\1", printed).replace("T.int64(", "("))
