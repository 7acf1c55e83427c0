"""Models that are not as they must be, and shapes that do not fit them, in every format: the whole messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cli_mistakes import message
from onnx import NodeProto, TensorProto, helper, numpy_helper

import nnefc

FLOAT, INTEGER, COMPLEX = TensorProto.FLOAT, TensorProto.INT64, TensorProto.COMPLEX64
FILTER = np.ones((8, 3, 3, 3), np.float32)


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=f"n{output}", **attributes)


def refused(
    nodes: list[NodeProto],
    shape: list[Any] | None,
    *options: str,
    dtype: int = FLOAT,
    opset: int = 17,
    ir: int = 8,
    **values: np.ndarray,
) -> str:
    """What compiling these nodes says; x is the input, `values` are initializers."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, None)],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    onnx.save(proto, "m.onnx")
    return message("compile", "m.onnx", "-o", "m.so", *options)


OPEN = ["batch", 3, "h", "w"]
SHAPES = [
    (["x=1,3,8"], "error: the input 'x' is declared with the rank 4, [1, 3, 8] has the rank 3\n"
     "hint: the model declares it as [batch, 3, h, w]"),
    (["x=1,4,8,8"], "error: the input 'x' is declared with 3 at axis 1, [1, 4, 8, 8] has 4\n"
     "hint: the model declares it as [batch, 3, h, w]"),
    (["batch=1,2"], "error: the dimension 'batch' needs one size, 2 are given\n"
     "hint: such as --shape batch=1; whole shapes are for inputs: x"),
    (["batc=1,h=8,w=8"], "error: the model has no input and no dimension 'batc'\nhint: did you mean 'batch'?"),
    (["batch=2", "x=1,3,8,8"], "error: the dimension 'batch' is 2 by what is given for it, but 1 by axis 0 of the "
     "input 'x'\nhint: the model declares it as [batch, 3, h, w]"),
    (["batch=1,h=2,w=2"], "error: node 'ny' (Conv): the window covers 3 positions, but "
     "dimension 0 of [2, 2] has 2 with its padding (0, 0)"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "text"), SHAPES, ids=[" ".join(given) or "none" for given, _ in SHAPES])
def test_shapes_of_an_onnx_model(given: list[str], text: str) -> None:
    options = [word for shape in given for word in ("--shape", shape)]
    assert refused([node("Conv", "x f")], OPEN, *options, f=FILTER) == text


def test_onnx_models() -> None:
    assert refused([node("Conv", "x f")], [1, 8, 8, 3], f=FILTER) == (
        "error: node 'ny' (Conv): the filter [8, 3, 3, 3] in 1 group does not fit the input [1, 8, 8, 3]\n"
        "hint: it would fit with the channels before rows and columns: [1, 3, 8, 8]"
    )
    assert refused([node("MatMul", "x f")], [1, 3], f=np.ones((8, 4), np.float32)) == (
        "error: node 'ny' (MatMul): the matrices [1, 3] and [8, 4] do not fit each other"
    )
    assert refused([node("Add", "x f")], [1, 3], f=np.ones(3, np.int64)) == (
        "error: node 'ny' (Add): 'x' is tensor(float) and 'f' is tensor(int64), but both must be of one type (T)"
    )
    assert refused([node("Softmax", "x", axes=1)], [1, 3]) == (
        "error: node 'ny' (Softmax): the operator has no attribute 'axes' in version 13\nhint: did you mean 'axis'?"
    )
    assert refused([node("Relu", "z")], [1, 3]) == (
        "error: node 'ny' (Relu): no node computes its input 'z'\n"
        "hint: the file breaks a rule of the format: report it to what wrote it, or mend it with the package onnx, "
        "whose onnx.checker.check_model(path) tells more"
    )
    assert refused([node("Reshape", "x s")], [1, 3], s=np.array([2, 2])) == (
        "error: node 'ny' (Reshape): a tensor of the shape [1, 3] cannot take the shape [2, 2]"
    )
    assert refused([node("Gather", "x s")], [3, 2], s=np.array([5])) == (
        "error: node 'ny' (Gather): the index 5 is out of the range [-3,2]"
    )
    assert refused([node("Identity", "x")], [1], dtype=COMPLEX) == (
        "error: the input 'x' is of type complex64, which a library cannot take\n"
        "hint: give its value to the compiler, --value x=…, or leave what reads it out of the model"
    )


