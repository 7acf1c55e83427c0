"""Libraries whose writing is killed, or has no room or company: the old one is there or the new one, whole."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from runtime_samples import CONSTANTS, SAMPLE, WEIGHTS, ZIG_TARGET, object_file

from nnefc.loader import load
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.outputs import write_network

HERE = Path(__file__).parent
X = np.ones(1024, np.float32)


def write(path: Path, scale: int, weights: str = "embedded") -> None:
    blob = Constants.of((np.float32(scale) * WEIGHTS).tobytes() + CONSTANTS[WEIGHTS.nbytes :])
    write_network([object_file("network.c")], blob, SAMPLE, path, zig_target=ZIG_TARGET, weights=weights)


def scale_of(path: Path) -> float:
    with load(path) as model:
        result = model(X)[0]
    scale = float(np.median(result / WEIGHTS))
    assert np.array_equal(result, np.float32(scale) * WEIGHTS)
    return scale


def start(path: Path, first: int, repeats: int) -> subprocess.Popen[bytes]:
    """Another process, which writes libraries of the scales from `first` on, one after the other."""
    code = (
        "import pathlib, sys, test_interrupted\n"
        "for scale in range(*map(int, sys.argv[2:])):\n"
        "    test_interrupted.write(pathlib.Path(sys.argv[1]), scale)"
    )
    return python(code, path, str(first), str(first + repeats))


def python(code: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
    """Another process, which can import this file."""
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1] / "helpers")])
    return subprocess.Popen([sys.executable, "-c", code, *arguments], env={**os.environ, "PYTHONPATH": paths})


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_whole_library(tmp_path: Path) -> None:
    path, rng = tmp_path / "model.so", random.Random(5)
    write(path, 1)
    for _ in range(2):
        before = path.stat().st_mtime_ns
        child = start(path, 2, 1000)
        while path.stat().st_mtime_ns == before and child.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.5))
        child.kill()
        assert child.wait() == -9
        assert scale_of(path) >= 2


def test_several_write_one_name(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    children = [start(path, 100 * number, 2) for number in (1, 2)]
    assert [child.wait() for child in children] == [0, 0]
    assert scale_of(path) in (101, 201)
    assert os.listdir(tmp_path) == ["model.so"]


@pytest.mark.parametrize("weights", [pytest.param("embedded", marks=pytest.mark.slow), "separate"])
def test_no_room_leaves_what_was_there(weights: str, tmp_path: Path) -> None:
    write(tmp_path / "model.so", 1, weights)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code = (
        "import pathlib, resource, sys, test_interrupted\n"
        "from nnefc.support.diagnostics import CompileError\n"
        "network = test_interrupted.object_file('network.c')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try:\n"
        "    test_interrupted.write(pathlib.Path(sys.argv[1]), 2, sys.argv[2])\n"
        "except CompileError:\n"
        "    sys.exit(3)"
    )
    assert python(code, tmp_path / "model.so", weights).wait() == 3
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
