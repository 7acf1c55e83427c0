"""`nnefc inspect` of models that leave dimensions open, in every format: what they are, and how to give them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from nnefc.cli import main
from nnefc.cli.options import read_shapes
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.ir.outline import DynamicTensor, shape_option
from nnefc.support.diagnostics import CompileError

NETWORKS = os.environ.get("NNEFC_NETWORKS")

PNNX = """7767517
3 2
pnnx.Input              in0      0 1 0 #0=(?,4)f32
nn.Linear fc 1 1 0 1 bias=True in_features=4 out_features=3 @bias=(3)f32 @weight=(3,4)f32
pnnx.Output             out      1 0 1 #1=(?,3)f32
"""

NNEF = """version 1.0;
graph g(x, z) -> (y)
{
    x = external(shape = [0, 3, 0, 0]);
    z = external<integer>(shape = [2, 0]);
    w = variable(shape = [4, 3, 3, 3], label = 'w');
    y = relu(relu(conv(x, w)));
}
"""


def inspect(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["inspect", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def onnx_file(
    path: Path, *, domain: str = "", shape: tuple[int | str | None, ...] = ("batch", 3, None), weights: bool = False
) -> Path:
    """A product of 3 with 5 features after an operator Relu of `domain`; without `weights` their file is not there."""
    weight = numpy_helper.from_array(np.ones((3, 5), np.float32), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["r"], domain=domain),
            helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["t", "w"], ["y"]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", None, 5])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, producer_name="a test", opset_imports=opsets, ir_version=10)
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location="gone.bin")
    if not weights:
        (path.parent / "gone.bin").unlink()
    return path


def test_an_onnx_model_is_shown_by_its_own_operators_with_its_names_of_dimensions(tmp_path: Path) -> None:
    text = inspect(onnx_file(tmp_path / "m.onnx"))
    assert "input   x  float32  [batch, 3, ?]" in text.splitlines()
    assert "output  y  float32  [batch, ?, 5]" in text.splitlines()
    assert [line.split() for line in text.splitlines() if line[:1] == "1"] == [
        ["1", n] for n in ("MatMul", "Relu", "Transpose")
    ]
    assert "operator sets ai.onnx 17, a test" in text
    assert "parameters  15 (60 bytes)" in text
    assert "\n  --shape x=1,3,128\n" in text
    assert "\n  --shape x=1..64,3,1..512\n" in text


def test_what_cannot_be_compiled_is_marked_and_reported_at_the_end(tmp_path: Path) -> None:
    text = inspect(onnx_file(tmp_path / "m.onnx", domain="my.own", shape=(1, 3, 4), weights=True))
    assert "1  my.own.Relu  not supported" in text
    assert "It cannot be compiled as it is:\nerror: " in text
    assert "my.own" in text.partition("cannot be compiled")[2]


def test_a_pnnx_network_is_shown_by_its_own_operators_without_its_weights(tmp_path: Path) -> None:
    (tmp_path / "m.pnnx.param").write_text(PNNX)
    text = inspect(tmp_path / "m.pnnx.param")
    assert "input   in0            float32  [?, 4]" in text.splitlines()
    assert "1  nn.Linear" in text.splitlines()
    assert "parameters  15 (60 bytes)" in text
    assert "  --shape in0=1..64,4\n" in text


def test_an_nnef_document_is_shown_by_its_text(tmp_path: Path) -> None:
    (tmp_path / "m.nnef").write_text(NNEF)
    text = inspect(tmp_path / "m.nnef")
    assert "input   x  float32  [x_0, 3, x_2, x_3]" in text.splitlines()
    assert "input   z  int32    [2, z_1]" in text.splitlines()
    assert [line for line in text.splitlines() if line[:1] in ("1", "2")] == ["2  relu", "1  conv"]
    assert text.endswith("  --shape x=1..64,3,32..1280:32,32..1280:32 --shape z=2,1..512\n")


def test_the_line_that_is_printed_gives_all_that_is_open(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "m.onnx", weights=True)
    line = next(line for line in inspect(path).splitlines() if "--shape" in line)
    values = tuple(word for word in shlex.split(line) if word != "--shape")
    assert load_network(path).dynamic_dimensions
    assert not load_network(path, ReadOptions(shape=read_shapes(values))).dynamic_dimensions


@pytest.mark.parametrize(
    ("shapes", "option"),
    [
        ([("x", ("batch", 3, "height", "width"))], "--shape batch=1,height=224,width=224"),
        ([("x", ("N", "T", 80)), ("y", ("N",))], "--shape N=1,T=128"),
        ([("x", ("N", None, 80)), ("y", ("N", "T"))], "--shape T=128 --shape x=1,128,80"),
        ([("x", ("x", 4))], "--shape x=1,4"),  # an input goes before a dimension of its name
        ([("x", None)], "--shape x=1,3,224,224"),
        ([("waveforms", ("N", "T"))], "--shape N=1,T=16000"),
        ([("h", (2, None, 64))], "--shape h=2,1,64"),
        ([("x", (None, None, None, 3))], "--shape x=1,224,224,3"),
        ([("a b", (None,))], "--shape 'a b=1'"),
        ([("x", ("floor(Max(1, s)/2)", "b"))], "--shape b=128 --shape 'floor(Max(1, s)/2)=1'"),
        ([("x", (2, 3)), ("y", ())], ""),
    ],
)
def test_dynamic_sizes_get_numbers_that_the_option_reads(shapes: list[tuple[str, tuple]], option: str) -> None:
    assert shape_option(DynamicTensor(name, "float32", shape) for name, shape in shapes) == option
    values = tuple(word for word in shlex.split(option) if word != "--shape")
    assert " ".join(f"--shape {shlex.quote(value)}" for value in values) == option
    assert all(size > 0 for sizes in read_shapes(values).values() for size in sizes)


def image_network(folder: Path, sizes: list[int | str | None], *nodes: onnx.NodeProto) -> Path:
    """A model of an image `x` of one channel, `[n, 1, …]`, whose result is `y`."""
    numbers = {"c0": [0, 1, -1], "side": [12, 12], "two": [2, 2], "axes": [0, 1], "axis2": [2], "flat": [1, 1, -1]}
    constants = [numpy_helper.from_array(np.array(value), name) for name, value in numbers.items()]
    reals = {"w": np.ones((1, 1, 2, 2), np.float32), "table": np.ones((12, 12), np.float32)}
    constants += [numpy_helper.from_array(value, name) for name, value in reals.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, *sizes])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def node(op_type: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], **attributes)


HALVED = node("MaxPool", "x", "half", kernel_shape=[2, 2], strides=[2, 2])
REFINED = {
    "a height that ends as 1": [
        node("MaxPool", "x", "low", kernel_shape=[16, 2], strides=[16, 2]),
        node("MaxPool", "low", "flat_image", kernel_shape=[3, 1], strides=[3, 1]),
        node("Squeeze", "flat_image axis2", "y"),
    ],
    "multiples": [
        HALVED,
        node("ConvTranspose", "half w", "whole", strides=[2, 2]),
        node("Concat", "x whole", "y", axis=1),
    ],
    "a cropped table": [
        HALVED,
        node("Shape", "half", "s", start=2),
        node("Sub", "side s", "left_over"),
        node("Div", "left_over two", "begin"),
        node("Add", "begin s", "end"),
        node("Slice", "table begin end axes", "middle"),
        node("Reshape", "middle flat", "positions"),
        node("Reshape", "half c0", "row"),
        node("Add", "row positions", "y"),
    ],
}


@pytest.mark.filterwarnings("ignore::nnefc.ModelWarning")
@pytest.mark.parametrize("sizes", [["h", "w"], [None, None]], ids=["named", "unnamed"])
@pytest.mark.parametrize("kind", REFINED)
@pytest.mark.sample(2)
def test_both_lines_that_are_printed_compile(kind: str, sizes: list[int | str | None], tmp_path: Path) -> None:
    """Also where the operators allow some sizes only, and none of those that are likely."""
    path = image_network(tmp_path, sizes, *REFINED[kind])
    assert load_as_printed(path) == 2


def load_as_printed(path: Path) -> int:
    """Loads a model with the sizes, and the ranges, of each line that is printed for it; how many lines there are."""
    lines = [line for line in inspect(path).splitlines() if line.startswith("  --shape")]
    for line in lines:
        words = [word for word in shlex.split(line) if word != "--shape"]
        load_network(path, ReadOptions(shape=read_shapes(tuple(words))))
    return len(lines)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::nnefc.ModelWarning")
@pytest.mark.skipif(NETWORKS is None, reason="NNEFC_NETWORKS names no folder of networks")
def test_lines_that_are_printed_for_networks_of_others_compile() -> None:
    """For all `.onnx` files in the folder that the environment variable NNEFC_NETWORKS names."""
    failed = {}
    for path in sorted(Path(str(NETWORKS)).rglob("*.onnx")):
        try:
            load_as_printed(path)
        except CompileError as error:
            failed[path.name] = str(error)
    assert failed == {}