def test_versions_of_onnx_models() -> None:
    newest = onnx.defs.onnx_opset_version()
    assert refused([node("Relu", "x")], [1], opset=99) == (
        "error: node 'ny' (Relu): the model imports version 99 of 'ai.onnx', the newest that the installed package "
        f"onnx knows is {newest}\nhint: convert the model to an older operator set, or install a newer onnx"
    )
    assert refused([node("Relu", "x")], [1], ir=99) == (
        "error: m.onnx is in version 99 of the format, the newest that the installed package onnx knows is "
        f"{onnx.IR_VERSION}\nhint: install a newer one: pip install -U onnx"
    )


def test_options_of_onnx_models() -> None:
    relu = [node("Relu", "x")]
    assert refused(relu, [1], "--output-tensor", "logits") == (
        "error: the model has no tensor 'logits'\nhint: its outputs are y"
    )
    assert refused(relu, [1], "--graph", "g") == (
        "error: --graph (in Python graph=) is not an option for ONNX models\n"
        "hint: they have --shape, --value, --output-tensor, --entry, --overridable"
    )
    assert refused(relu, [1], "--entry", "training:0") == (
        "error: there is no entry 'training:0': the model has no trainings\n"
        "hint: without an entry, the model's graph is compiled"
    )
    assert refused(relu, [1], "--value", "q=1") == "error: the model has no input 'q'\nhint: there are: x"


def test_a_file_of_weights_that_is_not_there(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node("Add", "x w")],
        "net",
        [helper.make_tensor_value_info("x", FLOAT, [4])],
        [helper.make_tensor_value_info("y", FLOAT, [4])],
        [numpy_helper.from_array(np.ones(4, np.float32), "w")],
    )
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(proto, "m.onnx", save_as_external_data=True, size_threshold=0, location="m.onnx.data")
    Path("m.onnx.data").unlink()
    assert message("compile", "m.onnx", "-o", "m.so") == (
        "error: the file m.onnx.data with the data of the initializer 'w' cannot be read: No such file or directory\n"
        f"hint: it belongs to the model: copy it to {tmp_path / 'm.onnx.data'}"
    )


NNEF = "version 1.0;\ngraph g(x) -> (y)\n{\n    x = external(shape = [1, 3, 8, 8]);\n"
DOCUMENTS = [
    (NNEF + "    y = rellu(x);\n}\n", "m.nnef:5:9: error: the operation 'rellu' is not known\n"
     "5 |     y = rellu(x);\n  |         ^\nhint: Did you mean 'relu'?"),
    (NNEF + "    y = relu(z);\n}\n", "m.nnef:5:14: error: 'z' is not defined here\n"
     "5 |     y = relu(z);\n  |              ^\nhint: An identifier is assigned before it is used."),
    (NNEF + "    y = relu(x)\n}\n", "m.nnef:5:16: error: expected ';' after the statement\n5 |     y = relu(x)\n"
     "  |                ^\nhint: In the final dialect every statement ends with ';', and so does the version."),
    (NNEF + "    y = relu(x, 2);\n}\n", "m.nnef:5:17: error: 'relu' has 1 parameter, more arguments are given\n"
     "5 |     y = relu(x, 2);\n  |                 ^"),
    (NNEF + "    z = relu(x);\n}\n", "m.nnef:2:16: error: the output 'y' of the graph is not assigned\n"
     "2 | graph g(x) -> (y)\n  |                ^"),
    (NNEF + "    y = reshape(x, shape = [5, 5]);\n}\n", "m.nnef:5:28: error: 'reshape': a tensor of the shape "
     "[1, 3, 8, 8] cannot take the shape [5, 5]\n"
     "5 |     y = reshape(x, shape = [5, 5]);\n  |                            ^\n"
     "m.nnef:4:9: note: 'input' has the shape [1, 3, 8, 8]\n4 |     x = external(shape = [1, 3, 8, 8]);\n"
     "  |         ^"),
    (NNEF + "    w = variable(shape = [4, 3], label = 'fc/w');\n    y = relu(x);\n}\n", "m.nnef:5:9: error: there is "
     "no file 'fc/w.dat' for the variable labelled 'fc/w'\n5 |     w = variable(shape = [4, 3], label = 'fc/w');\n"
     "  |         ^\nhint: for a network with random weights give a seed: --random-weights SEED"),
    ("hello world\n", "m.nnef:1:1: error: unexpected identifier 'hello', expected 'version'\n1 | hello world\n  | ^"),
    (NNEF + "    y = relu(x);\n", "m.nnef:6:1: error: the document ends here\nhint: Expected '(', '[', '}' or an "
     "identifier."),
]  # fmt: skip


