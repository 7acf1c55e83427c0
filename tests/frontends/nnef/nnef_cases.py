"""Runs many small NNEF graphs at once: one document, one compilation, one run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

import numpy as np
import pytest
import tvm
from tvm import relax
from virtual_machine import run_in_virtual_machine

from nnefc.frontends.nnef.declarations import STANDARD, Operation
from nnefc.frontends.nnef.evaluation import evaluate
from nnefc.frontends.nnef.frontend import build_network, load
from nnefc.frontends.nnef.language.parser import parse
from nnefc.ir.network import Network


@dataclass(frozen=True)
class Case:
    """Statements over `$name`s, the values of those that are inputs and the expected ones of those that are outputs."""

    statements: str
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    tolerance: float = 1e-5
    known: frozenset[str] = field(default_factory=frozenset)  # inputs that become constants of the document


def one_of_each(cases: Sequence[Case]) -> list[Case]:
    """Returns the first of the cases that differ in numbers, shapes and values only."""
    firsts: dict[object, Case] = {}
    for case in cases:
        firsts.setdefault((*re.findall(r"\$?[A-Za-z_]+|[-+*/<>=!&|^?]+", case.statements), case.known), case)
    return list(firsts.values())


with_share = pytest.mark.parametrize(
    "share", [one_of_each, pytest.param(list, marks=pytest.mark.slow)], ids=["one of each", "all"]
)
"""Runs a test with one case of each operation with its options, and as a slow test with all cases."""


UNUSED = np.zeros(1, np.float32)

_CONTENTS = {"f": "scalar", "i": "integer", "b": "logical"}


def _literal(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return repr(float(value)) if isinstance(value, float | np.floating) else str(value)


def _declaration(name: str, value: np.ndarray, known: bool, dialect: str) -> str:
    generic = f"<{_CONTENTS[value.dtype.kind]}>" if dialect == "final" else ""
    shape = list(value.shape)
    if known:
        return f"{name} = constant{generic}(shape = {shape}, value = [{', '.join(map(_literal, value.ravel()))}]);"
    return f"{name} = external{generic}(shape = {shape});"


def document(cases: Sequence[Case], dialect: str = "final") -> tuple[str, list[str]]:
    """All cases as one graph, and the names of its outputs."""
    # A graph has at least one input.
    lines, inputs, outputs = [_declaration("unused", UNUSED, False, dialect)], ["unused"], []
    for number, case in enumerate(cases):
        text = case.statements.strip()
        names = {name: f"{name}_{number}" for name in Template(text).get_identifiers()}
        for name, value in case.inputs.items():
            lines.append(_declaration(names[name], value, name in case.known, dialect))
            if name not in case.known:
                inputs.append(names[name])
        lines.append(Template(text).substitute(names))
        outputs += [names[name] for name in case.expected]
    body = "\n".join(lines)
    version = "version 1.0;\nextension KHR_enable_operator_expressions;" if dialect == "final" else "version 1.0"
    graph = f"graph cases({', '.join(inputs)}) -> ({', '.join(outputs)})"
    return f"{version}\n{graph}\n{{\n{body}\n}}\n", outputs


def run_network(network: Network, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile with TVM's own lowering and run once."""
    return run_in_virtual_machine(relax.transform.LegalizeOps()(network.module), inputs)


def load_text(text: str, folder: Path, **options: object) -> Network:
    (folder / "graph.nnef").write_text(text)
    return load(folder, **options)  # type: ignore[arg-type]


def load_expanded(text: str, expand: Callable[[Operation], bool]) -> Network:
    """As `load`, with the compounds that `expand` names replaced by the standard's definitions."""
    flat = evaluate(parse(text, "test.nnef"), registry=STANDARD, expand=expand)
    return build_network(flat, {}, {tensor.name: tensor for tensor in flat.outputs}, {})


def inputs_of(cases: Sequence[Case]) -> list[np.ndarray]:
    return [UNUSED] + [value for case in cases for name, value in case.inputs.items() if name not in case.known]


def check(cases: Sequence[Case], folder: Path, dialect: str = "final") -> Network:
    """Run the cases through the front door and compare every output with what is expected; returns their network."""
    text, names = document(cases, dialect)
    network = load_text(text, folder, dialect=dialect)
    assert list(network.outputs) == names
    compare(cases, run_network(network, inputs_of(cases)))
    return network


def check_in_both_dialects(cases: Sequence[Case], folder: Path) -> None:
    """As `check`, once: what both dialects say becomes the same program."""
    first = check(cases, folder)
    (text, _), (older, _) = document(cases), document(cases, "provisional")
    assert text != older
    second = load_text(older, folder, dialect="provisional")
    tvm.ir.assert_structural_equal(first.module, second.module)
    assert (first.inputs, first.outputs) == (second.inputs, second.outputs)


def check_expanded(cases: Sequence[Case], dialect: str = "final") -> None:
    """As `check`, with every compound replaced by its definition."""
    text, _ = document(cases, dialect)
    network = load_expanded(text, lambda operation: operation.definition is not None)
    compare(cases, run_network(network, inputs_of(cases)))


def compare(cases: Sequence[Case], results: Sequence[np.ndarray]) -> None:
    """Every output: shape, kind of elements, values; all failures in one message."""
    expected = list(
        itertools.chain.from_iterable(((case, *element) for element in case.expected.items()) for case in cases)
    )
    assert len(expected) == len(results)
    problems = []
    for (case, name, want), got in zip(expected, results, strict=True):
        position = f"{name} of: {case.statements.strip()}"
        if got.shape != want.shape or got.dtype.kind != want.dtype.kind:
            problems.append(f"{position}: {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}")
        elif not np.allclose(got, want, rtol=case.tolerance, atol=case.tolerance, equal_nan=True):
            worst = np.nanmax(np.abs(got.astype(np.float64) - want.astype(np.float64)))
            problems.append(f"{position}: differs by {worst}")
    assert not problems, f"{len(problems)} of {len(results)} outputs are wrong:\n" + "\n".join(problems[:20])
