"""The tests that need a GPU, where there is one, in processes without the stand-in for its driver."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DEVICE = TESTS / "cuda" / "device"

ONNX = [f"frontends/onnx/operators/test_operators_{name}.py" for name in ("families", "scatter")]


@cache
def has_gpu() -> bool:
    """Whether this machine has a GPU of NVIDIA's and its driver."""
    program = "import sys, present_gpu; sys.exit(present_gpu.architecture() is None)"
    return subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True).returncode == 0


def environment() -> dict[str, str]:
    folders = [DEVICE, TESTS / "cuda" / "emulator", TESTS / "cuda" / "driver", TESTS / "targets", TESTS / "helpers"]
    path = os.pathsep.join(map(str, [*folders, *filter(None, [os.environ.get("PYTHONPATH")])]))
    return {**os.environ, "PYTHONPATH": path, "NNEFC_TESTS_ON_GPU": "1"}


def run(*arguments: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--tb=short"]
    done = subprocess.run(
        [*command, *arguments], env=environment(), cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


pytestmark = [pytest.mark.slow, pytest.mark.skipif("not has_gpu()", reason="there is no NVIDIA GPU")]


def test_networks_run_on_the_gpu() -> None:
    run(str(DEVICE))


@pytest.mark.parametrize("tests", [*ONNX, "frontends/pnnx/test_pnnx_operators.py", "passes/test_random_networks.py"])
def test_operators_agree_on_the_gpu(tests: str) -> None:
    run("-p", "all_on_device", str(TESTS / tests))
