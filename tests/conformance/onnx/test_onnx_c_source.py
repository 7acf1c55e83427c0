"""Tests of ONNX's own runner through C source: those of a few operators, and all that pass in `make test-all`."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from onnx.backend.test.case import node
from onnx_c_source import outcomes
from onnx_suite import quietly

FEW = ("gelu", "scatternd", "qlinearmatmul")
MIN = 1_850
PROCESSES = 2
"""Among which all operators are divided: one took so long that other tests of a part had ended before it did."""
NOISE = {"test_dft_inverse", "test_dft_inverse_opset19"}
"""Tests that expect rounding errors of the size of their tolerance."""


def test_results_of_a_few_operators_are_as_expected(tmp_path: Path) -> None:
    with quietly():
        for module in FEW:
            importlib.import_module(f"{node.__name__}.{module}")
    found = [case for case in node._NodeTestCases if case.name.startswith(tuple(f"test_{name}" for name in FEW))]
    made = outcomes([case for case in found if not case.name.endswith("_expanded")], tmp_path)
    assert len(made) >= 8
    assert {name: outcome for name, outcome in made.items() if not outcome.passed} == {}


@pytest.mark.slow(600)
def test_results_of_all_operators_are_as_expected() -> None:
    script = Path(__file__).with_name("onnx_c_source.py")

    def printed_of_part(number: int) -> str:
        command = [sys.executable, str(script), "--part", f"{number}/{PROCESSES}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with ThreadPoolExecutor(PROCESSES) as pool:
        printed = "".join(pool.map(printed_of_part, range(1, PROCESSES + 1)))
    lines = re.findall(r"^(pass|refused|wrong|broken) (\S+) ?(.*)$", printed, re.MULTILINE)
    floor = Path(__file__).with_name("floor.txt").read_text()
    known = NOISE | set(re.findall(r"^wrong (\S+)$", floor, re.MULTILINE))  # of libraries too
    assert [line for line in lines if line[0] in ("wrong", "broken") and line[1] not in known] == []
    assert sum(status == "pass" for status, *_ in lines) >= MIN
