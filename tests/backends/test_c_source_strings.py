"""C source of networks with strings: pointers to bytes that a zero byte ends, in memory of the caller's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from c_programs import COMPILERS, STRICT, WARNINGS, CNetwork, compiled, written
from onnx import TensorProto, helper

import nnefc
from nnefc.support.diagnostics import CompileError

TARGET = "generic-c"
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "c-source.md"
INFO = helper.make_tensor_value_info
WORDS = ["", "Ada", "ada", "Zuse", "grün", "abcdefgh", "longer than eight bytes"]


def network(nodes: list[onnx.NodeProto], inputs: list[object], outputs: list[object], path: Path) -> Path:
    """Writes an ONNX network."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    onnx.save(
        helper.make_model(helper.make_graph(nodes, path.stem, inputs, outputs), opset_imports=opsets, ir_version=9),
        path,
    )
    return path


def text(name: str, *values: str) -> onnx.NodeProto:
    """A constant of strings."""
    return helper.make_node("Constant", [], [name], value_strings=list(values))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> CNetwork:
    """A network that compares, looks up, matches, selects and joins strings."""
    keys = {"keys_strings": ["Ada", "", "longer than eight bytes"], "values_int64s": [7, 8, 9], "default_int64": -1}
    path = network(
        [
            text("zuse", "Zuse"),
            text("marks", "!", " + longer ", ""),
            helper.make_node("Equal", ["x", "zuse"], ["is_zuse"]),
            helper.make_node("LabelEncoder", ["x"], ["number"], domain="ai.onnx.ml", **keys),
            helper.make_node("RegexFullMatch", ["x"], ["is_word"], pattern="[a-z]+"),
            helper.make_node("Compress", ["x", "is_word"], ["selected"], axis=0),
            helper.make_node("Constant", [], ["axis"], value_ints=[1]),
            helper.make_node("Unsqueeze", ["x", "axis"], ["rows"]),
            helper.make_node("StringConcat", ["rows", "marks"], ["joined"]),
        ],
        [INFO("x", TensorProto.STRING, (len(WORDS),))],
        [
            INFO("is_zuse", TensorProto.BOOL, (len(WORDS),)),
            INFO("number", TensorProto.INT64, (len(WORDS),)),
            INFO("selected", TensorProto.STRING, (None,)),
            INFO("joined", TensorProto.STRING, (len(WORDS), 3)),
        ],
        tmp_path_factory.mktemp("strings") / "words.onnx",
    )
    return written(nnefc.compile(path, TARGET), path.with_suffix(".c"))


@pytest.mark.parametrize("command", COMPILERS, ids=lambda command: Path(command[-1]).stem)
def test_strings_are_compared_looked_up_matched_selected_and_joined(command: tuple[str, ...], words: CNetwork) -> None:
    compiled([words], command, *STRICT)
    for given in (WORDS, WORDS[::-1], [""] * len(WORDS)):
        made = words.run({"x": np.array(given, object)})
        assert made["is_zuse"].tolist() == [word == "Zuse" for word in given]
        numbers = {"Ada": 7, "": 8, "longer than eight bytes": 9}
        assert made["number"].tolist() == [numbers.get(word, -1) for word in given]
        assert made["selected"].tolist() == [word for word in given if re.fullmatch("[a-z]+", word)]
        assert made["joined"].tolist() == [[word + mark for mark in ("!", " + longer ", "")] for word in given]


def test_a_run_fails_without_memory_for_the_strings_that_it_makes(words: CNetwork) -> None:
    compiled([words], COMPILERS[0], *STRICT)
    given = {"x": np.array(WORDS, object)}
    needed = sum(len((word + mark).encode()) + 1 for word in WORDS for mark in ("!", " + longer ") if word)
    for words.text_bytes, status in ((needed, 0), (needed - 1, 1), (0, 1)):
        words.run(given, status)
    words.text_bytes = 4096


def test_source_with_strings_is_c_plus_plus_too_and_for_pointers_of_32_bits(words: CNetwork, tmp_path: Path) -> None:
    options = (*WARNINGS, "-c", str(words.path), "-o", str(tmp_path / "words.o"))
    commands = [(*command, "-std=c++11", "-x", "c++", *options) for command in COMPILERS]
    commands.append((*COMPILERS[-1], "-target", "thumb-linux-musleabihf", "-mcpu=cortex_m4", "-std=c99", *options))
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_example_of_the_documentation_greets(tmp_path: Path) -> None:
    (declared,) = re.findall(r"^int greet_run.*?;", DOCUMENTATION.read_text(), re.MULTILINE | re.DOTALL)
    (call,) = re.findall(r"^static char text.*?(?=^```)", DOCUMENTATION.read_text(), re.MULTILINE | re.DOTALL)
    path = network(
        [text("hello", "Hello "), helper.make_node("StringConcat", ["hello", "name"], ["greeting"])],
        [INFO("name", TensorProto.STRING, (2,))],
        [INFO("greeting", TensorProto.STRING, (2,))],
        tmp_path / "greet.onnx",
    )
    nnefc.compile(path, TARGET).export(tmp_path / "greet.c")
    assert " ".join(declared.split()) in " ".join((tmp_path / "greet.h").read_text().split())
    main, program = tmp_path / "main.c", tmp_path / "main"
    main.write_text(f'#include <stdio.h>\n#include "greet.h"\nint main(void) {{\n{call}    return 0;\n}}\n')
    options = ["-DGREET_STATIC_ARENA", str(main), str(tmp_path / "greet.c"), "-o", str(program)]
    subprocess.run([*COMPILERS[0], *STRICT, *options], check=True)
    assert subprocess.run([str(program)], capture_output=True, check=True).stdout == b"Hello Ada, Hello Alan\n"


def test_operators_on_strings_that_c_source_does_not_have_are_refused(tmp_path: Path) -> None:
    path = network(
        [helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER")],
        [INFO("x", TensorProto.STRING, (2,))],
        [INFO("y", TensorProto.STRING, (2,))],
        tmp_path / "upper.onnx",
    )
    with pytest.raises(CompileError, match="no form of the runtime's function nnefc_text_change_case"):
        nnefc.compile(path, TARGET)
    with pytest.raises(CompileError, match=r"no heap, which strings need\n.*--emit c -t cortex-m4"):
        nnefc.compile(path, "cortex-m4")
