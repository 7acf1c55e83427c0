"""Writes docs/tflite-operators.md, from the declarations.

python docs/tflite_operators.py
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from nnefc.frontends.tflite.lowering import OPERATORS
from nnefc.frontends.tflite.schema import BUILTIN_OPERATORS

__all__ = ["PAGE", "operators_table"]

PAGE = Path(__file__).with_name("tflite-operators.md")

_HEAD = """# Operators of TFLite

Made from the declarations in `compiler/frontends/tflite/operators/` by
`python docs/tflite_operators.py`; a test checks that it is up to date. [TFLite](tflite.md) says how models are read.

{builtin} builtin operators and {custom} custom ones, in {families} families. The types are those of the first input;
where none are named, all that the tensors of a network may have.
"""


def operators_table() -> str:
    """All operators by family, then the builtin ones that are refused, as Markdown."""
    declared = sorted(OPERATORS.values(), key=lambda each: (each.family, each.name))
    families = [(family, list(group)) for family, group in groupby(declared, key=lambda each: each.family)]
    builtin = [name for name in OPERATORS if name in BUILTIN_OPERATORS]
    lines = [_HEAD.format(builtin=len(builtin), custom=len(OPERATORS) - len(builtin), families=len(families))]
    for family, group in families:
        title = family.replace("_", " ").capitalize()
        lines += [f"## {title} ({len(group)})", "", "| operator | types | not supported |", "|---|---|---|"]
        lines += [f"| `{each.name}` | {', '.join(each.types)} | {each.limits} |" for each in group]
        lines.append("")
    refused = [name for name in BUILTIN_OPERATORS if name not in OPERATORS and name not in _NO_OPERATORS]
    lines += [f"## Refused by name ({len(refused)})", "", ", ".join(f"`{name}`" for name in refused)]
    return "\n".join(lines) + "\n"


_NO_OPERATORS = ("CUSTOM", "DELEGATE", "LONG_NUMBER")
"""Numbers of the format that stand for no builtin operator."""


if __name__ == "__main__":
    PAGE.write_text(operators_table(), encoding="utf-8")
