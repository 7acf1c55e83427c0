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


_OPERATORS = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Mul: "*",
    tirx.Div: "/",
    tirx.Mod: "%",
    tirx.EQ: "==",
    tirx.NE: "!=",
    tirx.LT: "<",
    tirx.LE: "<=",
    tirx.GT: ">",
    tirx.GE: ">=",
    tirx.And: "&&",
    tirx.Or: "||",
}
"""C's operators, which compute the same; its integer division truncates, as TVM's `Div` and `Mod` do."""

_CALLED = {
    tirx.FloorDiv: "nnefc_quotient",
    tirx.FloorMod: "nnefc_remainder",
    tirx.Min: "nnefc_minimum",
    tirx.Max: "nnefc_greatest",
}


def _text(expr: tirx.Expr, names: Mapping[tirx.Var, str]) -> str:
    def text(part: tirx.Expr) -> str:
        return _text(part, names)

    if (operator := _OPERATORS.get(type(expr))) is not None:
        return f"({text(expr.a)} {operator} {text(expr.b)})"
    if (function := _CALLED.get(type(expr))) is not None:
        return f"{function}({text(expr.a)}, {text(expr.b)})"
    match expr:
        case tirx.IntImm():  # also of a condition: 0 or 1
            return f"INT64_C({int(expr)})"
        case tirx.Var():
            return names[expr]
        case tirx.Cast() if (real := C_REALS.get(str(expr.ty.dtype))) is not None:
            return f"({real}){text(expr.value)}"
        case tirx.Cast():  # of an index or a condition
            return text(expr.value)
        case tirx.Select():
            return f"({text(expr.condition)} ? {text(expr.true_value)} : {text(expr.false_value)})"
        case tirx.Not():
            return f"(!{text(expr.a)})"
    raise AssertionError(f"no size: {expr}")
