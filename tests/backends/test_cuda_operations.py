"""Every operation that compiles for CPUs compiles for GPUs: what other tests compile, lowered for CUDA besides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nnefc.targets.codegen.cuda.compiler import COMPILER_VARIABLE

TESTS = Path(__file__).parents[1]

FAMILIES = "onnx/operators/test_operators_families.py"
# Kinds of computations that differ most from each other.
SAMPLE = (f"{FAMILIES}::test_a_family_of_operators_agrees_with_onnxruntime[reductions-sample]",)


def _swept(report: Path, *tests: str) -> dict[str, Any]:
    """What the plugin reports of these tests, which pass; their names are relative to those of front ends."""
    paths = [str(TESTS / "frontends" / test) for test in tests]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        "-p",
        "device_kernels",
        "-m",
        "not slow",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    environment[COMPILER_VARIABLE] = "nvrtc"
    done = subprocess.run(
        [*command, f"--device-kernels={report}", *paths], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    found: dict[str, Any] = json.loads(report.read_text())
    return found


@pytest.mark.slow
def test_reductions_of_all_kinds_compile(tmp_path: Path) -> None:
    found = _swept(tmp_path / "report.json", *SAMPLE)
    assert found["failures"] == []
    assert found["kernels"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("frontend", ["nnef", "onnx", "pnnx"])
def test_whatever_compiles_for_a_cpu_compiles_for_a_gpu(frontend: str, tmp_path: Path) -> None:
    found = _swept(tmp_path / "report.json", frontend)
    print(found["networks"], "networks,", found["kernels"], "kernels; on the host:", *found["on_host"])
    assert found["failures"] == []
    assert found["kernels"] > 100
