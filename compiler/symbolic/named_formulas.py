"""Formulas of dimension names, which stay valid when a network's TVM variables are replaced.

    past + sequence                 ("+", "past", "sequence")
    (h + 1) // 2                    ("//", ("+", "h", 1), 2)

Formulas come from the names of dimensions in models and from unification. A library contains them, to check the sizes
of its inputs and to solve for unknown dimensions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

__all__ = ["NUMBERS", "Formula", "evaluated", "names_in", "read_formula", "spelled"]

Formula: TypeAlias = "int | str | tuple[str, Formula, Formula]"
"""A number, the name of a dimension, or an operation of `NUMBERS` on two formulas."""

NUMBERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "//": lambda one, other: one // other,
    "%": lambda one, other: one % other,
    "min": min,
    "max": max,
    "broadcast": lambda one, other: other if one == 1 else one if other in (1, one) else -1,
}
"""The operations of formulas on numbers. Broadcasting two sizes that do not fit gives -1."""
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "//", ast.Mod: "%"}
_FUNCTIONS = {"min": "min", "Min": "min", "max": "max", "Max": "max"}
_LONGEST = 1000  # characters
_LARGEST = 1 << 40  # number


def read_formula(text: str) -> Formula | None:
    """Parse a formula such as `past + seq`, `2*s0`, `(h + 1)//2` or `Min(s0, 512)`; None for other texts.

    A single name or number is not a formula.
    """
    if len(text) > _LONGEST:
        return None
    try:
        made = _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return made if isinstance(made, tuple) and names_in(made) else None


def _read(node: ast.expr) -> Formula:
    match node:
        case ast.Name(name):
            return name
        case ast.Constant(int() as number) if not isinstance(number, bool) and number <= _LARGEST:
            return number
        case ast.UnaryOp(ast.USub(), operand):
            return "-", 0, _read(operand)
        case ast.BinOp(left, sign, right) if type(sign) in _SIGNS:
            name, one, other = _SIGNS[type(sign)], _read(left), _read(right)
            if name not in ("//", "%") or isinstance(other, str) or (isinstance(other, int) and other > 0):
                return name, one, other
        case ast.Call(ast.Name(name), [left, right], []) if name in _FUNCTIONS:
            return _FUNCTIONS[name], _read(left), _read(right)
    raise ValueError("no formula of sizes")


def names_in(formula: Formula) -> tuple[str, ...]:
    """Return the names of dimensions in a formula, each once, in order."""
    match formula:
        case tuple((_, one, other)):
            return tuple(dict.fromkeys((*names_in(one), *names_in(other))))
        case str():
            return (formula,)
    return ()


def evaluated(
    formula: Formula, sizes: Callable[[str], int], operations: Mapping[str, Callable[[Any, Any], Any]] = NUMBERS
) -> int:
    """Return the value of a formula for sizes of its dimensions.

    Raises:
        ZeroDivisionError: it divides by 0.
    """
    match formula:
        case tuple((sign, one, other)):
            made: int = operations[sign](evaluated(one, sizes, operations), evaluated(other, sizes, operations))
            return made
        case str():
            return sizes(formula)
    return formula


def spelled(formula: Formula, write: Callable[[str], str]) -> str:
    """Format a formula in the syntax of Python, with dimensions formatted by `write`."""
    match formula:
        case tuple((("min" | "max" | "broadcast") as name, one, other)):
            return f"{name}({spelled(one, write)}, {spelled(other, write)})"
        case tuple((sign, one, other)):
            return f"{_operand(one, write)} {sign} {_operand(other, write)}"
        case str():
            return write(formula)
    return str(formula)


def _operand(formula: Formula, write: Callable[[str], str]) -> str:
    text = spelled(formula, write)
    return f"({text})" if isinstance(formula, tuple) and not formula[0].isalpha() else text
