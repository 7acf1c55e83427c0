"""The tests of operators, written for CPUs, with everything compiled for CUDA and executed without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PLUGIN = (TESTS / "cuda" / "emulator", TESTS / "cuda" / "driver", TESTS / "targets", TESTS / "helpers")

PNNX = "frontends/pnnx/test_pnnx_operators.py"
PNNX_FAMILY = f"{PNNX}::test_every_operator_of_a_family_agrees_with_pytorch"
ONNX = "frontends/onnx/operators/test_operators_families.py"
SCATTER = "frontends/onnx/operators/test_operators_scatter.py"


def run_on_gpu(*tests: str) -> None:
    """Run tests with the plugin `all_on_cuda`, which compiles for GPUs what they compile for CPUs."""
    path = os.pathsep.join(map(str, [*PLUGIN, *filter(None, [os.environ.get("PYTHONPATH")])]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "all_on_cuda", "-p", "no:cacheprovider", "--tb=short"]
    done = subprocess.run(
        [*command, *(str(TESTS / test) for test in tests)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.slow
def test_some_operators_agree_on_gpus() -> None:
    run_on_gpu(*(f"{PNNX_FAMILY}[{name}]" for name in ("softmax",)))


@pytest.mark.slow
@pytest.mark.parametrize("tests", [PNNX, ONNX, SCATTER, "passes/test_random_networks.py"])
def test_all_operators_agree_on_gpus(tests: str) -> None:
    run_on_gpu(tests)
