"""Runs without elements: a batch of 0 gives results of 0 rows, and sums over it are 0, as in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc

RNG = np.random.default_rng(11)
INPUTS: Mapping[str, tuple[Any, ...]] = {
    "x": ("batch", 3),
    "b": ("batch", 3),
    "image": ("batch", 4, 8, 8),
    "words": ("batch", 5, 8),
    "ids": ("batch", 2),
    "chosen": ("batch", 3),
}
TYPES = {"ids": TensorProto.INT64, "chosen": TensorProto.BOOL}


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


CONSTANTS: Mapping[str, Any] = {
    "row": np.abs(real(3)),
    "w": real(3, 5),
    "w8": real(8, 8),
    "table": real(7, 4),
    "k3": real(6, 4, 3, 3),
    "k1": real(16, 4, 1, 1),
    "deep": real(4, 1, 3, 3),
    "k": real(4, 6, 3, 3),
    "four": np.abs(real(4)),
    "eight": real(8),
    "zero": [0],
    "one": [1],
    "both": [0, 1],
    "two": [2],
    "flat": [-1, 16],
    "pads": [0, 0, 1, 1, 0, 0, 1, 1],
    "repeats": [2, 3],
    "scales": np.array([1, 1, 2, 2], np.float32),
    "scale": np.array(0.1, np.float32),
    "point": np.array(3, np.uint8),
    "remainder": [256],
    "axis": 0,
}
NODES: Sequence[tuple[str, str, Mapping[str, Any]]] = [
    *((name, "x", {}) for name in ("Relu", "Exp", "Erf", "Softmax", "LogSoftmax", "Gelu", "Identity", "Flatten")),
    *((name, "x", {}) for name in ("IsNaN", "Shape", "Size")),
    *((name, "x row", {}) for name in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Mean", "Less", "PRelu")),
    *((name, "x b", {}) for name in ("Add", "Min", "Sum", "Equal")),
    ("Where", "chosen x b", {}),
    *((f"Reduce{name}", "x one", {}) for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp")),
    *((f"Reduce{name}", "x zero", {}) for name in ("Sum", "Prod", "L1", "L2", "SumSquare")),
    ("ReduceSum", "x both", {"keepdims": 0}),
    ("ReduceMax", "image one", {}),
    ("ArgMax", "x", {"axis": 1}),
    ("CumSum", "x axis", {}),
    ("MatMul", "x w", {}),
    ("Gemm", "x w", {}),
    ("Gemm", "x b", {"transA": 1}),
    ("Einsum", "x b", {"equation": "ni,no->io"}),
    ("MatMul", "words w8", {}),
    ("Conv", "image k3", {"pads": [1, 1, 1, 1]}),
    ("Conv", "image k1", {}),
    ("Conv", "image deep", {"group": 4}),
    ("ConvTranspose", "image k", {}),
    ("MaxPool", "image", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("AveragePool", "image", {"kernel_shape": [3, 3]}),
    ("GlobalAveragePool", "image", {}),
    ("InstanceNormalization", "image four four", {}),
    ("BatchNormalization", "image four four four four", {}),
    ("LayerNormalization", "words eight eight", {}),
    ("LRN", "image", {"size": 3}),
    ("Transpose", "words", {"perm": [2, 0, 1]}),
    ("Reshape", "image flat", {}),
    ("Unsqueeze", "x one", {}),
    ("Concat", "x b", {"axis": 0}),
    ("Concat", "x b", {"axis": 1}),
    ("Slice", "words one two one", {}),
    ("Slice", "x one two zero", {}),
    ("Gather", "table ids", {}),
    ("GatherElements", "x ids", {"axis": 1}),
    ("Pad", "image pads", {}),
    ("Tile", "x repeats", {}),
    ("Resize", "image  scales", {"mode": "linear"}),
    ("DepthToSpace", "image", {"blocksize": 2}),
    ("QuantizeLinear", "x scale point", {}),
    ("Cast", "x", {"to": TensorProto.INT32}),
    ("NonZero", "x", {}),
    ("Trilu", "words", {}),
]


def model(chosen: Sequence[tuple[str, str, Mapping[str, Any]]]) -> onnx.ModelProto:
    """Operators, and attention; all in one network."""
    nodes = [
        helper.make_node(name, inputs.split(" "), [f"y{number}"], **attributes)
        for number, (name, inputs, attributes) in enumerate(chosen)
    ]
    nodes += [
        helper.make_node("Transpose", ["words"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["words", "t"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"]),
        helper.make_node("MatMul", ["weights", "words"], ["attended"]),
        helper.make_node("Shape", ["image"], ["rows"], end=1),
        helper.make_node("Concat", ["rows", "remainder"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["image", "sizes"], ["reshaped"]),
    ]
    outputs = [*(f"y{number}" for number in range(len(chosen))), "attended", "reshaped"]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TYPES.get(n, TensorProto.FLOAT), shape) for n, shape in INPUTS.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in CONSTANTS.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_every_operator_takes_a_batch_of_none(step: int) -> None:
    """Every second one of the table, or all; neighbours in it have the same kind of kernel."""
    chosen = NODES[::step]
    proto = model(chosen)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with nnefc.compile(proto).load(threads=1) as library:
        for batch in (0, 2, 0):
            feed = {}
            for name, shape in INPUTS.items():
                dtype = helper.tensor_dtype_to_np_dtype(TYPES.get(name, TensorProto.FLOAT))
                values = real(batch, *shape[1:]) if dtype == np.float32 else RNG.integers(0, 2, (batch, *shape[1:]))
                feed[name] = values.astype(dtype)
            results = library.run(feed)
            for info, expected in zip(session.get_outputs(), session.run(None, feed), strict=True):
                name = chosen[int(info.name[1:])][:2] if info.name[1:].isdigit() else info.name
                made = results[info.name]
                assert (made.shape, made.dtype) == (expected.shape, expected.dtype), (name, batch)
                np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4, err_msg=f"{name} {batch}")


def test_a_mean_over_a_batch_of_none_is_nan() -> None:
    nodes = [helper.make_node("ReduceMean", ["x", "zero"], ["y"], keepdims=0)]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    zero = numpy_helper.from_array(np.array([0]), "zero")
    graph = helper.make_graph(nodes, "g", [info], [onnx.ValueInfoProto(name="y")], [zero])
    with nnefc.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)).load(
        threads=1
    ) as library:
        assert np.isnan(library(np.zeros((0, 3), np.float32))).all()
        np.testing.assert_array_equal(library(np.ones((2, 3), np.float32)), np.ones(3))


def test_an_axis_without_elements_is_reduced_to_the_identity_for_every_batch() -> None:
    reductions = [f"Reduce{name}" for name in ("Max", "Min", "LogSumExp", "Prod")]
    nodes = [helper.make_node(name, ["x", "one"], [name]) for name in reductions]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 0])
    one = numpy_helper.from_array(np.array([1]), "one")
    graph = helper.make_graph(nodes, "g", [info], [onnx.ValueInfoProto(name=name) for name in reductions], [one])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with nnefc.compile(proto).load(threads=1) as library:
        for made, identity in zip(library(np.zeros((2, 0), np.float32)), (-np.inf, np.inf, -np.inf, 1), strict=True):
            np.testing.assert_array_equal(made, np.full((2, 1), identity, np.float32))


def test_what_a_user_says_of_a_batch_holds() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info], [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    library = nnefc.compile(proto, shape={"batch": "1..4"}).load(threads=1)
    with library, pytest.raises(nnefc.RunError, match='takes 1 to 4 for "batch"'):
        library(np.zeros((0, 3), np.float32))
