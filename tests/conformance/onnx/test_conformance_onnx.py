"""A sample of ONNX's own node tests: 100 by the hash of their names, all of Scatter and ConvInteger, each operator.

`make test-all` runs all of them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx_floor import FLOOR, Floor
from onnx_outcome import PASSED, Outcome

FOLDER = Path(__file__).parent
TABLE = FOLDER.parents[2] / "docs" / "onnx-conformance.md"
LINE = re.compile(r"^(pass|fixed|known|refused|wrong|broken) +(test_\w+) ?(.*)$", re.MULTILINE)


@pytest.fixture(scope="module", params=[100, pytest.param(sys.maxsize, id="all", marks=pytest.mark.slow)])
def outcomes(request: pytest.FixtureRequest) -> dict[str, Outcome]:
    """What came of each, from processes of their own."""
    command = [sys.executable, str(FOLDER / "run.py"), "--sample", str(request.param)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: Outcome(status, reason) for status, name, reason in LINE.findall(done.stdout)}


def test_the_sample_is_as_large_as_it_says(outcomes: dict[str, Outcome]) -> None:
    assert len(outcomes) > 200
    assert sum(name.startswith("test_scatter") for name in outcomes) >= 15
    assert sum(name.startswith("test_convinteger") for name in outcomes) >= 2


def test_no_test_comes_to_less_than_before(outcomes: dict[str, Outcome]) -> None:
    assert Floor().fallen(outcomes) == {}


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
    listed = {f"test_{name}" for name in re.findall(r"^\| `(\w+)` \|", TABLE.read_text(), re.MULTILINE)}
    statuses = [line.split() for line in FLOOR.read_text().splitlines()[1:]]
    assert listed == {name for status, name in statuses if status not in PASSED}


def test_what_does_not_pass_is_refused_with_a_reason(outcomes: dict[str, Outcome]) -> None:
    explained = {name for name, found in outcomes.items() if found.status == "pass" or found.reason}
    assert [name for name, found in outcomes.items() if found.status == "broken" or name not in explained] == []


def test_models_that_the_package_onnx_carries_agree() -> None:
    """Models made by hand and exported by PyTorch, with their data; all but those of strings."""
    command = [sys.executable, str(FOLDER / "run.py"), "--suite", "stored"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    failed = re.findall(r"^(?:refused|wrong|broken) +(\S+) (.*)$", done.stdout, re.MULTILINE)
    assert [name for name, reason in failed if "of type string" not in reason] == []
    assert len(re.findall(r"^(?:pass|fixed|known) ", done.stdout, re.MULTILINE)) >= 130
