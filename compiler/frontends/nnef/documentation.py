"""Generates the table of operations in the documentation from their declarations.

`python -m nnefc.frontends.nnef FILE` writes it.
"""

from __future__ import annotations

from nnefc.frontends.nnef import operations as _operations  # noqa: F401  (fills STANDARD)
from nnefc.frontends.nnef.declarations import STANDARD, Dialect, Operation
from nnefc.frontends.nnef.operations.lowering import by_definition

__all__ = ["operations_page", "operations_table"]

_PAGE = """# NNEF operations

Generated from the declarations in `compiler/frontends/nnef/operations/`; to bring it up to date, run
`python -m nnefc.frontends.nnef docs/nnef-operations.md`.

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
