"""Strings that are moved and compared, and the borders of a library that takes and gives them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_strings import STRING, WORDS, check, model_of, node, texts

import nnefc
from nnefc.cli.arrays import write_outputs
from nnefc.cli.commands.run import describe
from nnefc.frontends.onnx import load
from nnefc.inspect.cost_summary import inspect_network
from nnefc.ir.sample_inputs import random_inputs
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.toolchain import RUNTIME

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64
NAMES = np.array([["k", "", "日本語"]], object)


def moving() -> list[onnx.NodeProto]:
    """Operators that move elements, some of strings that are known at compile time."""
    return [
        node("Identity", "x", "same"),
        node("Concat", "x names", "more", axis=0),
        node("Transpose", "more", "transposed"),
        node("Gather", "transposed order", "some", axis=0),
        node("Unsqueeze", "some zero", "deep"),
        node("Squeeze", "deep zero", "flat"),
        node("Slice", "flat zero one", "row"),
        node("Tile", "row twice", "tiled"),
        node("Equal", "x names", "equal"),
        node("Where", "equal x names", "chosen"),
        node("Pad", "chosen around fill", "padded"),
        node("Split", "padded", "left right", axis=1, num_outputs=2),
        node("Shape", "left", "shape"),
    ]


CONSTANTS = {
    "names": NAMES,
    "order": np.array([2, 0]),
    "zero": np.array([0]),
    "one": np.array([1]),
    "twice": np.array([1, 2]),
    "around": np.array([1, 0, 0, 2]),
    "fill": np.array("é", object),
}
OUTPUTS = {"same": STRING, "tiled": STRING, "equal": BOOL, "chosen": STRING, "left": STRING, "right": STRING}


def test_what_moves_numbers_moves_strings(tmp_path: Path) -> None:
    proto = model_of(moving(), {"x": (STRING, [4, 3])}, {**OUTPUTS, "shape": INT64}, **CONSTANTS)
    artifact = check(proto, tmp_path, *({"x": texts(4, 3, words=(*WORDS, "k"))} for _ in range(3)))
    assert str(artifact.inputs[0]) == "x: string[4, 3]"


def test_strings_of_dynamic_sizes(tmp_path: Path) -> None:
    proto = model_of(moving()[:12], {"x": (STRING, ["n", 3])}, OUTPUTS, **CONSTANTS)
    check(proto, tmp_path, *({"x": texts(size, 3)} for size in (4, 1, 40, 4)))


def test_strings_that_the_data_select(tmp_path: Path) -> None:
    nodes = [
        node("Compress", "x keep", "kept", axis=0),
        node("Unique", "kept", "elements first which often"),
        node("Equal", "elements comma", "equal"),
    ]
    kinds = {"kept": STRING, "elements": STRING, "first": INT64, "which": INT64, "often": INT64, "equal": BOOL}
    proto = model_of(nodes, {"x": (STRING, ["n"]), "keep": (BOOL, ["n"])}, kinds, comma=np.array("a", object))
    feeds = [{"x": texts(size), "keep": np.arange(size) % 3 > 0} for size in (20, 7, 50)]
    check(proto, tmp_path, *feeds)


class String(ctypes.Structure):
    """nnefc_string."""

    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


def test_a_failed_run_writes_no_strings_beyond_the_output(tmp_path: Path) -> None:
    """It fails before it has found how many there are; the run before had more."""
    nodes = [
        node("Cast", "x", "numbers", to=INT64),
        node("Greater", "numbers zero", "holds"),
        node("Compress", "x holds", "kept", axis=0),
    ]
    proto = model_of(nodes, {"x": (STRING, ["n"])}, {"kept": STRING}, zero=np.array(0))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    nnefc.compile(tmp_path / "model.onnx").export(tmp_path / "model.so")
    library, session = ctypes.CDLL(str(tmp_path / "model.so")), ctypes.c_void_p()
    assert library.nnefc_create(None, ctypes.byref(session)) == 0
    kept = (String * 64)()

    def run(*elements: bytes) -> int:
        shape, strings = (
            ctypes.c_int64(len(elements)),
            (String * len(elements))(*((element, len(element)) for element in elements)),
        )
        assert library.nnefc_resize(session, (ctypes.c_void_p * 1)(ctypes.addressof(shape))) == 0
        lists = ((ctypes.c_void_p * 1)(ctypes.addressof(tensor)) for tensor in (strings, kept))
        return int(library.nnefc_run(session, *lists))

    assert run(*64 * [b"1"]) == 0
    assert run(b"1", b"abc", b"2", b"3") == 5  # NNEFC_KERNEL_ERROR
    assert [string.size for string in kept] == 4 * [0] + 60 * [1]
    assert library.nnefc_destroy(session) == 0


def test_strings_go_round_a_loop_and_through_a_choice(tmp_path: Path) -> None:
    """The loop turns a row as often as an input says, and a branch has strings of its own."""
    transposed = helper.make_graph(
        [
            node("Gather", "state turn", "after", axis=0),
            node("Identity", "condition", "goes_on"),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", INT64, []),
            helper.make_tensor_value_info("condition", BOOL, []),
            helper.make_tensor_value_info("state", STRING, [3]),
        ],
        [helper.make_tensor_value_info("goes_on", BOOL, []), helper.make_tensor_value_info("after", STRING, [3])],
    )
    branches = {
        f"{kind}_branch": helper.make_graph(
            [node("Concat", f"row {other}", f"{kind}_made", axis=0)],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}_made", STRING, None)],
        )
        for kind, other in (("then", "x"), ("else", "names"))
    }
    nodes = [node("Loop", "count always x", "row", body=transposed), node("If", "choice", "y", **branches)]
    inputs = {"x": (STRING, [3]), "count": (INT64, []), "choice": (BOOL, [])}
    constants = {"turn": np.array([1, 2, 0]), "names": NAMES[0], "always": np.array(True)}
    proto = model_of(nodes, inputs, {"y": STRING}, **constants)
    feeds = [{"x": texts(3), "count": np.array(count), "choice": np.array(count > 1)} for count in (0, 1, 5)]
    check(proto, tmp_path, *feeds)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that gives what it takes, [2] strings, and whether they are equal."""
    nodes = [node("Identity", "x", "y"), node("Slice", "x zero one", "first"), node("Equal", "x first", "equal")]
    constants = {"zero": np.array([0]), "one": np.array([1])}
    proto = model_of(nodes, {"x": (STRING, [2])}, {"y": STRING, "equal": BOOL}, **constants)
    path = tmp_path_factory.mktemp("strings") / "copied.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_arrays_of_all_kinds_of_strings_go_in(copied: Path) -> None:
    with nnefc.compile(copied).load(threads=1) as library:
        given = [["a", "ß"], np.array(["a", "ß"]), np.array([b"a", "ß".encode()], object), np.array([b"a", b"b"])]
        for value in (
            *given,
            *([np.array(["a", "ß"], np.dtypes.StringDType())] if hasattr(np.dtypes, "StringDType") else []),
        ):
            found, equal = library(value)
            assert (found.dtype, found[0], equal.tolist()) == (object, "a", [True, False])
        mine = np.empty(2, object)
        assert library(["\udcff", "x"], out=[mine, np.empty(2, bool)])[0] is mine
        assert mine.tolist() == ["\udcff", "x"]  # bytes that are no UTF-8
        for wrong, message in (
            (np.array([1, 2]), "the model has strings"),
            (np.array(["a", None], object), "not a str: None"),
            (np.array(["a", "\ud800"], object), "UTF-8 cannot encode"),
            (np.array(["a"]), "has the shape"),
        ):
            with pytest.raises(RunError, match=message):
                library(wrong)


