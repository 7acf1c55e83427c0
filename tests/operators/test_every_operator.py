"""Every operator, in every format that has it, is computed and compared with a reference; none is without a case.

ONNX: random nodes, one of each operator, with NumPy in float64 and bounds that follow from each; others in
`single_operators.py`. NNEF: the tables of `tests/frontends/nnef`, whose results NumPy computes in float64, and
`tract_operators.py` for the dialect of tract. PNNX: `tests/data/pnnx/cases`, whose results are PyTorch's.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import single_operators
import test_operations_compound as compound
import test_operations_elementwise as elementwise
import test_operations_roi as regions
import test_operations_shape as shapes
import test_operations_window as windows
import test_pnnx_operators
import tract_operators
from comparison import compare
from graph import Graph
from spaces import SPACES
from walk import Walk
from ways import WAYS

from nnefc.frontends.nnef import registries as _registries  # noqa: F401  (fills REGISTRIES)
from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.dynamic.registry import REGISTRIES
from nnefc.frontends.onnx.operator import OPERATORS as ONNX_OPERATORS
from nnefc.frontends.pnnx.operators.declaration import OPERATORS
from nnefc.frontends.pnnx.param import read_param

TESTS = Path(__file__).parents[1]
OPSETS = (21, 28)
SEEDS = 40
TOGETHER = 70
"""Graphs of one library."""
PARTS = 5
WANTED = {"ConcatFromSequence": "SequenceConstruct"}
"""Operators that a graph must have by entries that are called after another one."""
WITHOUT_RESULTS = {"constant", "external", "update", "variable"}
"""Statements of NNEF that compute nothing: documents of the other cases are made with them."""


@cache
def random_graphs() -> dict[int, list[Graph]]:
    """A graph with each operator that random graphs have, by the operator set."""
    found: dict[int, list[Graph]] = {opset: [] for opset in OPSETS}
    for number, kind in enumerate(sorted(SPACES)):
        wanted = WANTED.get(kind, kind)
        graph = next((graph for graph in graphs_of(kind, number) if wanted in graph.operators()), None)
        assert graph is not None, f"no graph with {wanted} in {SEEDS} seeds"
        found[graph.opset].append(graph)
    return found


def graphs_of(kind: str, number: int) -> Iterator[Graph]:
    """Graphs of one step by an entry of the spaces, in the first operator set that has it."""
    for seed, opset in itertools.product(range(SEEDS), OPSETS):
        walk = Walk(seed, f"k{number}_", opset=opset)
        walk.take({kind: SPACES[kind]}, 1)
        if walk.steps:
            yield walk.graph()


@cache
def libraries() -> list[list[Graph]]:
    """The graphs that are compiled together."""
    of_sets = random_graphs().values()
    return [graphs[start : start + TOGETHER] for graphs in of_sets for start in range(0, len(graphs), TOGETHER)]


def onnx_names() -> set[str]:
    """All that are registered, with their domains where these are not ONNX's own."""
    return {name.replace("::", ".") for name in ONNX_OPERATORS}


def is_named(name: str, names: set[str]) -> bool:
    """Whether a name with a domain is among names that may have none."""
    return name in names or name.rpartition(".")[2] in names


@pytest.mark.parametrize("part", range(PARTS))
def test_operators_of_onnx_agree_with_numpy_in_float64(part: int) -> None:
    assert len(libraries()) == PARTS
    graphs = libraries()[part]
    outcome = compare(graphs, WAYS["default"])
    assert not outcome.findings and not outcome.refused and not outcome.doubtful
    assert outcome.agreed == len(graphs), "of some, nothing is asked"


@pytest.mark.parametrize("case", single_operators.CASES, ids=str)
def test_operators_of_onnx_that_random_graphs_have_not(case: single_operators.Case, tmp_path: Path) -> None:
    single_operators.check(case, tmp_path)


def test_operators_of_tract_agree_with_numpy_in_float64(tmp_path: Path) -> None:
    tract_operators.check(tract_operators.CASES, tmp_path)


def test_no_operator_of_onnx_is_without_a_case() -> None:
    random = {name for graphs in random_graphs().values() for graph in graphs for name in graph.operators()}
    own = {case.operator for case in single_operators.CASES}
    missing = {name for name in onnx_names() - own - single_operators.ELSEWHERE.keys() if not is_named(name, random)}
    assert missing == set(), "add a space to tests/fuzz/graphs/spaces, or a case to tests/operators/single_operators.py"
    for name, (file, reason) in single_operators.ELSEWHERE.items():
        assert name in onnx_names() and reason
        assert name.rpartition(".")[2] in (TESTS.parent / file).read_text(), f"{file} does not compute {name}"


def test_no_operation_of_nnef_is_without_a_case() -> None:
    tables = [elementwise.FINAL, elementwise.PROVISIONAL, compound.FINAL, compound.PROVISIONAL, shapes.FINAL]
    tables += [shapes.PROVISIONAL, regions.cases(), windows.conv_cases(0, "final"), windows.deconv_cases(0, "final")]
    tables += [windows.pool_cases(0, True), windows.pool_cases(0, False), windows.transposed_cases(0, True)]
    tables += [windows.conv_cases(7, "provisional"), windows.deconv_cases(8, "provisional")]
    called = {name for table in tables for case in table for name in called_in(case.statements)}
    called |= called_in(inspect.getsource(compound.test_layers_declare_their_own_variables))
    assert {operation.name for operation in STANDARD} - called - WITHOUT_RESULTS == set(), (
        "add a case to the tables of tests/frontends/nnef/operations/test_operations_*.py"
    )


def called_in(statements: str) -> set[str]:
    """What NNEF's statements call."""
    return set(re.findall(r"\b([a-z_0-9]+)(?:<\w+>)?\s*\(", statements))


def test_no_operator_of_tract_is_without_a_case() -> None:
    called = {name for case in tract_operators.CASES for name in tract_operators.names_called(case.call)}
    others = "".join(path.read_text() for path in (TESTS / "frontends" / "nnef").rglob("*.py"))
    called |= set(re.findall(r"\b([a-z_0-9]+)[(\"]", others)) | tract_operators.ELSEWHERE.keys()
    registered = {name for registry in REGISTRIES.values() for name, _ in registry}
    assert registered - called == set(), "add a case to tests/operators/tract_operators.py"
    for name, (file, text) in tract_operators.ELSEWHERE.items():
        assert name in registered and text in (TESTS.parent / file).read_text(), f"{file} does not compute {name}"


def test_no_operator_of_pnnx_is_without_a_case() -> None:
    files = (test_pnnx_operators.CASES / f"{family}.pnnx.param" for family in test_pnnx_operators.FAMILIES)
    called = {operator.type for file in files for operator in read_param(file).operators}
    assert set(OPERATORS) - called == set(), "add a case to tests/data/pnnx/cases.py"
