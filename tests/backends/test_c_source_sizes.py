"""C source of networks with outputs of data-dependent sizes: memory for the maxima, and the sizes of each run."""

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


def network(nodes: list[onnx.NodeProto], inputs: list[object], outputs: list[object], path: Path) -> Path:
    """Writes an ONNX network."""
    graph = helper.make_graph(nodes, path.stem, inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> CNetwork:
    """A network with two outputs of data-dependent sizes, and one whose size is known."""
    path = network(
        [
            helper.make_node("NonZero", ["x"], ["positions"]),
            helper.make_node("Compress", ["x", "keep"], ["kept"], axis=0),
            helper.make_node("Neg", ["x"], ["negated"]),
        ],
        [INFO("x", TensorProto.FLOAT, (3, 4)), INFO("keep", TensorProto.BOOL, (3,))],
        [
            INFO("positions", TensorProto.INT64, (2, None)),
            INFO("negated", TensorProto.FLOAT, (3, 4)),
            INFO("kept", TensorProto.FLOAT, (None, 4)),
        ],
        tmp_path_factory.mktemp("sizes") / "found.onnx",
    )
    return written(nnefc.compile(path, TARGET), path.with_suffix(".c"))


@pytest.mark.parametrize("command", COMPILERS, ids=lambda command: Path(command[-1]).stem)
def test_a_run_writes_the_sizes_that_depend_on_the_data(command: tuple[str, ...], found: CNetwork) -> None:
    compiled([found], command, *STRICT)
    random = np.random.default_rng(0)
    for share in (0.0, 0.4, 1.0):
        x = np.where(random.random((3, 4)) < share, random.normal(size=(3, 4)), 0).astype(np.float32)
        keep = random.random(3) < share
        made = found.run({"x": x, "keep": keep})
        np.testing.assert_array_equal(made["positions"], np.nonzero(x))
        np.testing.assert_array_equal(made["kept"], x[keep])
        np.testing.assert_array_equal(made["negated"], -x)


def test_trip_counts_may_be_chosen_by_a_condition(tmp_path: Path) -> None:
    """A loop over the elements behind the first `k`, if there are any: its bound is an expression with `?`."""
    path = network(
        [helper.make_node("TopK", ["x", "k"], ["values", "indices"])],
        [INFO("x", TensorProto.FLOAT, (3, 9)), INFO("k", TensorProto.INT64, (1,))],
        [INFO("values", TensorProto.FLOAT, (3, None)), INFO("indices", TensorProto.INT64, (3, None))],
        tmp_path / "top.onnx",
    )
    made = written(nnefc.compile(path, TARGET), tmp_path / "top.c")
    compiled([made], COMPILERS[0], *STRICT)
    x = np.random.default_rng(0).normal(size=(3, 9)).astype(np.float32)
    for k in (0, 2, 9):
        found = made.run({"x": x, "k": np.array([k])})
        np.testing.assert_array_equal(found["indices"], np.argsort(-x, 1)[:, :k])
        np.testing.assert_array_equal(found["values"], -np.sort(-x, 1)[:, :k])


def test_source_with_such_sizes_is_c_plus_plus_too(found: CNetwork, tmp_path: Path) -> None:
    options = ("-std=c++11", *WARNINGS, "-x", "c++", "-c", str(found.path), "-o", str(tmp_path / "found.o"))
    for command in COMPILERS:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_example_of_the_documentation_prints_the_boxes_that_are_left(tmp_path: Path) -> None:
    text = DOCUMENTATION.read_text()
    (call,) = re.findall(r"^static int64_t selected.*?(?=^```)", text, re.MULTILINE | re.DOTALL)
    (declared,) = re.findall(r"^#define DETECT_OUTPUT_0_ITEMS.*?(?=^```)", text, re.MULTILINE | re.DOTALL)
    constants = {
        name: helper.make_tensor(name, kind, [1], [value])
        for name, kind, value in (
            ("limit", TensorProto.INT64, 5),
            ("iou", TensorProto.FLOAT, 0.5),
            ("score", TensorProto.FLOAT, 0.3),
        )
    }
    path = network(
        [
            *(helper.make_node("Constant", [], [name], value=value) for name, value in constants.items()),
            helper.make_node("NonMaxSuppression", ["boxes", "scores", *constants], ["selected"]),
        ],
        [INFO("boxes", TensorProto.FLOAT, (1, 20, 4)), INFO("scores", TensorProto.FLOAT, (1, 1, 20))],
        [INFO("selected", TensorProto.INT64, (None, 3))],
        tmp_path / "detect.onnx",
    )
    nnefc.compile(path, TARGET).export(tmp_path / "detect.c")
    header = " ".join((tmp_path / "detect.h").read_text().split())
    for line in declared.splitlines():
        assert " ".join(line.split()) in header
    corner = np.arange(20)[:, None] // 8 * np.float32(2)  # three groups of boxes, each in one location
    boxes = np.concatenate([corner, corner, corner + 1, corner + 1], 1)
    scores = np.linspace(0.1, 0.9, 20)
    main = tmp_path / "main.c"
    main.write_text(
        '#include <stdio.h>\n#include "detect.h"\n'
        f"static const float boxes[] = {{{', '.join(f'{value}f' for value in boxes.reshape(-1))}}};\n"
        f"static const float scores[] = {{{', '.join(f'{value:.4f}f' for value in scores)}}};\n"
        f"int main(void) {{\n{call}    return 0;\n}}\n"
    )
    program = tmp_path / "main"
    words = [*COMPILERS[0], *STRICT, "-DDETECT_STATIC_ARENA", str(main), str(tmp_path / "detect.c"), "-o", str(program)]
    subprocess.run([*words, "-lm"], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["19", "15", "7"]  # the best of each group above the threshold


def test_sizes_without_a_limit_need_a_range(tmp_path: Path) -> None:
    path = network(
        [
            helper.make_node("Constant", [], ["zero"], value=helper.make_tensor("z", TensorProto.INT64, [], [0])),
            helper.make_node("Constant", [], ["one"], value=helper.make_tensor("o", TensorProto.INT64, [], [1])),
            helper.make_node("Range", ["zero", "n", "one"], ["numbers"]),
        ],
        [INFO("n", TensorProto.INT64, ())],
        [INFO("numbers", TensorProto.INT64, (None,))],
        tmp_path / "count.onnx",
    )
    with pytest.raises(CompileError, match=r"need: range has no limit\n.*--shape range=0\.\.1000"):
        nnefc.compile(path, TARGET)
    made = written(nnefc.compile(path, TARGET, shape={"range": "0..6"}), tmp_path / "count.c")
    compiled([made], COMPILERS[0], *STRICT)
    for count in (0, 4, 6):
        np.testing.assert_array_equal(made.run({"n": np.array(count)})["numbers"], np.arange(count))
    for count in (7, 1 << 40):
        made.run({"n": np.array(count)}, status=1)


def test_random_numbers_are_those_of_libraries(tmp_path: Path) -> None:
    path = network(
        [
            helper.make_node("RandomNormal", [], ["drawn"], shape=[2, 50], seed=4.0),
            helper.make_node("Add", ["x", "drawn"], ["noisy"]),
            helper.make_node("Bernoulli", ["x"], ["thrown"]),
        ],
        [INFO("x", TensorProto.FLOAT, (2, 50))],
        [INFO("noisy", TensorProto.FLOAT, (2, 50)), INFO("thrown", TensorProto.FLOAT, (2, 50))],
        tmp_path / "noise.onnx",
    )
    made = written(nnefc.compile(path, TARGET), tmp_path / "noise.c")
    compiled([made], COMPILERS[0], *STRICT)
    x = {"x": np.full((2, 50), 0.5, np.float32)}
    with nnefc.compile(path).load() as library:
        wanted = [library.run(x) for _ in range(2)]
    for _ in range(2):  # a reset begins with the first numbers again
        made.reset()
        for each in wanted:
            for name, value in made.run(x).items():
                np.testing.assert_allclose(value, each[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert np.abs(wanted[0]["noisy"] - wanted[1]["noisy"]).max() > 0.1
