"""Constants that a model makes of few bytes do not become data of the library; what is made of its data does."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from relax_programs import network_of, program, target

import nnefc
from nnefc.driver.compile import compile_network

ROWS, COLUMNS = 300, 301
SIZES = np.array([ROWS, COLUMNS])
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, COLUMNS), dtype=np.float32)
POSITIONS = np.arange(ROWS * COLUMNS, dtype=np.float32)


def node(kind: str, inputs: str, output: str, **attributes: object) -> NodeProto:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def onnx_model(nodes: list[NodeProto], constants: Mapping[str, np.ndarray | float]) -> bytes:
    """Whose result `y` is of `x` and a constant `c`."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape) for name in "xy")
    values = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph([*nodes, node("Add", "x c", "y")], "g", [x], [y], values)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(made.SerializeToString())


ONE = helper.make_tensor("one", TensorProto.FLOAT, [1], [1])
FULL = node("ConstantOfShape", "sizes", "full", value=ONE)
RANGE = node("Range", "start end step", "range")
OF_RANGE = {"start": np.float32(0), "end": np.float32(POSITIONS.size), "step": np.float32(1)}
ROW, COLUMN = np.indices(X.shape)

GENERATED: dict[str, tuple[list[NodeProto], Mapping[str, np.ndarray | float], np.ndarray]] = {
    "one number": ([FULL, node("Identity", "full", "c")], {}, np.ones(1)),
    "expanded": ([node("Expand", "k sizes", "c")], {"k": np.float32(3)}, np.full(1, 3)),
    "expanded along an axis": ([node("Expand", "k sizes", "c")], {"k": POSITIONS[:COLUMNS]}, POSITIONS[:COLUMNS]),
    "tiled": ([node("Tile", "k times", "c")], {"k": POSITIONS[None, :7], "times": np.array([ROWS, 43])}, COLUMN % 7),
    "a range": ([RANGE, node("Reshape", "range sizes", "c")], OF_RANGE, POSITIONS.reshape(X.shape)),
    "a range of fractions": (
        [RANGE, node("Reshape", "range sizes", "c")],
        {"start": np.float32(0.25), "end": np.float32(POSITIONS.size / 2 + 0.25), "step": np.float32(0.5)},
        0.25 + POSITIONS.reshape(X.shape) / 2,
    ),
    "a diagonal": ([node("EyeLike", "x", "c", k=2)], {}, COLUMN == ROW + 2),
    "a triangle": ([FULL, node("Trilu", "full", "c", upper=0)], {}, COLUMN <= ROW),
    "padded": (
        [node("Pad", "k around", "c")],
        {"k": np.ones((1, 1), np.float32), "around": np.array([9, 9, ROWS - 10, COLUMNS - 10])},
        (ROW == 9) & (COLUMN == 9),
    ),
    "a mask": (
        [
            FULL,
            node("Trilu", "full", "t", upper=1),
            node("Cast", "t", "b", to=TensorProto.BOOL),
            node("Not", "b", "n"),
            node("Less", "full two", "l"),
            node("And", "n l", "m"),
            node("Where", "m low full", "c"),
        ],
        {"two": np.float32(2), "low": np.float32(-5)},
        np.where(COLUMN < ROW, -5, 1),
    ),
    "arithmetic": (
        [FULL, node("Mul", "full k", "p"), node("Sub", "p full", "s"), node("Clip", "s", "c")],
        {"k": POSITIONS[:ROWS, None]},
        ROW - 1,
    ),
}


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.sample(5)
def test_what_a_model_generates_is_not_stored(name: str) -> None:
    nodes, constants, expected = GENERATED[name]
    given = {"sizes": SIZES, **constants}
    read = {name for each in nodes for name in each.input}
    model = onnx_model(nodes, {name: value for name, value in given.items() if name in read})
    artifact = nnefc.compile(model)
    assert artifact.description.constant_bytes < 4096
    with artifact.load() as loaded:
        np.testing.assert_allclose(loaded(X), X + expected.astype(np.float32), rtol=1e-6)