class View(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


def test_elements_that_are_no_strings_are_refused(copied: Path) -> None:
    with nnefc.compile(copied).load(threads=1) as library:
        run, session = library._library.dll.nnefc_run, library._session.open()
        outputs, equal = (View * 2)(), (ctypes.c_bool * 2)()
        for size, status in ((1, 1), (1 << 63, 1), (0, 0)):
            inputs = (View * 2)(View(b"fine", 4), View(None, size))
            sources = (ctypes.c_void_p * 1)(ctypes.addressof(inputs))
            targets = (ctypes.c_void_p * 2)(ctypes.addressof(outputs), ctypes.addressof(equal))
            assert run(session, sources, targets) == status
        assert [(view.data, view.size) for view in outputs] == [(b"fine", 4), (None, 0)]


def test_strings_on_the_command_line(copied: Path, tmp_path: Path) -> None:
    assert [tensor.dtype for tensor in inspect_network(load(copied)).inputs] == ["string"]
    inputs = random_inputs(0, nnefc.compile(copied).inputs)
    results = {"y": np.array(["b\x1b", "a" * 30], object), "n": np.array([1, 2])}
    assert inputs["x"].dtype.kind == "U"
    shown = describe(results, {"y": "string", "n": "int64"})
    assert [line.split() for line in shown[1:]] == [
        ["y", "string", "[2]", "'aaaaaaaaaaaaaaaaaaaaaaa…", "-", "'b\\x1b'"],
        ["n", "int64", "[2]", "1", "1.5", "2"],
    ]
    write_outputs(tmp_path, results)
    assert np.load(tmp_path / "y.npy").tolist() == results["y"].tolist()


def test_strings_are_not_for_gpus(copied: Path) -> None:
    with pytest.raises(CompileError, match="computes with strings: code for them is for processors"):
        nnefc.compile(copied, "cuda")


PROGRAM = """
#include <cstdio>
#include "nnefc.hpp"
int main(int, char **arguments) {
    auto session = nnefc::Library(arguments[1]).session();
    std::vector<nnefc::String> words = {"one", std::string_view("t\\0o", 3)}, found(2);
    unsigned char equal[2];
    bool *flags = reinterpret_cast<bool *>(equal);
    session.run({words}, {found, nnefc::Output(flags, 2)});
    std::string_view second = found[1];
    bool same = second == std::string_view("t\\0o", 3);
    std::printf("%d %d %d %s", int(same), equal[0], equal[1], nnefc::type_name(NNEFC_STRING));
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs: g++")
@pytest.mark.slow
def test_strings_in_cpp(copied: Path, tmp_path: Path) -> None:
    nnefc.compile(copied).export(tmp_path / "copied.so")
    (tmp_path / "p.cpp").write_text(PROGRAM)
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME}", "p.cpp", "-ldl", "-o", "p"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./p", "./copied.so"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "1 1 0 string"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs: node")
def test_strings_in_javascript(copied: Path, tmp_path: Path) -> None:
    nnefc.compile(copied, "wasm32-wasi").export(tmp_path / "copied.wasm")
    text = (
        f'import {{ load }} from "{(RUNTIME / "nnefc.mjs").as_uri()}";'
        f'const model = await load("{tmp_path / "copied.wasm"}");'
        'model.run({x: ["", "é"]}); const {y, equal} = model.run({x: ["日本", "日本"]});'
        "console.log(JSON.stringify([y, [...equal], y.shape]))"
    )
    done = subprocess.run(["node", "--input-type=module", "--eval", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == '[["日本","日本"],[1,1],[2]]'
