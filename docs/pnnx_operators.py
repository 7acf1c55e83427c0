"""Writes docs/pnnx-operators.md, from the declarations.

python docs/pnnx_operators.py
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from nnefc.frontends.pnnx.functions import FUNCTIONS
from nnefc.frontends.pnnx.operators.declaration import OPERATORS

__all__ = ["PAGE", "operators_table"]

PAGE = Path(__file__).with_name("pnnx-operators.md")

_HEAD = """# Operators of PNNX

Made from the declarations in `compiler/frontends/pnnx/operators/` by
`python docs/pnnx_operators.py`; a test checks that it is up to date.

{operators} operators in {families} families, {functions} functions of expressions, and the structure of the format:
`pnnx.Input`, `pnnx.Output`, `pnnx.Attribute`, `pnnx.Expression`, `prim::Constant`, `prim::TupleConstruct`,
`prim::ListConstruct`, `prim::TupleUnpack`, `prim::ListUnpack`.

Arguments stand in the file as operands or as parameters; `?` marks those that may be `None`, `…` any number of
operands.
"""


def operators_table() -> str:
    """All operators by family, then the functions of expressions, as Markdown."""
    declared = sorted(OPERATORS.values(), key=lambda d: (d.family, d.name.lower(), d.name))
    families = [(family, list(group)) for family, group in groupby(declared, key=lambda d: d.family)]
    lines = [_HEAD.format(operators=len(declared), families=len(families), functions=len(FUNCTIONS))]
    for family, group in families:
        lines += [f"## {family.capitalize()} ({len(group)})", "", "| operator | arguments | limits |", "|---|---|---|"]
        for one in group:
            lines.append(f"| `{one.name}` | {_cell(one.signature)} | {_cell(one.limits)} |")
        lines.append("")
    lines += [
        f"## Functions of expressions ({len(FUNCTIONS)})",
        "",
        "| function | infix | arguments | type of the result |",
    ]
    lines.append("|---|---|---|---|")
    for name, function in FUNCTIONS.items():
        count = (
            str(function.fewest)
            if function.fewest == function.maximum
            else (f"{function.fewest} or {function.maximum}")
        )
        symbol = f"`{function.symbol}`" if function.symbol else ""
        lines.append(f"| `{name}` | {_cell(symbol)} | {count} | {function.rule.value} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(operators_table(), encoding="utf-8")
