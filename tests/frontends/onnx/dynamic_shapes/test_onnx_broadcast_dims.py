"""Dynamic sizes of two names that broadcast: equal ones, or one of them is 1, as only a run tells."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc

RNG = np.random.default_rng(8)

Sizes = tuple[int, ...]


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[Any]], outputs: str = "y", **constants: Any
) -> onnx.ModelProto:
    """A model with inputs of float32, but for those whose names begin with `i`, int64, and with `c`, bool."""
    types = {"i": TensorProto.INT64, "c": TensorProto.BOOL}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, types.get(n[0], TensorProto.FLOAT), shape) for n, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def node(op_type: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], **attributes)


def fed(made: onnx.ModelProto, shapes: Sequence[Sizes]) -> dict[str, np.ndarray]:
    """Values of the inputs in these shapes."""
    feed = {}
    for info, shape in zip(made.graph.input, shapes, strict=True):
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        values = RNG.standard_normal(shape) if dtype == np.float32 else RNG.integers(1, 3, shape)
        feed[info.name] = values.astype(dtype)
    return feed


def check(made: onnx.ModelProto, shapes: Sequence[Sequence[Sizes]], refused: Sequence[Sequence[Sizes]] = ()) -> None:
    """Compares with onnxruntime for inputs of these shapes; it refuses the others as well."""
    check_compiled(nnefc.compile(made), made, shapes, refused)


def check_compiled(
    artifact: nnefc.Artifact,
    made: onnx.ModelProto,
    shapes: Sequence[Sequence[Sizes]],
    refused: Sequence[Sequence[Sizes]],
) -> None:
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    with artifact.load(threads=1) as library:
        for each in shapes:
            feed = fed(made, each)
            for found, expected in zip(library.run(feed).values(), session.run(None, feed), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(each))
        for each in refused:
            with pytest.raises(nnefc.RunError, match=r"must be equal, or"):
                library.run(fed(made, each))


ROWS: Sequence[Sequence[Sizes]] = [((n, 3), (k, 3)) for n, k in ((4, 1), (1, 4), (5, 5), (1, 1))]
APART: Sequence[Sequence[Sizes]] = [((4, 3), (3, 3))]


@pytest.mark.parametrize(
    ("nodes", "inputs", "shapes", "refused"),
    [
        ([node("Sub", "x b")], {"x": ["n", 3], "b": ["k", 3]}, ROWS, APART),
        pytest.param([node("Less", "x b")], {"x": ["n", 3], "b": ["k", 3]}, ROWS, APART, marks=pytest.mark.slow),
        ([node("Mod", "i ij")], {"i": ["n", 3], "ij": ["k", 3]}, ROWS, APART),
        ([node("Shape", "b", "s"), node("Expand", "x s")], {"x": ["n", 3], "b": ["k", 3]}, ROWS, APART),
        ([node("PRelu", "x b")], {"x": ["n", 3], "b": ["k", 3]}, [r for r in ROWS if r[1][0] in (1, r[0][0])], APART),
        (
            [node("Max", "x b d")],
            {"x": ["n"], "b": ["k"], "d": ["j"]},
            [((9,), (1,), (1,)), ((1,), (9,), (1,)), ((1,), (1,), (9,)), ((9,), (9,), (9,)), ((1,), (9,), (9,))],
            [((9,), (1,), (8,)), ((1,), (9,), (8,))],
        ),
        (
            [node("Where", "c x b")],
            {"c": ["n", "m"], "x": ["k", "l"], "b": ["j", 1]},
            [((4, 5), (1, 5), (1, 1)), ((1, 5), (4, 1), (4, 1)), ((1, 1), (1, 5), (4, 1)), ((4, 5), (4, 5), (4, 1))],
            [((3, 1), (4, 5), (1, 1))],
        ),
        (
            [node("MatMul", "x b")],
            {"x": ["n", 2, 3], "b": ["k", 3, 5]},
            [((n, 2, 3), (k, 3, 5)) for n, k in ((4, 1), (1, 4), (5, 5))],
            [((4, 2, 3), (3, 3, 5))],
        ),
        (
            [node("Gemm", "x w b")],
            {"x": ["n", 3], "w": [3, "m"], "b": ["k", "l"]},
            [((4, 3), (3, 5), b) for b in ((1, 1), (4, 1), (1, 5), (4, 5))],
            [((4, 3), (3, 5), (3, 1)), ((1, 3), (3, 5), (4, 5))],
        ),
        pytest.param(
            [node("Einsum", "x b", equation="...ij,...jk->...ik")],
            {"x": ["n", 2, 3], "b": ["k", 3, 5]},
            [((n, 2, 3), (k, 3, 5)) for n, k in ((4, 1), (1, 4), (5, 5))],
            [],
            marks=pytest.mark.slow,
        ),
        (  # what was broadcast is broadcast to its operands again
            [node("Add", "x b", "s"), node("Mul", "s b", "t"), node("Sub", "x t", "u"), node("Relu", "u")],
            {"x": ["n", 3], "b": ["k", 3]},
            ROWS,
            APART,
        ),
        (  # sizes that follow from one of another input
            [node("MaxPool", "x", "p", kernel_shape=[2], strides=[2]), node("Add", "p b")],
            {"x": [1, 2, "h"], "b": [1, 2, "k"]},
            [((1, 2, 9), (1, 2, 4)), ((1, 2, 9), (1, 2, 1)), ((1, 2, 3), (1, 2, 5))],
            [((1, 2, 9), (1, 2, 5))],
        ),
    ],
)
@pytest.mark.sample(4)
def test_sizes_of_two_names_broadcast(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[Any]],
    shapes: Sequence[Sequence[Sizes]],
    refused: Sequence[Sequence[Sizes]],
) -> None:
    check(model(nodes, inputs), shapes, refused)


ATTENTION = model(
    [
        node("Gather", "table ids", "e"),
        node("MatMul", "e w", "q"),
        node("Transpose", "e", "t", perm=[0, 2, 1]),
        node("MatMul", "q t", "scores"),
        node("Cast", "imask", "m", to=TensorProto.FLOAT),
        node("Unsqueeze", "m one", "u"),
        node("Add", "scores u", "masked"),
        node("Softmax", "masked", "p", axis=-1),
        node("MatMul", "p e", "o"),
        node("Add", "o e"),
    ],
    {"ids": ["batch", "sequence"], "imask": ["batch_1", "sequence_1"]},
    table=RNG.standard_normal((4, 16)).astype(np.float32),
    w=RNG.standard_normal((16, 16)).astype(np.float32),
    one=[1],
)


@pytest.fixture(scope="module")
def attention() -> nnefc.Artifact:
    return nnefc.compile(ATTENTION, profile=True)


def test_a_mask_with_names_of_its_own_is_one_row_for_all_or_one_for_each(attention: nnefc.Artifact) -> None:
    """Products need the mask to be as long as the words; the batch may be 1 in either."""
    fitting = [((2, 5), (2, 5)), ((2, 5), (1, 5)), ((1, 5), (2, 5)), ((2, 5), (2, 1)), ((1, 1), (1, 1))]
    check_compiled(attention, ATTENTION, fitting, [((2, 5), (2, 3)), ((2, 1), (2, 3)), ((2, 5), (3, 5))])


def kernels(artifact: nnefc.Artifact) -> list[tuple[str, str]]:
    names = [re.sub(r"(_again|\d)+$", "", each.kernel) for each in artifact.description.kernels]
    return list(zip(names, [each.rule for each in artifact.description.kernels], strict=True))


def test_equal_sizes_have_the_kernels_of_a_network_with_one_name(attention: nnefc.Artifact) -> None:
    one_name = onnx.ModelProto()
    one_name.CopyFrom(ATTENTION)
    for size, name in zip(one_name.graph.input[1].type.tensor_type.shape.dim, ("batch", "sequence"), strict=True):
        size.dim_param = name
    whole, part = kernels(attention), kernels(nnefc.compile(one_name, profile=True))
    assert whole[-len(part) :] == part


def test_sizes_that_are_more_than_one_are_equal() -> None:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        artifact = nnefc.compile(
            model([node("Add", "x b")], {"x": ["n", 3], "b": ["k", 3]}), shape={"n": "2..8", "k": "2..64"}
        )
    assert [str(tensor) for tensor in artifact.inputs] == ["x: float32[n, 3]", "b: float32[n, 3]"]
    assert [str(note.message) for note in notes] == [
        "model.onnx: 'k' and 'n' must be one size for its operators (the node Add that makes 'y')"
    ]


def test_memory_is_reserved_for_what_broadcasts_to_the_sizes_that_are_given() -> None:
    made = model([node("Sub", "x b", "s"), node("Softmax", "s")], {"x": ["n", 3], "b": ["k", 3]})
    with nnefc.compile(made).load(threads=1) as library:
        library.reserve({"n": 8, "k": 1})
        feed = fed(made, [(8, 3), (1, 3)])
        assert library.run(feed)["y"].shape == (8, 3)


def test_what_is_joined_behind_a_broadcast_has_the_size_of_what_it_is_joined_with() -> None:
    """`broadcast(n, k)` rows next to `n` rows."""
    made = model([node("Add", "x b", "s"), node("Concat", "s x", axis=1)], {"x": ["n", 3], "b": ["k", 3]})
    check(made, [((4, 3), (1, 3)), ((4, 3), (4, 3))], [((1, 3), (4, 3))])
