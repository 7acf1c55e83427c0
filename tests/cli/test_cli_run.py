"""`nnefc run`: arrays from files into a library, results into files. A model in NumPy stands for the library."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from runtime_samples import sample_library

import nnefc.loader
from nnefc.cli import main
from nnefc.cli.arrays import file_names
from nnefc.cli.commands.run import describe
from nnefc.ir.sample_inputs import random_inputs
from nnefc.loader import RunError, Tensor


class AddAndNegate:
    """Inputs a, b of [2, 3]; outputs a + b and -a. Keeps the options it was made with and counts its runs."""

    inputs = (Tensor("a", "float32", (2, 3)), Tensor("b/1", "float32", (2, 3)))
    outputs = (Tensor("sum", "float32", (2, 3)), Tensor("../minus", "float32", (2, 3)))
    dimensions = ()
    runs = 0

    def __init__(self, path: Path, **options: Any) -> None:
        self.file = path
        AddAndNegate.options, AddAndNegate.runs = options, 0

    def __enter__(self) -> AddAndNegate:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        AddAndNegate.runs += 1
        return {"sum": inputs["a"] + inputs["b/1"], "../minus": -inputs["a"]}


class Negate(AddAndNegate):
    """One input and one output."""

    inputs = (Tensor("a", "float32", (2, 3)),)
    outputs = (Tensor("minus", "float32", (2, 3)),)

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"minus": -inputs["a"]}


A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.ones((2, 3), np.float32)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> type[AddAndNegate]:
    monkeypatch.setattr(nnefc.loader, "load", AddAndNegate)
    return AddAndNegate


@pytest.fixture
def negate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nnefc.loader, "load", Negate)


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["run", "net.so", *map(str, arguments)])


def saved(folder: Path, **arrays: np.ndarray) -> dict[str, Path]:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return {name: folder / f"{name}.npy" for name in arrays}


def test_outputs_are_files_with_safe_names_inside_the_folder(model: Any, tmp_path: Path) -> None:
    files = saved(tmp_path, a=A, b=B)
    out = tmp_path / "deep" / "out"
    result = run(
        "--input", f"a={files['a']}", "--input", f"b/1={files['b']}", "--output", out, "--threads", 2, "--weights", "w"
    )
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == ["_minus.npy", "sum.npy"]
    np.testing.assert_array_equal(np.load(out / "sum.npy"), A + B)
    np.testing.assert_array_equal(np.load(out / "_minus.npy"), -A)
    assert model.options == {"threads": 2, "device": 0, "weights": Path("w")}


def test_subnormal_numbers_are_kept_on_request(model: Any, tmp_path: Path) -> None:
    files = saved(tmp_path, a=A, b=B)
    result = run("--input", f"a={files['a']}", "--input", f"b/1={files['b']}", "--no-flush-subnormals")
    assert result.exit_code == 0, result.output
    assert model.options["flush_subnormals"] is False


def test_an_npz_gives_all_inputs_or_the_named_one(model: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", **{"a": A, "b/1": B})
    np.savez(tmp_path / "one.npz", something=B)
    for arguments in (
        ["--input", tmp_path / "both.npz"],
        ["--input", f"a={tmp_path / 'both.npz'}", "--input", f"b/1={tmp_path / 'both.npz'}"],
        ["--input", f"a={tmp_path / 'both.npz'}", "--input", f"b/1={tmp_path / 'one.npz'}"],
    ):
        result = run(*arguments, "--output", tmp_path / "out")
        assert result.exit_code == 0, result.output
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "sum.npy"), A + B)


def test_the_name_may_be_left_out_for_the_only_input(negate: None, tmp_path: Path) -> None:
    np.save(tmp_path / "with=sign.npy", A)
    result = run("--input", tmp_path / "with=sign.npy", "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "minus.npy"), -A)


def test_without_a_folder_the_outputs_are_described(model: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", **{"a": A, "b/1": B})
    lines = run("--input", tmp_path / "both.npz").stdout.splitlines()
    assert lines[0].split() == ["output", "type", "shape", "min", "mean", "max"]
    assert lines[1].split() == ["sum", "float32", "[2,", "3]", "1", "3.5", "6"]


def test_bfloat16_is_described_by_its_values() -> None:
    bits = (np.array([1, 2, 6], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    assert describe({"y": bits}, {"y": "bfloat16"})[1].split() == ["y", "bfloat16", "[3]", "1", "3", "6"]


def test_random_values_depend_on_seed_and_name_only() -> None:
    ports = [Tensor("a", "float32", (50,)), Tensor("b", "int32", (50,)), Tensor("c", "bool", (50,))]
    ports += [Tensor("d", "bfloat16", (50,)), Tensor("e", "uint8", (50,)), Tensor("f", "float16", (50,))]
    both = random_inputs(1, ports)
    for port in ports:
        np.testing.assert_array_equal(both[port.name], random_inputs(1, [port])[port.name])
        assert np.ptp(both[port.name].astype(np.float64)) > 0
    assert [array.dtype.name for array in both.values()] == ["float32", "int32", "bool", "uint16", "uint8", "float16"]
    assert not np.array_equal(both["a"], random_inputs(2, ports)["a"])


def test_a_run_that_fails_on_random_integers_says_which_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rate(AddAndNegate):
        inputs = (Tensor("audio", "float32", (2,)), Tensor("rate", "int64", ()))

        def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            raise RunError("net.so: no branch for this rate")

    monkeypatch.setattr(nnefc.loader, "load", Rate)
    result = run("--random", 0)
    assert (result.exit_code, result.stderr) == (
        1,
        "error: net.so: no branch for this rate\n"
        "hint: the network may not take the random values of 'rate': give ones that it takes, --input rate=FILE.npy\n",
    )


def test_outputs_are_selected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Selecting(AddAndNegate):
        def run(self, inputs: dict[str, np.ndarray], outputs: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
            return {name: array for name, array in super().run(inputs).items() if name in outputs}

    monkeypatch.setattr(nnefc.loader, "load", Selecting)
    result = run("--random", 0, "--select", "sum")
    assert result.exit_code == 0 and "sum" in result.stdout and "minus" not in result.stdout


def test_random_values_leave_given_inputs_alone(model: Any, tmp_path: Path) -> None:
    files = saved(tmp_path, a=A)
    result = run("--input", f"a={files['a']}", "--random", 3, "--output", tmp_path)
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "_minus.npy"), -A)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no value for input 'a', 'b/1'"),
        (["--input", "a={a}"], "no value for input 'b/1'"),
        (["--input", "{a}"], "it is not clear which input"),
        (["--input", "a={a}", "--input", "a={a}"], "two values for input 'a'"),
        (["--input", "z={a}"], "'z' is not an input"),
        (["--input", "{other}"], "holds 'other', which is not an input"),
        (["--input", "a={two}"], "holds no array 'a'"),
        (["--input", "a={missing}"], "No such file"),
        (["--input", "a={folder}"], "Is a directory"),
        (["--input", "a={text}"], "is not a .npy or .npz file: it does not begin as they do"),
        (["--input", "a={empty}"], "is not a .npy or .npz file: it is empty"),
        (["--input", "a={pickle}"], "holds Python objects, not numbers"),
        (["--input", "a={liar}"], "not a readable .npy or .npz file"),
        (["--input", "a={broken}"], "not a readable .npy or .npz file"),
        (["--input", "a={zip}"], "not a readable .npy or .npz file"),
    ],
)
def test_bad_inputs_are_errors_with_a_message(model: Any, tmp_path: Path, arguments: list[str], message: str) -> None:
    files = saved(tmp_path, a=A)
    files |= {name: tmp_path / name for name in ("missing", "text", "empty", "pickle", "liar", "zip")}
    files |= {"folder": tmp_path, "other": tmp_path / "other.npz", "two": tmp_path / "two.npz"}
    files["text"].write_text("hello")
    files["empty"].write_bytes(b"")
    np.save(tmp_path / "pickle.npy", np.array([object()]), allow_pickle=True)
    files["pickle"] = tmp_path / "pickle.npy"
    files["liar"].write_bytes(files["a"].read_bytes().replace(b"(2, 3)", b"(9, 9)"))
    files["broken"] = tmp_path / "broken"
    files["broken"].write_bytes(files["a"].read_bytes().replace(b"(2, 3)", b"(2, 3 "))
    with zipfile.ZipFile(files["zip"], "w") as archive:
        archive.writestr("x.npy", "nonsense")
    np.savez(files["other"], other=A)
    np.savez(files["two"], x=A, y=A)
    result = run(*(argument.format(**files) for argument in arguments), "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_nan_is_an_error_on_request(tmp_path: Path) -> None:
    x = np.full(1024, np.nan, np.float32)
    np.save(tmp_path / "x.npy", x)
    arguments = ["run", str(sample_library()), "--input", str(tmp_path / "x.npy")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    result = CliRunner().invoke(main, [*arguments, "--check-nan"])
    assert (result.exit_code, result.stderr) == (1, 'error: input "x": 1024 of 1024 elements are NaN, first [0]\n')


def test_too_many_threads_are_reported_of_the_processors() -> None:
    result = CliRunner().invoke(main, ["run", str(sample_library()), "--random", "0", "--threads", "100000"])
    assert result.exit_code == 1
    assert "error: threads is 100000, not a number from 1 to 1024; more than this machine's" in result.stderr


def test_raw_numbers_are_reported_from_arrays(model: Any, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(A.tobytes())
    result = run("--input", f"a={tmp_path / 'a.npy'}")
    assert result.exit_code == 1
    error, hint = result.stderr.splitlines()
    assert error.endswith("a.npy is not a .npy or .npz file: it does not begin as they do")
    assert f"numpy.save('x.npy', numpy.fromfile('{tmp_path / 'a.npy'}', TYPE).reshape(SHAPE))" in hint
    assert "pickle" not in result.stderr and "unsafe" not in result.stderr


def test_names_become_file_names_that_differ() -> None:
    assert file_names(["a/b", "a:b", "A_b", "..", "", "x" * 300, "ok.1"]) == [
        "a_b",
        "a_b_2",
        "A_b_3",
        "output",
        "output_2",
        "x" * 100,
        "ok.1",
    ]


def test_a_library_that_is_none_is_an_error(tmp_path: Path) -> None:
    for file in (tmp_path / "missing.so", tmp_path / "text.so", tmp_path):
        (tmp_path / "text.so").write_text("text")
        result = CliRunner().invoke(main, ["run", str(file), "--random", "0"])
        assert result.exit_code == 1
        assert result.stderr.startswith("error: ")
        assert str(file) in result.stderr
        assert len(result.stderr.splitlines()) == 1
