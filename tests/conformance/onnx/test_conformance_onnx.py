"""Some of the tests of ONNX's own runner: those of a few operators; `tests/operators` has a case of each.

`make test-all` runs all of them.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test import loader, runner
from onnx.backend.test.case import node
from onnx_engines import ENGINES
from onnx_floor import FLOOR, Floor
from onnx_outcome import PASSED, Outcome
from onnx_suite import Engine, Suite, Test, quietly

FOLDER = Path(__file__).parent
SUITE = (sys.executable, str(FOLDER / "run_onnx_tests.py"))
TABLE = FOLDER.parents[2] / "docs" / "onnx-conformance.md"
LINE = re.compile(r"^(pass|fixed|known|refused|wrong|broken) +(\S+) ?(.*)$", re.MULTILINE)


MIN = 1_850
"""Tests of single operators that the package onnx has at least."""

OPERATORS = ("convinteger", "scan", "string_split")
"""The modules of ONNX's cases whose tests `make test` runs; each makes its cases when it is imported."""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """What comes of the tests of OPERATORS."""
    with quietly():
        for module in OPERATORS:
            importlib.import_module(f"{node.__name__}.{module}")
    prefixes = tuple(f"test_{module}" for module in OPERATORS)
    made = [case for case in node._NodeTestCases if case.name.startswith(prefixes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "load_model_tests", lambda kind: made if kind == "node" else [])
        suite = Suite(ENGINES["nnefc"]())
        return {case.name: suite.run(Test("node", case.name)) for case in made}


def test_each_operator_has_tests(outcomes: dict[str, Outcome]) -> None:
    assert len(outcomes) >= 12
    assert sum(name.startswith("test_string_split") for name in outcomes) >= 6
    assert sum(name.startswith("test_convinteger") for name in outcomes) >= 2


def test_no_test_comes_to_less_than_before(outcomes: dict[str, Outcome]) -> None:
    assert Floor().fallen(outcomes) == {}


def test_what_does_not_pass_is_refused_with_a_reason(outcomes: dict[str, Outcome]) -> None:
    assert without_a_reason(outcomes) == []


def without_a_reason(outcomes: dict[str, Outcome]) -> list[str]:
    """Names of tests that broke, or that did not pass and say nothing."""
    explained = {name for name, found in outcomes.items() if found.status == "pass" or found.reason}
    return [name for name, found in outcomes.items() if found.status == "broken" or name not in explained]


@pytest.mark.slow(600)
def test_the_tests_of_all_operators_come_to_no_less_than_before() -> None:
    """One test in processes of their own, which a part of the nightly run has once, and not in each of its workers."""
    outcomes = of_the_suite("node")
    assert len(outcomes) >= MIN
    assert Floor().fallen(outcomes) == {}
    assert without_a_reason(outcomes) == []


def of_the_suite(*kinds: str) -> dict[str, Outcome]:
    """What comes of all tests of some kinds."""
    command = [*SUITE, *(word for kind in kinds for word in ("--kind", kind))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: Outcome(status, reason) for status, name, reason in LINE.findall(done.stdout)}


def test_the_floor_only_rises(tmp_path: Path) -> None:
    path = tmp_path / "floor.txt"
    path.write_text(f"onnx {onnx.__version__}\nfixed test_a\nrefused test_b\n")
    floor = Floor(path)
    better = {"test_a": Outcome("pass"), "test_b": Outcome("fixed"), "test_c": Outcome("pass")}
    assert floor.fallen(better) == {}
    assert floor.fallen({**better, "test_c": Outcome("wrong", "other values")}) == {
        "test_c": "wrong instead of pass: other values"
    }
    assert "test_a" in floor.fallen({"test_a": Outcome("known")})
    floor.raise_to(better, better)
    assert path.read_text() == f"onnx {onnx.__version__}\nfixed test_b\n"


def test_the_table_lists_what_the_floor_says() -> None:
    names = re.findall(r"^\| `(\S+)` \|", TABLE.read_text(), re.MULTILINE)
    listed = {name if "/" in name else f"test_{name}" for name in names}
    statuses = [line.split() for line in FLOOR.read_text().splitlines()[1:]]
    assert listed == {name for status, name in statuses if status not in PASSED}


@pytest.mark.parametrize(
    ("kinds", "minimum"),
    [
        pytest.param(("simple", "pytorch-operator"), 55, id="operators", marks=pytest.mark.slow),
        pytest.param(("pytorch-converted",), 75, id="converted", marks=pytest.mark.slow),
    ],
)
def test_models_that_the_package_onnx_carries_agree(kinds: tuple[str, ...], minimum: int) -> None:
    """Models made by hand and exported by PyTorch, with their data."""
    outcomes = of_the_suite(*kinds)
    assert Floor().fallen(outcomes) == {}
    assert len(outcomes) >= minimum


class _Wrong(BackendRep):  # type: ignore[misc]
    """An engine that takes a model by what its graph is called: it computes nothing, fails, or gives something else."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def run(self, inputs: object, **_: object) -> tuple[object, ...]:
        if self._error is not None:
            raise self._error
        return (np.zeros(1, np.float32),)


@pytest.mark.parametrize(
    ("error", "status"),
    [(None, "wrong"), (ValueError("/a/b/network.so: no such operator"), "refused"), (KeyError("oh"), "broken")],
)
def test_refusals_failures_and_other_results_are_reported_apart(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, status: str
) -> None:
    class Engines(Backend):  # type: ignore[misc]
        @classmethod
        def prepare(cls, _model: onnx.ModelProto, _device: str = "CPU", **_: object) -> BackendRep:
            return _Wrong(error)

    simple = loader.load_model_tests(kind="simple")
    monkeypatch.setattr(runner, "load_model_tests", lambda kind: simple if kind == "simple" else [])
    suite = Suite(Engine(Engines, refuses=lambda error: isinstance(error, ValueError)))
    found = suite.run(Test("simple", "test_single_relu_model"))
    assert found.status == status
    if error is not None:  # reported without folders, which are other ones on each machine
        assert str(error.args[0]).removeprefix("/a/b/") in found.reason and "/a/b/" not in found.reason
