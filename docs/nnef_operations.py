"""Writes docs/nnef-operations.md, and the table of operators in docs/nnef-tract.md, from the declarations.

python docs/nnef_operations.py
"""

from __future__ import annotations

from pathlib import Path

from nnefc.frontends.nnef import operations as _operations  # noqa: F401  (fills STANDARD)
from nnefc.frontends.nnef import registries as _registries  # noqa: F401  (fills REGISTRIES)
from nnefc.frontends.nnef.declarations import STANDARD, Dialect, Operation
from nnefc.frontends.nnef.dynamic.registry import REGISTRIES, ExtensionOperator
from nnefc.frontends.nnef.operations.lowering import by_definition

__all__ = ["PAGE", "TRACT_PAGE", "operations_page", "operations_table", "tract_page"]

PAGE, TRACT_PAGE = (Path(__file__).with_name(name) for name in ("nnef-operations.md", "nnef-tract.md"))

_PAGE = """# NNEF operations

Generated from the declarations in `compiler/frontends/nnef/operations/`; to bring it up to date, run
`python docs/nnef_operations.py`.

*R.x* is an operator of TVM's Relax, *TE* a computation written for the operation. *As defined* means that the operation
is replaced by the composition that the standard defines it by. Scalars are 32-bit floats, integers 32-bit (variables
stored in 64 bits keep them), logical values bytes; data of other widths is converted when it is read. Windows,
reductions and element-wise operations take tensors of any rank; shapes broadcast from the left, as the standard says.

{table}
"""


def operations_table() -> str:
    """A Markdown table: a row for each declaration, in the order of the names."""
    head = "| operation | dialects | signature | kind | becomes | limits and choices |\n|---|---|---|---|---|---|"
    rows = map(_row, sorted(STANDARD, key=lambda operation: operation.name))
    return "\n".join([head, *rows])


def operations_page() -> str:
    """The whole page of the documentation."""
    return _PAGE.format(table=operations_table())


def _row(operation: Operation) -> str:
    dialects = [dialect.value for dialect in Dialect if dialect in operation.dialects]
    spelling = Dialect.FINAL if Dialect.FINAL in operation.dialects else Dialect.PROVISIONAL
    signature = operation.signature.spell(spelling).removeprefix(operation.name).replace("|", "\\|")
    becomes = "as defined" if operation.lower is by_definition else operation.target
    cells = [f"`{operation.name}`", ", ".join(dialects), f"`{signature}`", operation.kind, becomes, operation.limits]
    return f"| {' | '.join(cells)} |"


_TRACT_HEAD = "| registry | operator | limits |"


def operator_table() -> str:
    """The operators of all registries that documents can name."""
    lines = [_TRACT_HEAD, "|---|---|---|"]
    for registry in REGISTRIES.values():
        lines += [f"| {registry.name} | `{_signature(name, each)}` | {each.limits} |" for name, each in registry]
    return "\n".join(lines) + "\n"


def _signature(name: str, operator: ExtensionOperator) -> str:
    return name + operator.signature.spell(Dialect.FINAL).removeprefix(operator.signature.name).partition(" -> ")[0]


def tract_page(page: str) -> str:
    """The page with its table written again."""
    return page.partition(_TRACT_HEAD)[0].rstrip() + "\n\n" + operator_table()


if __name__ == "__main__":
    PAGE.write_text(operations_page(), encoding="utf-8")
    TRACT_PAGE.write_text(tract_page(TRACT_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
