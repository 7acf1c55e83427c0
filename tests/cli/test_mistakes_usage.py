"""Mistakes on the command line: the whole message of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_mistakes import message

import nnefc

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library of the digits, and arrays that do not fit it."""
    position = tmp_path_factory.mktemp("mistakes")
    nnefc.compile(DIGITS).export(position / "d.so")
    np.save(position / "x.npy", np.zeros((1, 1, 8, 8), np.float32))
    np.save(position / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez(position / "two.npz", a=np.zeros(1), b=np.zeros(1))
    (position / "raw.bin").write_bytes(bytes(256))
    (position / "empty.npy").write_bytes(b"")
    return position


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


COMPILE = [
    (["-o", "x"], "error: x has no ending that says what to write\n"
     "hint: end the name with .so for a shared library, .a for a static one, .o for an object file"),
    (["-o", "x.dll"], "error: x.dll: shared libraries of the target do not end with .dll\n"
     "hint: end with .so for a shared library, .a for a static one, .o for an object file"),
    (["-o", "no/x.so"], "error: cannot write no/x.so: there is no folder no\nhint: make it first: mkdir -p no"),
    (["-o", "."], "error: cannot write .: it exists and is not a regular file\nhint: give the name of a file"),
    (["-o", "x.so", "--shape", "imag=1,1,8,8"], "error: the graph 'digits' has no input 'imag'\n"
     "hint: Did you mean 'image'?"),
    (["-o", "x.so", "--value", "image=3"], "error: --value (in Python values=) is not an option for NNEF models\n"
     "hint: they have --random-weights, --shape, --graph, --dialect, --pedantic, --scan-states, "
      "--output-tensor, --max-depth, --max-operations"),
    (["-o", "x.so", "--entry", "training:0"], "error: --entry (in Python entry=) is not an option for NNEF models\n"
     "hint: they have --random-weights, --shape, --graph, --dialect, --pedantic, --scan-states, "
      "--output-tensor, --max-depth, --max-operations"),
    (["-o", "x.so", "--precision", "tf32"], "error: code for the target 'llvm' has no precision tf32\n"
     "hint: that is for the target cuda: choose one of fp32, bf16, fp16"),
    (["-o", "x.so", "--cc", "nogcc"], "error: cannot run the compiler nogcc: there is no such program\n"
     "hint: install it, or give another; without one, zig comes with nnefc: pip install ziglang"),
    (["-o", "x.so", "--name", "2x"], "error: '2x' cannot begin the names of C functions\n"
     "hint: take letters, digits and underscores, not a digit first, 64 characters at most"),
    (["-o", "x.so", "--random-weights", "-1"], "error: the seed of random weights must not be negative, it is -1"),
    (["-o", "x.so", "--output-tensor", "probabilty"], "error: the graph 'digits' has no tensor 'probabilty'\n"
     "hint: did you mean 'probability'?"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "text"), COMPILE, ids=[" ".join(a) for a, _ in COMPILE])
def test_compile(arguments: list[str], text: str) -> None:
    assert message("compile", DIGITS, *arguments) == text


def test_the_compiler_is_looked_for_before_the_model_is_compiled() -> None:
    missing = message("compile", "gone.nnef", "-o", "x.so", "--cc", "nogcc")
    assert missing.startswith("error: cannot run the compiler nogcc")


RUN = [
    (["d.so"], "error: no value for input 'image'\n"
     "hint: give a file, --input image=FILE.npy, or random values, --random 0"),
    (["d.so", "--input", "imag=x.npy"], "error: 'imag' is not an input of this library\nhint: its inputs are image"),
    (["d.so", "--input", "image=x.npy", "--input", "x.npy"], "error: two values for input 'image'\n"
     "hint: give each input once"),
    (["d.so", "--input", "image=gone.npy"], "error: gone.npy: No such file or directory"),
    (["d.so", "--input", "image=."], "error: .: Is a directory"),
    (["d.so", "--input", "image=raw.bin"], "error: raw.bin is not a .npy or .npz file: it does not begin "
     "as they do\nhint: to convert raw numbers, in Python, with the type and shape that `nnefc inspect` shows: "
     "numpy.save('x.npy', numpy.fromfile('raw.bin', TYPE).reshape(SHAPE))"),
    (["d.so", "--input", "image=empty.npy"], "error: empty.npy is not a .npy or .npz file: it is empty\n"
     "hint: write one with numpy.save"),
    (["d.so", "--input", "image=objects.npy"], "error: objects.npy holds Python objects, not numbers\n"
     "hint: convert them first: numpy.save(FILE, array.astype(TYPE))"),
    (["d.so", "--input", "image=two.npz"], "error: two.npz holds no array 'image'\nhint: it holds a, b"),
    (["d.so", "--input", "two.npz"], "error: two.npz holds 'a', which is not an input of this library\n"
     "hint: its inputs are image"),
    (["d.so", "--random", "0", "--output", "x.npy"], "error: x.npy is a file: the outputs go into a folder\n"
     "hint: give the name of another folder"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "text"), RUN, ids=[" ".join(a) for a, _ in RUN])
def test_run(arguments: list[str], text: str) -> None:
    found = message("run", *arguments)
    if arguments[-1] == "two.npz" and "=" not in arguments[-2]:
        found = found.replace("'b'", "'a'")  # which of the two is reported first is open
    assert found == text


USAGE = [
    (["compile"], "Missing argument 'MODEL'."),
    (["compile", "m.onnx"], "Missing option '-o' / '--output'."),
    (["complie", "m.onnx"], "No such command 'complie'."),
    (["compile", "m.onnx", "-o", "x.so", "--shape", "image 1,1,8,8"],
     "Invalid value for '--shape': 'image 1,1,8,8' is not of the form NAME=1,3,8,8"),
    (["compile", "m.onnx", "-o", "x.so", "--shape", "1,1,8,8"],
     "Invalid value for '--shape': '1,1,8,8' is not of the form NAME=1,3,8,8"),
    (["compile", "m.onnx", "-o", "x.so", "--shape", "x=1x1x8x8"],
     "Invalid value for '--shape': '1x1x8x8' is not a list of integers such as 1,3,8,8"),
    (["compile", "m.onnx", "-o", "x.so", "--shape", "x=[1,1,8,8]"],
     "Invalid value for '--shape': 'x=[1,1,8,8]' has brackets: write a shape as NAME=1,3,8,8"),
    (["compile", "m.onnx", "-o", "x.so", "--shape", "x=-1,1,8,8"],
     "Invalid value for '--shape': a size in '-1,1,8,8' is less than 1"),
    (["compile", "m.onnx", "-o", "x.so", "--precision", "int4"],
     "Invalid value for '--precision': 'int4' is not one of 'fp32', 'tf32', 'bf16', 'fp16', 'int8', 'auto'."),
    (["compile", "m.onnx", "-o", "x.so", "--weights", "outside"],
     "Invalid value for '--weights': 'outside' is not one of 'embedded', 'separate'."),
    (["compile", "m.onnx", "-o", "x.so", "--value", "s"],
     "Invalid value for '--value': 's' is not of the form NAME=VALUE"),
    (["run", "d.so", "--random", "a"], "Invalid value for '--random': 'a' is not a valid integer"),
    (["run", "d.so", "--random", "-1"], "Invalid value for '--random': -1 is not in the range x>=0."),
    (["run", "d.so", "--threads", "0"], "Invalid value for '--threads': 0 is not in the range x>=1."),
    (["inspect", "d.so", "--shape", "x=1"], "these options say how to read a model, and a compiled library needs none"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "text"), USAGE, ids=[" ".join(a) for a, _ in USAGE])
def test_usage(arguments: list[str], text: str) -> None:
    last = message(*arguments, status=2).splitlines()[-1]
    assert last.startswith(f"Error: {text.removesuffix('.')}")  # click may say more, such as what is nearest
