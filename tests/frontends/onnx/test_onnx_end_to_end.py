"""ONNX models through the front door: `nnefc.compile` and the command line choose the front end by the file's name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx_models import INT64, graph, info, model, node, save, tensor

import nnefc
from nnefc.cli import main
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """`y = x @ w + b` for a batch and a sequence of any sizes; `b` may be overridden."""
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["y"])]
    inputs, outputs = [info("x", ("batch", "seq", 4)), info("b", (3,))], [info("y", ("batch", "seq", 3))]
    weights = [tensor("w", np.arange(12).reshape(4, 3) / 8), tensor("b", [1, 2, 3])]
    return save(model(nodes, inputs, outputs, weights), tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def expected(x: np.ndarray, b: np.ndarray) -> np.ndarray:
    return x @ (np.arange(12, dtype=np.float32).reshape(4, 3) / 8) + b


def test_a_model_is_compiled_and_run(path: Path) -> None:
    x = RNG.standard_normal((2, 5, 4)).astype(np.float32)
    found = nnefc.compile(path, shape={"batch": 2, "seq": 5}).run({"x": x})["y"]
    np.testing.assert_allclose(found, expected(x, np.array([1, 2, 3])), rtol=1e-5)


def test_initializers_become_inputs_of_the_library(path: Path) -> None:
    x, b = RNG.standard_normal((1, 2, 4)).astype(np.float32), RNG.standard_normal(3).astype(np.float32)
    artifact = nnefc.compile(path, shape={"x": (1, 2, 4)}, overridable=True)
    assert [tensor_.name for tensor_ in artifact.inputs] == ["x", "b"]
    np.testing.assert_allclose(artifact.run({"x": x, "b": b})["y"], expected(x, b), rtol=1e-5, atol=1e-6)


def test_the_command_line_binds_dimensions(path: Path, tmp_path: Path) -> None:
    for options in (["--shape", "batch=2,seq=5"], ["--shape", "batch=2", "--shape", "seq=5"], ["--shape", "x=2,5,4"]):
        library = tmp_path / "model.so"
        result = run("compile", path, "-o", library, *options)
        assert result.exit_code == 0, result.output
        with nnefc.load(library) as loaded:
            assert loaded.inputs[0].shape == (2, 5, 4)


def test_mixed_shapes_are_parted_at_names(path: Path) -> None:
    result = run("inspect", path, "--shape", "x=2,5,4,batch=2")
    assert result.exit_code == 0, result.output
    assert "[2, 5, 4]" in result.output


def test_the_command_line_lists_dynamic_dimensions(path: Path) -> None:
    result = run("inspect", path)
    assert result.exit_code == 0, result.output
    assert "Dimensions are open, and stay so" in result.output
    assert [line.split()[1] for line in result.output.splitlines() if line.startswith("dimension")] == ["batch", "seq"]


def test_options_of_other_formats_are_refused(path: Path) -> None:
    for name, value in (("random_weights", 1), ("graph", "g"), ("dialect", "final")):
        with pytest.raises(CompileError, match=rf"in Python {name}=\) is not an option for ONNX models"):
            nnefc.compile(path, **{name: value})
    with pytest.raises(CompileError, match=r"--entry .* is not an option for NNEF models"):
        (path.parent / "m.nnef").write_text("version 1.0;")
        nnefc.compile(path.parent / "m.nnef", entry="training:0")


def test_entries_that_are_not_there_are_refused(path: Path) -> None:
    with pytest.raises(CompileError, match="there is no entry 'training:0': the model has no trainings"):
        nnefc.compile(path, entry="training:0")


RATES = model(
    [
        node("Equal", ["sr", "high"], ["c"]),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=graph([node("Reshape", ["x", "six"], ["t"])], [], [info("t", None)]),
            else_branch=graph([node("Reshape", ["x", "three"], ["e"])], [], [info("e", None)]),
        ),
    ],
    [info("x", (1, "n")), info("sr", (), INT64)],
    [info("y", ("m",))],
    [tensor("high", 16000, np.int64), tensor("six", [6], np.int64), tensor("three", [3], np.int64)],
)
"""As a detector of voices: a frame has one length at one rate, another at the other."""


def test_the_command_line_gives_values_of_inputs(tmp_path: Path) -> None:
    path, library = save(RATES, tmp_path), tmp_path / "m.so"
    np.save(tmp_path / "rate.npy", np.int64(8000))
    for value, count in (("16000", 6), (tmp_path / "rate.npy", 3)):
        result = run("compile", path, "-o", library, "--shape", f"n={count}", "--value", f"sr={value}")
        assert (result.exit_code, result.output) == (0, "")
        with nnefc.load(library) as loaded:
            assert [tensor_.name for tensor_ in loaded.inputs] == ["x"]
            assert loaded.outputs[0].shape == (count,)
    result = run("inspect", path, "--shape", "n=6", "--value", "sr=16000")
    assert result.exit_code == 0 and "sr" not in result.output
    wrong = {"fast": "'fast' are not of type int64", "[[1],[2,3]]": "differ in length", "1,2": "the rank 0"}
    for value, message in wrong.items():
        result = run("compile", path, "-o", library, "--shape", "n=6", "--value", f"sr={value}")
        assert result.exit_code == 1 and message in result.output


def test_the_command_line_prints_each_warning_once(tmp_path: Path) -> None:
    path = save(RATES, tmp_path)
    result = run("compile", path, "-o", tmp_path / "m.so", "--shape", "n=3")
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(
        "warning: model.onnx: a run that takes the branch 'g' will fail, it cannot be computed: "
    )
