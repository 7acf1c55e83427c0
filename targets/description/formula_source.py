"""Writes the C functions of a library that compute derived dynamic dimensions."""

from __future__ import annotations

from nnefc.symbolic.named_formulas import Formula, spelled
from nnefc.targets.description.c_strings import c_literal
from nnefc.targets.description.library import LibraryDescription

__all__ = ["formula_functions", "formula_text"]

_HELPERS = {  # by the operation: how C computes it, of numbers that may be negative
    "//": (
        "nnefc_floor_quotient",
        "b == 0 ? -1 : a / b - (a % b != 0 && (a < 0) != (b < 0))",
    ),
    "%": ("nnefc_floor_remainder", "b == 0 ? -1 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0)"),
    "min": ("nnefc_smaller", "a < b ? a : b"),
    "max": ("nnefc_larger", "a > b ? a : b"),
    "broadcast": ("nnefc_broadcast", "a == 1 ? b : b == 1 || a == b ? a : -1"),
}


def formula_functions(description: LibraryDescription) -> list[str]:
    """Return a function for each formula of a dimension, and the table of these functions; empty without formulas."""
    limited = [formula for part in description.specializations for formula, _, _ in part.limits]
    used = {
        sign for formula in (*limited, *(each.formula for each in description.formulas)) for sign in _signs(formula)
    }
    helpers = [
        f"static int64_t {name}(int64_t a, int64_t b) {{ return {body}; }}"
        for sign, (name, body) in _HELPERS.items()
        if sign in used
    ]
    if not description.formulas:
        return helpers
    numbers = {d.name: number for number, d in enumerate(description.dimensions)}
    functions = [
        f"static int64_t formula_{number}(const int64_t *values) {{ return {text}; }}"
        for number, text in enumerate(formula_text(description, each.formula) for each in description.formulas)
    ]
    rows = []
    for number, each in enumerate(description.formulas):
        operands, more = _operands(description, each.formula, number)
        functions += more
        solved, text = -1 if each.solved is None else numbers[each.solved], c_literal(spelled(each.formula, str))
        own = f"{numbers[each.name]}, {solved}, INT64_C({each.factor})"
        rows.append(f"    {{{own}, formula_{number}, {text}, {operands}}},")
    return [*helpers, *functions, "static const nnefc_formula formulas[] = {", *rows, "};"]


def _operands(description: LibraryDescription, formula: Formula, number: int) -> tuple[str, list[str]]:
    """Return a description of two sizes that are broadcast and the functions that compute them, if the formula is a
    broadcast.
    """
    match formula:
        case ("broadcast", one, other):
            only = "NULL"
        case ("-", ("broadcast", one, other), wanted):
            only = c_literal(spelled(wanted, str))
        case _:
            return "NULL, NULL, NULL, NULL", []
    functions = [
        f"static int64_t formula_{number}_{name}(const int64_t *values) {{ return {formula_text(description, part)}; }}"
        for name, part in (("one", one), ("other", other))
    ]
    text = " and ".join(_named(description, part) for part in (one, other))
    return f"{c_literal(text)}, formula_{number}_one, formula_{number}_other, {only}", functions


def _named(description: LibraryDescription, formula: Formula) -> str:
    """Return a description of a size for messages: the axis of an input that has it, if there is one."""
    text = spelled(formula, str)
    for tensor in description.inputs:
        if text in tensor.shape:
            return f'dimension {tensor.shape.index(text)} of input "{tensor.name}" ({text})'
    return text


def formula_text(description: LibraryDescription, formula: Formula) -> str:
    """Return a formula as a C expression of the dimensions' `values`."""
    match formula:
        case tuple((sign, one, other)):
            left, right = formula_text(description, one), formula_text(description, other)
            return f"{_HELPERS[sign][0]}({left}, {right})" if sign in _HELPERS else f"({left} {sign} {right})"
        case str():
            number = [dimension.name for dimension in description.dimensions].index(formula)
            multiple = description.dimensions[number].multiple
            return f"values[{number}]" + (f" * INT64_C({multiple})" if multiple > 1 else "")
    return f"INT64_C({formula})"


def _signs(formula: Formula) -> set[str]:
    if not isinstance(formula, tuple):
        return set()
    sign, one, other = formula
    return {sign, *_signs(one), *_signs(other)}