@pytest.mark.parametrize(("document", "text"), DOCUMENTS, ids=[t.splitlines()[0] for _, t in DOCUMENTS])
def test_nnef_documents(document: str, text: str) -> None:
    Path("m.nnef").write_text(document)
    assert message("compile", "m.nnef", "-o", "m.so") == text


def param(operator: str, input: str = "pnnx.Input in0 0 1 0 #0=(1,4)f32", counts: str = "3 2") -> str:
    return f"7767517\n{counts}\n{input}\n{operator}\npnnx.Output out 1 0 1\n"


DYNAMIC_INPUT = "pnnx.Input in0 0 1 0 #0=(?,4)f32"
RELU = "nn.ReLU a 1 1 0 1"
LINEAR = "nn.Linear fc 1 1 0 1 bias=False in_features=4 out_features=3 @weight=(3,4)f32"
NETWORKS = [
    (param("nn.Linearr fc 1 1 0 1"), [], "m.pnnx.param:4:1: error: there is no operator 'nn.Linearr'\n"
     "4 | nn.Linearr fc 1 1 0 1\n  | ^\nhint: did you mean 'nn.Linear'?"),
    (param("nn.ReLU a 1 1 7 1"), [], "m.pnnx.param:4:1: error: no operator before this one produces the operand '7'\n"
     "4 | nn.ReLU a 1 1 7 1\n  | ^"),
    (param(RELU, counts="9 2"), [], "m.pnnx.param:2:1: error: the file has 3 operators, "
     "but its second line says 9\n2 | 9 2\n  | ^"),
    (param(LINEAR), [], "m.pnnx.param:4:1: error: there is no file m.pnnx.bin with the tensor 'fc.weight'\n"
     f"4 | {LINEAR}\n  | ^\n"
     "hint: the binary file lies next to the param file, under the same name but for its end"),
    (param(RELU, DYNAMIC_INPUT), ["in=1,4"], "error: the network has no input 'in'\nhint: did you mean 'in0'?"),
    (param(RELU, DYNAMIC_INPUT), ["in0=4"],
     "m.pnnx.param:3:1: error: the input 'in0' has 2 dimensions, the shape given 1\n"
     f"3 | {DYNAMIC_INPUT}\n  | ^\nhint: the file gives it (?,4)"),
    (param(RELU, "pnnx.Input in0 0 1 0"), [], "m.pnnx.param:3:1: error: the type of the input 'in0' is missing or not "
     "supported\n3 | pnnx.Input in0 0 1 0\n  | ^\n"
     "hint: give pnnx the inputs' shapes and types: pnnx model.pt 'inputshape=[1,3,224,224]f32'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shapes", "expected"), NETWORKS, ids=[t.splitlines()[0] for _, _, t in NETWORKS])
def test_pnnx_networks(text: str, shapes: list[str], expected: str) -> None:
    Path("m.pnnx.param").write_text(text)
    options = [word for shape in shapes for word in ("--shape", shape)]
    assert message("compile", "m.pnnx.param", "-o", "m.so", *options) == expected


def test_python_says_what_the_command_line_says() -> None:
    Path("m.nnef").write_text(NNEF + "    y = relu(x);\n}\n")
    with pytest.raises(nnefc.CompileError) as caught:
        nnefc.compile("m.nneff")
    assert str(caught.value) == "error: there is no file or folder 'm.nneff'\nhint: did you mean 'm.nnef'?"
    with pytest.raises(nnefc.CompileError) as caught:
        nnefc.compile("m.nnef", overridable=True)
    assert caught.value.message == "--overridable (in Python overridable=) is not an option for NNEF models"
