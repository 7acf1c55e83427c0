"""The digits network through the command line alone: compile, inspect, run, as a person would.

What needs TVM runs in this process, which has it already, save for a compilation that fails; `test_cli_start.py` has
one in a process of its own that succeeds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nnefc.cli import main

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def nnefc(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-c", "from nnefc.cli import main; main(prog_name='nnefc')", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def nnefc_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in this process."""
    words = list(map(str, arguments))
    done = CliRunner().invoke(main, words, prog_name="nnefc")
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "digits.so"
    done = nnefc_here("compile", DIGITS / "model.nnef", "-o", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return path


def test_a_compiled_library_classifies_a_image_from_a_file(library: Path, tmp_path: Path) -> None:
    held = np.load(DIGITS / "test.npz")
    np.save(tmp_path / "image.npy", held["images"][:1].astype(np.float32) / 16)
    done = nnefc("run", library, "--input", f"image={tmp_path / 'image.npy'}", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    probability = np.load(tmp_path / "out" / "probability.npy")
    assert probability.shape == (1, 10)
    assert probability.argmax() == held["labels"][0]


def test_random_input_and_latency(library: Path) -> None:
    done = nnefc_here("run", library, "--random", 1, "--threads", 2)
    assert done.returncode == 0, done.stderr
    done = nnefc_here("bench", library, "--runs", 3, "--threads", 2)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^milliseconds a run; 2 threads, 1 session$", done.stdout, re.MULTILINE)


def test_inspecting_the_library_shows_the_same_interface_as_the_model(library: Path) -> None:
    of_library, of_model = nnefc_here("inspect", library), nnefc_here("inspect", DIGITS / "model.nnef")
    for line in ("input   image        float32  [1, 1, 8, 8]", "output  probability  float32  [1, 10]"):
        assert line in of_library.stdout.splitlines()
        assert line in of_model.stdout.splitlines()
    assert re.search(r"^target +llvm$", of_library.stdout, re.MULTILINE)


def test_verbose_shows_the_phases_and_dump_writes_the_program_after_each_for_a_batch_by_shape(tmp_path: Path) -> None:
    (tmp_path / "d.nnef").write_text(
        "version 1.0; graph d(image) -> (y) { image = external<scalar>(shape = [1, 1, 8, 8]);"
        " filter = constant(shape = [10, 1, 8, 8], value = [0.25]);"
        " y = conv(image, filter, padding = [(0, 0), (0, 0)]); }"
    )
    words = ("-v", "--dump", tmp_path / "dump", "--shape", "image=5,1,8,8")
    done = nnefc_here("compile", tmp_path / "d.nnef", "-o", tmp_path / "d.so", *words)
    assert done.returncode == 0, done.stderr
    assert "[5, 10, 1, 1]" in nnefc_here("inspect", tmp_path / "d.so").stdout
    assert all(re.search(rf"^{phase} +\d+\.\d\d s$", done.stderr, re.MULTILINE) for phase in ("read", "link"))
    dumped = sorted((tmp_path / "dump").glob("*.py"))
    assert len(dumped) > 3
    assert "conv2d" in dumped[0].read_text()
    assert "JIT" not in done.stderr


FAILING = pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "missing.nnef"], "missing.nnef"),
        (["compile", "{model}", "--target", "pdp11"], "pdp11"),
        (["compile", "{model}", "--target", "llvm -mcpu=nothing"], "nothing"),
        (["compile", "{model}", "--shape", "nothing=1"], "nothing"),
        (["compile", "{model}", "--output-tensor", "nothing"], "nothing"),
        (["compile", "{model}", "--graph", "nothing"], "nothing"),
        (["compile", "{model}", "--dump", "{file}"], "file"),
        (["compile", "{model}", "--shape", "image=1,2,8,8"], "conv"),
    ],
)


@FAILING
def test_a_failing_compilation_leaves_a_message_and_the_old_library(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    check_failing(nnefc_here, tmp_path, arguments, message)


@pytest.mark.slow
def test_a_failing_compilation_ends_its_process_with_a_message(tmp_path: Path) -> None:
    check_failing(nnefc, tmp_path, ["compile", "{model}", "--output-tensor", "nothing"], "nothing")


def check_failing(
    run: Callable[..., subprocess.CompletedProcess[str]], folder: Path, arguments: list[str], message: str
) -> None:
    (folder / "file").write_text("in the way")
    (folder / "old.so").write_text("old")
    fill = {"model": DIGITS / "model.nnef", "file": folder / "file"}
    done = run(*(argument.format(**fill) for argument in arguments), "-o", folder / "old.so")
    assert done.returncode == 1
    assert done.stdout == ""
    assert message in done.stderr
    assert "error: " in done.stderr
    assert "internal" not in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["file", "old.so"]
    assert (folder / "old.so").read_text() == "old"


def test_wrong_inputs_name_what_was_given_and_what_is_wanted(library: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wrong.npy", np.zeros((1, 1, 8, 9), np.float32))
    np.save(tmp_path / "double.npy", np.zeros((1, 1, 8, 8)))
    wrong = nnefc_here("run", library, "--input", tmp_path / "wrong.npy")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "9" in wrong.stderr and "8" in wrong.stderr
    double = nnefc_here("run", library, "--input", tmp_path / "double.npy")
    assert double.returncode == 1
    assert "float64" in double.stderr and "float32" in double.stderr
    assert "Traceback" not in wrong.stderr + double.stderr
