"""Writes docs/nnef-writing.md: what `nnefc convert` makes of the operators of the library.

The rows are the computations that tests compare, each written once in NNEF and once in tract's dialect.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path += [str(tests / "helpers"), str(tests / "frontends" / "pnnx")]

from computations import COMPUTATIONS
from formats import Computation, network_from_onnx

from nnefc.frontends.nnef.writing import written
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Network
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.recording import Recording, recording
from nnefc.support.diagnostics import CompileError

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "nnef-writing.md"
HEAD = """# What convert writes

What [`nnefc convert`](how-to/convert.md) makes of operators of the library, in NNEF 1.0 and, with
`--registry tract_core`, in tract's dialect. `python tests/operators/nnef_writing_page.py` writes this table: it
converts the computations that tests compare. Where a cell names several operations, the operator is made of these; *no*
says that the operator cannot be written. Operators without a row are made of others, or cannot be written.

| operator | example | NNEF 1.0 | tract's dialect |
|---|---|---|---|
"""
_SOURCES = ("external", "variable", "tract_core_external")


def page(folder: Path) -> str:
    """The page; `folder` is for models."""
    rows = []
    for computation in COMPUTATIONS:
        if computation.onnx is None or not computation.operands:
            continue
        with recording() as found:
            network = network_from_onnx(computation, folder)
        cells = [_written(network, found, registry) for registry in (None, "tract_core")]
        rows.append((_operator(network, found), _example(computation), *cells))
    lines = [f"| {' | '.join(row)} |" for row in sorted(set(rows))]
    return HEAD + "\n".join(lines) + "\n"


def _operator(network: Network, found: Recording) -> str:
    """The outermost operator that gave the network's first output."""
    main = network.module["main"]
    bindings = {binding.var: binding.value for binding in bindings_of(main)}
    result = bindings[main.body.body].fields[0]
    applications = [*found.applications.get(result, []), *found.applications.get(bindings[result], [])]
    operator = applications[0][0].operator
    return f"`{operator.function if isinstance(operator, Elementwise) else type(operator).__name__}`"


def _example(computation: Computation) -> str:
    assert computation.onnx is not None
    return f"{computation.name} (ONNX `{computation.onnx[0]}`)"


def _written(network: Network, found: Recording, registry: str | None) -> str:
    try:
        made = written(network, found, registry)
    except CompileError:
        return "no"
    names = [invocation.operation.name for invocation in made.graph.invocations]
    return _listed([name for name in names if name not in _SOURCES])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "the tensor itself"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_:
        PAGE.write_text(page(Path(folder_)))
