"""The C of a library for open dimensions that follow from others."""

from __future__ import annotations

from nnefc.size_formulas import Formula, spelled
from nnefc.targets.description.c_strings import c_literal
from nnefc.targets.description.library import LibraryDescription

__all__ = ["formula_functions"]

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
    """A function for each formula, and the table of them; nothing for none."""
    if not description.formulas:
        return []
    multiples = {d.name: d.multiple for d in description.dimensions}
    numbers = {d.name: number for number, d in enumerate(description.dimensions)}

    def size(name: str) -> str:
        return f"values[{numbers[name]}]" + (f" * INT64_C({multiples[name]})" if multiples[name] > 1 else "")

    def written(formula: Formula) -> str:
        match formula:
            case tuple((sign, one, other)) if sign in _HELPERS:
                return f"{_HELPERS[sign][0]}({written(one)}, {written(other)})"
            case tuple((sign, one, other)):
                return f"({written(one)} {sign} {written(other)})"
            case str():
                return size(formula)
        return f"INT64_C({formula})"

    used = {sign for each in description.formulas for sign in _signs(each.formula)}
    helpers = [
        f"static int64_t {name}(int64_t a, int64_t b) {{ return {body}; }}"
        for sign, (name, body) in _HELPERS.items()
        if sign in used
    ]
    functions = [
        f"static int64_t formula_{number}(const int64_t *values) {{ return {written(each.formula)}; }}"
        for number, each in enumerate(description.formulas)
    ]
    rows = [
        f"    {{{numbers[each.name]}, {-1 if each.solved is None else numbers[each.solved]}, INT64_C({each.factor}), "
        f"formula_{number}, {c_literal(spelled(each.formula, str))}}},"
        for number, each in enumerate(description.formulas)
    ]
    return [*helpers, *functions, "static const nnefc_formula formulas[] = {", *rows, "};"]


def _signs(formula: Formula) -> set[str]:
    if not isinstance(formula, tuple):
        return set()
    sign, one, other = formula
    return {sign, *_signs(one), *_signs(other)}
