"""Writes docs/operators.md: what the operators of the library are called in each format, as the computations say."""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__":
    sys.path += [str(Path(__file__).parents[1] / "frontends" / "pnnx")]

from computations import COMPUTATIONS
from formats import Computation, modules_of

from nnefc.operators.base import Operator
from nnefc.operators.casting import Cast
from nnefc.operators.elementwise import Elementwise
from nnefc.operators.functions import FUNCTIONS

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
HEAD = """# Operators that several formats have

Front ends translate their formats to the operators of `compiler/operators`. The same computation becomes the same
Relax whichever format says it: `tests/operators/test_same_relax.py` compares them, and this table is made of its cases
(`python tests/operators/operators_page.py` writes it). Formats may have more operators than those.

| operator | what it is | NNEF | ONNX | PNNX |
|---|---|---|---|---|
"""


def page(folder: Path) -> str:
    """The page; `folder` is for models."""
    rows: dict[tuple[str, str], list[set[str]]] = {}
    for computation in COMPUTATIONS:
        with _lowered() as found:
            modules_of(computation, folder)
        # Beside the operator itself, others may bring its operands into shape and type.
        own = next((one for one in found if not one.moves and not isinstance(one, Cast)), found[-1])
        for names, name in zip(
            rows.setdefault(_definition(own), [set(), set(), set()]), _names(computation), strict=True
        ):
            names |= {f"`{name}`"} if name else set()
    lines = []
    for name, what in sorted(rows):
        columns = [", ".join(sorted(names)) for names in rows[name, what]]
        lines.append(f"| `{name}` | {what.replace('|', chr(92) + '|')} | {' | '.join(columns)} |")
    return HEAD + "\n".join(lines) + "\n"


def _definition(operator: Operator) -> tuple[str, str]:
    """The name of an operator, with its family, and what it computes."""
    kind = type(operator)
    family, what = kind.__module__.rpartition(".")[2], " ".join(inspect.getdoc(kind).split("\n\n")[0].split())
    if isinstance(operator, Elementwise):
        return f"{family}.{operator.function}", FUNCTIONS[operator.function].definition
    return f"{family}.{kind.__name__}", what


def _names(computation: Computation) -> tuple[str, str, str]:
    nnef = computation.nnef.partition("(")[0] if computation.nnef else ""
    return (
        nnef,
        computation.onnx[0] if computation.onnx else "",
        computation.pnnx[0].split()[0] if computation.pnnx else "",
    )


@contextmanager
def _lowered() -> Iterator[list[type[Operator]]]:
    """The operators that are lowered inside, without those that others are made of."""
    found: list[Operator] = []
    kinds = {kind: kind.__dict__["lower"] for kind in Operator.KINDS if "lower" in kind.__dict__}
    inside = False

    def noting(lower: Callable[..., object]) -> object:
        def noted(self: Operator, *operands: object) -> object:
            nonlocal inside
            before, inside = inside, True
            if not before:
                found.append(self)
            try:
                return lower(self, *operands)
            finally:
                inside = before

        return noted

    for kind, lower in kinds.items():
        kind.lower = noting(lower)
    try:
        yield found
    finally:
        for kind, lower in kinds.items():
            kind.lower = lower


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_:
        PAGE.write_text(page(Path(folder_)))
