"""Converts expressions of a network's variables to formulas of dimension names, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import tirx

from nnefc.symbolic.dims import Dimension, Size, expression, greatest, minimum, substituted
from nnefc.symbolic.named_formulas import NUMBERS, Formula, evaluated

__all__ = ["factor_of", "formula_of", "size_of", "value_of"]

_EXPRESSIONS = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Mul: "*",
    tirx.FloorDiv: "//",
    tirx.FloorMod: "%",
    tirx.Min: "min",
    tirx.Max: "max",
}


def size_of(formula: Formula, sizes: Callable[[str], Dimension]) -> Dimension:
    """Evaluate a formula with known or dynamic sizes of its dimensions.

    Raises:
        ZeroDivisionError: it divides by 0.
    """
    return evaluated(formula, sizes, {**NUMBERS, "min": minimum, "max": greatest})


def value_of(name: str, multiple: int) -> Formula:
    """Return the formula of the variable of a dimension whose sizes are multiples: the size divided by `multiple`."""
    return name if multiple == 1 else ("//", name, multiple)


def formula_of(size: Dimension, names: Mapping[tirx.Var, Formula]) -> Formula | None:
    """Return a size as a formula of the formulas for its variables; None if it contains anything else."""

    def of(expr: tirx.Expr) -> Formula:
        if isinstance(expr, tirx.IntImm):
            return int(expr)
        if isinstance(expr, tirx.Var):
            return names[expr]
        return _EXPRESSIONS[type(expr)], of(expr.a), of(expr.b)

    try:
        return of(expression(size))
    except KeyError:
        return None


def factor_of(size: Dimension, variable: tirx.Var) -> int | None:
    """Return the factor of a variable in a size; None if the size is not linear in it."""
    if not isinstance(size, Size):
        return None
    one, other = (substituted(size, {variable: value}) for value in (0, 1))
    factor = other - one
    exact = isinstance(factor, int) and factor != 0 and size == one + Size(variable) * factor
    return factor if exact else None
