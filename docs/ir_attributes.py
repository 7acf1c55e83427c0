"""Writes docs/ir-attributes.md: the attributes of programs, from their declarations and the modules that use them.

python docs/ir_attributes.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nnefc.ir import attributes
from nnefc.ir.attributes import ATTRIBUTES, AttributeKey

__all__ = ["PAGE", "page", "uses"]

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("ir-attributes.md")

_MODULE = attributes.__name__
_NAMES = {value: name for name, value in vars(attributes).items() if isinstance(value, str) and value in ATTRIBUTES}
_SETTERS = ("with_attr", "annotate", "AttrStmt", "call_dps_packed", "call_pure_packed")
"""Functions that give a program the attribute whose key is among their arguments."""

_HEAD = """# Attributes of programs

The keys of all attributes and annotations that the compiler writes into Relax and TIR, as
[`compiler/ir/attributes.py`](../compiler/ir/attributes.py) declares them. [`passes/spec/`](../passes/spec) checks them
after each pass where `NNEFC_VERIFY=1` or `--checked` asks for it. `python docs/ir_attributes.py` writes this page.

A program has one of five forms, in this order: *network* (operators of Relax, and kernels without a schedule),
*kernels* (the same without operators), *scheduled* (a kernel whose loops run as a rule says), *flat* (loops over
one-dimensional buffers) and *lowered* (a function of pointers and dimensions).

| attribute | of a | value | forms | meaning | set in | read in |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    return _HEAD + "".join(map(_row, ATTRIBUTES.values()))


def _row(attribute: AttributeKey) -> str:
    first, last = attribute.forms[0].value, attribute.forms[-1].value
    forms = first if first == last else f"{first} to {last}"
    setters, readers = uses()[attribute.key]
    cells = [f"`{attribute.key}`", attribute.site.value, attribute.value.value, forms, attribute.meaning]
    return "| " + " | ".join([*cells, _linked(setters), _linked(readers)]) + " |\n"


def _linked(files: list[str]) -> str:
    return ", ".join(f"[{Path(file).stem}](../{file})" for file in files)


@cache
def uses() -> dict[str, tuple[list[str], list[str]]]:
    """Of each key the files that give it to programs, and those that ask programs for it."""
    found: dict[str, tuple[list[str], list[str]]] = {key: ([], []) for key in ATTRIBUTES}
    for folder in ("compiler", "passes", "targets"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if _MODULE in text:
                for key, sets in dict.fromkeys(_uses_of(ast.parse(text))):
                    found[key][0 if sets else 1].append(path.relative_to(ROOT).as_posix())
    return found


def _uses_of(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """The keys that a module names, each with whether it sets the attribute there."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == _MODULE]
    keys = {alias.name for node in imports for alias in node.names} & set(_NAMES.values())
    values = {name: value for value, name in _NAMES.items()}
    setting = {name for node in ast.walk(tree) for name in _set_by(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in keys:
            yield values[node.id], node in setting


def _set_by(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes for keys that a node gives a value."""
    match node:
        case ast.Dict():
            yield from (key for key in node.keys if key is not None)
        case ast.Call(func=ast.Attribute(attr=name)) if name in _SETTERS:
            yield from (inner for argument in node.args[:2] for inner in ast.walk(argument))
        case ast.Assign(targets=[ast.Subscript(slice=key)]):
            yield key


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