def test_what_is_small_in_the_end_is_computed_while_compiling() -> None:
    nodes = [RANGE, node("Mul", "range k", "p"), node("ReduceSum", "p", "c", keepdims=0)]
    artifact = nnefc.compile(onnx_model(nodes, {**OF_RANGE, "k": np.float32(0.5)}))
    assert artifact.description.constant_bytes < 4096
    assert artifact.description.workspace_bytes < 4096


@pytest.mark.parametrize("function", ["Exp", "Sin"])
def test_functions_are_computed_while_compiling_as_far_as_that_is_small(function: str) -> None:
    """A table of positions, and one of 40 MB."""
    nodes = [RANGE, node(function, "range", "f"), node("Reshape", "f sizes", "c")]
    made = nnefc.compile(onnx_model(nodes, {**OF_RANGE, "step": np.float32(1), "sizes": SIZES}))
    assert made.description.constant_bytes >= X.nbytes


def test_weights_and_masks_of_attention_are_computed_while_compiling() -> None:
    module = program(
        """q[1, 64, 320]; x[1, 1, 64, 320] -> c, f
        a = R.full(R.shape([320, 300]), R.const(0.5, "float32"), "float32")
        c = R.matmul(q, a)
        m = R.full(R.shape([1, 1, 64, 320]), R.const(1, "float32"), "float32")
        t = R.tril(m)
        d = R.add(x, t)
        f = R.nn.softmax(d, axis=-1)"""
    )
    made = compile_network(network_of(module), target("llvm"))
    assert made.description.constant_bytes >= 4 * (64 * 320 + 100 * 300)  # equal parts are stored once


def test_what_is_made_of_stored_values_is_stored() -> None:
    values = RNG.standard_normal((100, 1, 101), dtype=np.float32)
    module = program(
        """x[100, 4, 101] -> c
        a = R.multiply(W, R.const(2.0, "float32"))
        b = R.tile(a, (1, 4, 1))
        c = R.add(x, b)""",
        W=values,
    )
    made = compile_network(network_of(module), target("llvm"))
    assert made.description.constant_bytes >= math.prod((100, 4, 101)) * 4


def nnef(tmp_path: Path) -> Path:
    text = f"""version 1.0;
graph g(x) -> (y)
{{
    x = external<scalar>(shape = [{ROWS}, {COLUMNS}]);
    c = constant(shape = [{ROWS}, {COLUMNS}], value = [2.0]);
    y = add(x, c);
}}
"""
    (tmp_path / "graph.nnef").write_text(text)
    return tmp_path


def pnnx(tmp_path: Path) -> Path:
    shape = f"({ROWS},{COLUMNS})"
    text = f"""7767517
4 3
pnnx.Input pnnx_input_0 0 1 x #x={shape}f32
torch.full full_0 0 1 c size={shape} fill_value=2.0 #c={shape}f32
torch.add add_0 2 1 x c y #x={shape}f32 #c={shape}f32 #y={shape}f32
pnnx.Output pnnx_output_0 1 0 y #y={shape}f32
"""
    path = tmp_path / "model.pnnx.param"
    path.write_text(text)
    zipfile.ZipFile(tmp_path / "model.pnnx.bin", "w").close()
    return path


@pytest.mark.parametrize("write", [nnef, pnnx])
def test_other_formats_store_none_of_it(write: Callable[[Path], Path], tmp_path: Path) -> None:
    made = nnefc.compile(write(tmp_path))
    assert made.description.constant_bytes < 4096
    with made.load() as loaded:
        np.testing.assert_array_equal(loaded(X), X + 2)


@pytest.mark.parametrize("name", ["a range of fractions", "a diagonal"])
def test_they_are_written_out_in_nnef(name: str, tmp_path: Path) -> None:
    nodes, constants, expected = GENERATED[name]
    read = {name for each in nodes for name in each.input}
    given = {name: value for name, value in {"sizes": SIZES, **constants}.items() if name in read}
    (tmp_path / "model.onnx").write_bytes(onnx_model(nodes, given))
    nnefc.convert(tmp_path / "model.onnx", tmp_path / "model")
    with nnefc.compile(tmp_path / "model").load() as loaded:
        np.testing.assert_allclose(loaded(X), X + expected.astype(np.float32), rtol=1e-6)
