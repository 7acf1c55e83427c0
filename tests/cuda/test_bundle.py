"""Tests for devices without a compiler: what goes there, and what finds the errors there."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from test_on_device import DEVICE, TESTS, environment

import nnefc

pytestmark = pytest.mark.slow
DIGITS = TESTS.parent / "examples" / "digits" / "model.nnef"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the test of digits compiles and runs."""
    folder = tmp_path_factory.mktemp("bundle")
    test = f"{DEVICE / 'test_networks_on_device.py'}::test_digits_are_the_same[fp32]"
    variables = {**environment(), "NNEFC_BUNDLE": str(folder), "NNEFC_BUNDLE_ARCHITECTURE": "90"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", test],
        env=variables, cwd=TESTS.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return folder


def replay(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, str(DEVICE / "replay.py"), str(folder), *options],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_bundle_has_libraries_for_the_gpu_and_what_they_shall_give(bundle: Path) -> None:
    (folder,) = bundle.iterdir()
    assert (folder / "test").read_text().startswith("fp32\n")
    completed = subprocess.run(
        [sys.executable, "-m", "nnefc", "inspect", str(folder / "network.so")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cuda -arch=sm_90" in completed.stdout
    (calls,) = folder.glob("calls-*.pickle")
    with calls.open("rb") as file:
        kind, given, results = pickle.load(file)
    assert (kind, [x.shape for x in given], [y.shape for y in results]) == ("run", [(1, 1, 8, 8)], [(1, 10)])


def test_a_replay_tells_right_results_from_wrong_ones(bundle: Path) -> None:
    (folder,) = bundle.iterdir()
    assert replay(bundle).returncode == 1  # there is no GPU
    nnefc.compile(DIGITS).export(folder / "network.so")
    right = replay(bundle)
    assert right.returncode == 0, right.stdout + right.stderr
    assert right.stdout.startswith("1 right, 0 wrong, 9 calls")
    assert ", 0 refused, 0 of which no call was" in right.stdout
    (bundle / "other").mkdir()
    (bundle / "other" / "refused").write_text("Traceback\nCompileError: too many axes\n")
    refused = replay(bundle)
    (bundle / "other" / "refused").unlink()
    (bundle / "other").rmdir()
    assert refused.returncode == 1
    assert "other was refused: CompileError: too many axes" in refused.stdout
    (calls,) = folder.glob("calls-*.pickle")
    with calls.open("rb") as file:
        kind, given, results = pickle.load(file)
    results[0][0, 3] += 0.01
    with calls.open("ab") as file:
        pickle.dump((kind, given, results), file)
    wrong = replay(bundle)
    assert wrong.returncode == 1
    assert "turn 0, call 3: output 0: error 0.01" in wrong.stdout


def test_a_replay_whose_time_is_over_goes_on_with_the_same_command(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    over = replay(bundle, "--seconds", "0", "--out", str(out))
    assert over.returncode == 0 and not out.exists()
    assert "0 right, 0 wrong, 0 calls" in over.stdout and "1 libraries are left" in over.stdout
    (folder,) = bundle.iterdir()
    out.write_text(json.dumps({folder.name: {"wrong": [], "calls": 7, "error": 0.5, "test": "of an earlier run"}}))
    assert replay(bundle, "--out", str(out)).stdout.startswith("1 right, 0 wrong, 7 calls, largest error of fp32 0.5")
