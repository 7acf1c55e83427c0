"""The C example, built with its own Makefile against a library and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runtime_samples import SAMPLE, ZIG_TARGET, link, object_of

from nnefc.targets.link.toolchain import TensorDescription

EXAMPLE = Path(__file__).parents[3] / "examples" / "c"
SOURCE = """
#include <stdint.h>
int32_t nnefc_network(float *x, float *y, int64_t *n, uint8_t *s, uint8_t *w, const uint8_t *c) {
    for (int i = 0; i < 12; i++) y[i] = x[i] * x[i];
    n[0] = 77;
    return x[0] < -100 ? -1 : 0;
}"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs: make")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "a folder"
    folder.mkdir()
    description = replace(
        SAMPLE,
        model="squares",
        inputs=(TensorDescription("x", "float32", (3, 4)),),
        outputs=(TensorDescription("y", "float32", (3, 4)), TensorDescription("n", "int64", ())),
        states=(),
        state_bytes=0,
        constant_bytes=0,
        state_initial_offset=0,
    )
    library = link([object_of(SOURCE, "squares")], b"", description, tmp_path_factory.mktemp("squares") / "squares.so")
    shutil.copytree(EXAMPLE, folder / "c")
    compiler = f"{sys.executable} -m ziglang cc -target {ZIG_TARGET}"
    include = Path(__file__).parents[3] / "targets" / "runtime"
    command = ["make", f"MODEL={library}", f"CC={compiler}", f"INCLUDE={include}", "CFLAGS=-O1 -Wall -Wextra -Werror"]
    made = subprocess.run(command, cwd=folder / "c", capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder / "c" / "classify"


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_zeros(program: Path) -> None:
    done = run(program)
    assert done.returncode == 0, done.stderr
    rows = [f"  {i:6}  0" for i in range(5)]
    assert done.stdout.splitlines() == ["squares, compiled for here by nnefc test", "y:", *rows, "n:", "       0  77"]


def test_largest_of_a_file(program: Path, tmp_path: Path) -> None:
    x = np.array([[1, -9, 2, 3], [np.nan, 5, -5, 0], [7, 0.5, 0, 4]], np.float32)
    x.tofile(tmp_path / "x.f32")
    done = run(program, str(tmp_path / "x.f32"), "6")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[2:8]]
    assert rows == [["1", "81"], ["8", "49"], ["5", "25"], ["6", "25"], ["11", "16"], ["3", "9"]]


@pytest.mark.parametrize("count", [11, 13])
def test_file_of_the_wrong_size(program: Path, tmp_path: Path, count: int) -> None:
    np.zeros(count, np.float32).tofile(tmp_path / "x.f32")
    done = run(program, str(tmp_path / "x.f32"))
    assert (done.returncode, "does not have the 48 bytes of the input x" in done.stderr) == (1, True)


def test_missing_file_and_wrong_usage(program: Path) -> None:
    assert run(program, "none.f32").returncode == 1
    assert run(program, "none.f32", "0").returncode == 2
    assert run(program, "a", "1", "b").returncode == 2


def test_failure_is_reported(program: Path, tmp_path: Path) -> None:
    np.full(12, -200, np.float32).tofile(tmp_path / "x.f32")
    done = run(program, str(tmp_path / "x.f32"))
    assert (done.returncode, done.stderr) == (1, "kernel error: the network's code failed with -1\n")


def test_missing_library_is_explained(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "c")
    environment = {**os.environ, "LC_ALL": "C"}
    made = subprocess.run(
        ["make", "MODEL=none.so"], cwd=tmp_path / "c", capture_output=True, text=True, env=environment, check=False
    )
    assert made.returncode != 0
    assert "there is no none.so: compile a network first" in made.stderr
