"""The C of a library for open dimensions that follow from others."""

from __future__ import annotations

from nnefc.size_formulas import Formula, spelled
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
}


def formula_functions(description: LibraryDescription) -> list[str]:
    """What formulas call, a function for each formula of a dimension, and the table of these; nothing for none."""
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
    rows = [
        f"    {{{numbers[each.name]}, {-1 if each.solved is None else numbers[each.solved]}, INT64_C({each.factor}), "
        f"formula_{number}, {c_literal(spelled(each.formula, str))}}},"
        for number, each in enumerate(description.formulas)
    ]
    return [*helpers, *functions, "static const nnefc_formula formulas[] = {", *rows, "};"]


def formula_text(description: LibraryDescription, formula: Formula) -> str:
    """A formula of a library's dimensions as an expression of their `values`."""
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
