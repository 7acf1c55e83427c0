"""Generates the table of registry operators in docs/nnef-tract.md from their declarations.

python -m nnefc.frontends.nnef.dynamic.documentation PAGE

writes it again at the end of the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nnefc.frontends.nnef import registries as _registries  # noqa: F401  (fills REGISTRIES)
from nnefc.frontends.nnef.dynamic.registry import REGISTRIES, ExtensionOperator
from nnefc.frontends.nnef.language.types import Dialect

__all__ = ["operator_table", "rewritten"]

_HEAD = "| registry | operator | limits |"


def operator_table() -> str:
    """The operators of all registries that documents can name."""
    lines = [_HEAD, "|---|---|---|"]
    for registry in REGISTRIES.values():
        lines += [f"| {registry.name} | `{_signature(name, each)}` | {each.limits} |" for name, each in registry]
    return "\n".join(lines) + "\n"


def _signature(name: str, operator: ExtensionOperator) -> str:
    return name + operator.signature.spell(Dialect.FINAL).removeprefix(operator.signature.name).partition(" -> ")[0]


def rewritten(page: str) -> str:
    """The page with its table written again."""
    return page.partition(_HEAD)[0].rstrip() + "\n\n" + operator_table()


if __name__ == "__main__":
    _page = Path(sys.argv[1])
    _page.write_text(rewritten(_page.read_text(encoding="utf-8")), encoding="utf-8")
