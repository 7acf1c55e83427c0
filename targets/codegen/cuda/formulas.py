"""Writes as C the integers that the host computes from dynamic dimensions before a launch.

    (n + 255) // 256 * 4      →      nnefc_quotient(size0 + 255, 256) * 4

All are int64, but for what is converted to floats; launches.py declares the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import tirx

from nnefc.symbolic.dims import Dimension, expression

__all__ = ["C_REALS", "FUNCTIONS", "Formula", "Number", "number_of"]

FUNCTIONS = """\
static inline int64_t nnefc_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t nnefc_remainder(int64_t a, int64_t b) { return a - nnefc_quotient(a, b) * b; }
static inline int64_t nnefc_minimum(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t nnefc_greatest(int64_t a, int64_t b) { return a > b ? a : b; }"""
"""What formulas call, in C."""


_CONDITIONS = {
    tirx.LT: "<",
    tirx.LE: "<=",
    tirx.GT: ">",
    tirx.GE: ">=",
    tirx.EQ: "==",
    tirx.NE: "!=",
    tirx.And: "&&",
    tirx.Or: "||",
}
"""What C writes between two integers, or two conditions."""

C_REALS = {"float32": "float", "float64": "double"}
"""What C calls types that sizes may be converted to."""


@dataclass(frozen=True)
class Formula:
    """A number that depends on sizes: an expression in C."""

    text: str

    def __str__(self) -> str:
        return self.text


Number = int | Formula
"""What is known when a network is compiled, or when it runs."""


def number_of(size: Dimension, names: Mapping[tirx.Var, str]) -> Number:
    """Returns a size; `names` are what C calls the dynamic dimensions."""
    return size if isinstance(size, int) else Formula(_text(expression(size), names))


def _text(expr: tirx.Expr, names: Mapping[tirx.Var, str]) -> str:
    def of(operator: str) -> str:
        return f"({_text(expr.a, names)} {operator} {_text(expr.b, names)})"

    def call(function: str) -> str:
        return f"{function}({_text(expr.a, names)}, {_text(expr.b, names)})"

    match expr:
        case tirx.IntImm():
            return f"INT64_C({int(expr)})"
        case tirx.Var():
            return names[expr]
        case tirx.Cast() if (real := C_REALS.get(str(expr.ty.dtype))) is not None:
            return f"({real}){_text(expr.value, names)}"
        case tirx.Cast():  # of an index
            return _text(expr.value, names)
        case tirx.Add():
            return of("+")
        case tirx.Sub():
            return of("-")
        case tirx.Mul():
            return of("*")
        case tirx.FloorDiv():
            return call("nnefc_quotient")
        case tirx.FloorMod():
            return call("nnefc_remainder")
        case tirx.Min():
            return call("nnefc_minimum")
        case tirx.Max():
            return call("nnefc_greatest")
        case tirx.Select():
            chosen = (_text(part, names) for part in (expr.condition, expr.true_value, expr.false_value))
            return "({} ? {} : {})".format(*chosen)
        case tirx.Not():
            return f"!{_text(expr.a, names)}"
    if (operator := _CONDITIONS.get(type(expr))) is not None:
        return of(operator)
    raise AssertionError(f"no size: {expr}")
