"""ONNX models whose sizes stay open: one library for all sizes, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import LARGEST

RNG = np.random.default_rng(3)


def real(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def model_of(nodes: Sequence[onnx.NodeProto], shape: Sequence[Any], **constants: np.ndarray) -> onnx.ModelProto:
    """A model of one input `x` and one output `y`."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(op_type: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), output.split(), **attributes)


def check(
    proto: onnx.ModelProto, folder: Path, ranges: Mapping[str, Any], shapes: Sequence[Sequence[int]]
) -> nnefc.Artifact:
    """One library gives what onnxruntime gives at every size."""
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    artifact = nnefc.compile(path, shape=ranges)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with artifact.load() as library:
        for shape in shapes:
            x = RNG.standard_normal(shape).astype(np.float32)
            (expected,) = session.run(None, {"x": x})
            result = library(x)
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    return artifact


def test_convolutional_networks_take_any_batch_and_image(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x k b", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "m", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Sigmoid", "m", "s"),
        node("Mul", "m s", "e"),
        node("GlobalAveragePool", "e", "p"),
        node("Flatten", "p", "f"),
        node("Gemm", "f w v", "y", transB=1),
    ]
    constants = {"k": real(16, 3, 3, 3), "b": real(16), "w": real(10, 16), "v": real(10)}
    ranges = {"n": "1..8", "h": "16..256", "w_": "32..256:8"}
    sizes = [(1, 3, 64, 64), (2, 3, 17, 32), (5, 3, 100, 72)]
    artifact = check(model_of(nodes, ["n", 3, "h", "w_"], **constants), tmp_path, ranges, sizes)
    assert str(artifact.inputs[0]) == "x: float32[n, 3, h, w_]"
    assert str(artifact.outputs[0]) == "y: float32[n, 10]"


def test_products_of_open_rows_with_an_axis_of_one_between(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "p"), node("Sigmoid", "p", "y")]
    check(
        model_of(nodes, ["b", 1, "n", 57], w=real(57, 32)),
        tmp_path,
        {},
        [(1, 1, 3, 57), (2, 1, 33, 57), (5, 1, 14, 57)],
    )


def test_shapes_that_the_model_computes_follow_the_sizes(tmp_path: Path) -> None:
    """Heads of attention: `x` as [n, s, 4, 8], from the shape that the model reads."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "n", axis=0),
        node("Gather", "shape one", "s", axis=0),
        node("Unsqueeze", "n axis", "n1"),
        node("Unsqueeze", "s axis", "s1"),
        node("Concat", "n1 s1 heads", "split", axis=0),
        node("Reshape", "x split", "a"),
        node("Transpose", "a", "b", perm=[0, 2, 1, 3]),
        node("Transpose", "a", "c", perm=[0, 2, 3, 1]),
        node("MatMul", "b c", "scores"),
        node("Softmax", "scores", "p", axis=-1),
        node("MatMul", "p b", "o"),
        node("Transpose", "o", "t", perm=[0, 2, 1, 3]),
        node("Concat", "n1 s1 width", "joined", axis=0),
        node("Reshape", "t joined", "y"),
    ]
    constants = {name: np.array(value, np.int64) for name, value in CONSTANTS.items()}
    shapes = [(1, 7, 32), (3, 16, 32), (2, 33, 32)]
    check(model_of(nodes, ["n", "s", 32], **constants), tmp_path, {"n": "1..4", "s": "1..64"}, shapes)


CONSTANTS = {"zero": 0, "one": 1, "axis": [0], "heads": [4, 8], "width": [32]}


def test_positions_and_masks_of_dynamic_sizes(tmp_path: Path) -> None:
    """As language models make them: the number of each element, and a triangle of what comes after it."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "s", axis=0),
        node("Range", "zero s one", "locations"),
        node("Cast", "locations", "row", to=TensorProto.FLOAT),
        node("Unsqueeze", "s axis", "s1"),
        node("Concat", "s1 s1", "square", axis=0),
        node("ConstantOfShape", "square", "full", value=numpy_helper.from_array(np.array([-9.0], np.float32))),
        node("EyeLike", "full", "eye", k=1),
        node("Add", "full eye", "mask"),
        node("MatMul", "x mask", "a"),
        node("Expand", "row shape", "b"),
        node("Add", "a b", "y"),
    ]
    constants = {name: np.array(value, np.int64) for name, value in CONSTANTS.items()}
    check(model_of(nodes, ["n", "s"], **constants), tmp_path, {"n": "1..4", "s": "1..64"}, [(1, 1), (3, 17), (2, 64)])


def test_slices_count_from_the_end_where_their_ends_are_negative(tmp_path: Path) -> None:
    """To `s - 5` and from `s - 7`, which are negative for small sizes, and before the start for the smallest."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "s", axis=0),
        node("Sub", "s five", "end"),
        node("Sub", "s seven", "start"),
        node("Slice", "x zero end axis", "a"),
        node("Slice", "x start far axis", "b"),
        node("Slice", "x far end axis back", "c"),
        node("Concat", "a b c", "y", axis=1),
    ]
    values = {"one": [1], "five": [5], "seven": [7], "zero": [0], "axis": [1], "far": [2**63 - 1], "back": [-1]}
    constants = {name: np.array(value, np.int64) for name, value in values.items()}
    sizes = [(2, size) for size in (1, 2, 3, 4, 5, 6, 7, 8, 20)]
    check(model_of(nodes, [2, "s"], **constants), tmp_path, {"s": "1..20"}, sizes)


def branches_by_size(limit: int, then: Sequence[onnx.NodeProto], other: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """`y` of one of two branches: `then` for inputs `[n, s]` with s of at most `limit`."""

    def branch(name: str, nodes: Sequence[onnx.NodeProto]) -> onnx.GraphProto:
        result = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
        return helper.make_graph(list(nodes), name, [], [result])

    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "s", axis=0),
        node("Squeeze", "s", "size"),
        node("LessOrEqual", "size limit", "small"),
        helper.make_node("If", ["small"], ["t"], then_branch=branch("then", then), else_branch=branch("other", other)),
        node("Exp", "t", "y"),
    ]
    values = {"one": [1], "limit": limit, "axis": [1], "zero": [0], "flat": [-1, 1], "two": [2]}
    return model_of(nodes, ["n", "s"], **{name: np.array(value, np.int64) for name, value in values.items()})


def test_branches_that_sizes_choose_hold_for_all_sizes(tmp_path: Path) -> None:
    """One branch needs a size of 1, or few or many elements, the other one more: neither narrows the library's
    sizes."""
    sizes = [(3, 1), (2, 7), (1, 1), (4, 64), (2, 2), (2, 3), (2, 4)]
    one = branches_by_size(
        1, [node("Squeeze", "x axis", "q"), node("Reshape", "q flat", "r")], [node("Slice", "x zero two axis", "r")]
    )
    check(one, tmp_path, {"n": "1..4", "s": "1..64"}, sizes)
    pooled = [
        node("Unsqueeze", "x zero", "p"),
        node("MaxPool", "p", "m", kernel_shape=[4]),
        node("Squeeze", "m zero", "r"),
    ]
    few = branches_by_size(3, [node("Neg", "x", "r")], pooled)
    check(few, tmp_path, {"n": "1..4", "s": "1..64"}, sizes)


def test_branches_of_different_ranks_give_results_of_different_ranks(tmp_path: Path) -> None:
    """`squeeze` of PyTorch, as its exporter writes it: a size of 1 has a program of its own."""
    proto = branches_by_size(1, [node("Squeeze", "x axis", "r")], [node("Identity", "x", "r")])
    check(proto, tmp_path, {"n": "1..4", "s": "1..64"}, [(3, 1), (1, 1), (3, 5), (1, 64)])


def test_slices_and_joined_tensors_of_dynamic_sizes(tmp_path: Path) -> None:
    nodes = [
        node("Slice", "x first last axes", "a"),
        node("Slice", "x last end axes", "b"),
        node("Concat", "b a", "c", axis=1),
        node("Add", "c row", "y"),
    ]
    constants = {name: np.array([value], np.int64) for name, value in (("first", 0), ("last", -1), ("axes", 1))}
    constants["end"] = np.array([2**63 - 1], np.int64)
    sizes = [(1, 2, 5), (3, 9, 5)]
    check(model_of(nodes, ["n", "s", 5], **constants, row=real(1, 5)), tmp_path, {"n": "1..4", "s": "2..64"}, sizes)


def test_slices_have_computed_ends(tmp_path: Path) -> None:
    """The number of frames, `(m - 8) // 16`, shows nowhere in the kernel that masks them by their locations."""
    nodes = [
        node("Shape", "x", "length", start=1),
        node("Sub", "length eight", "remainder"),
        node("Mod", "remainder hop", "over"),
        node("Sub", "length over", "end"),
        node("Slice", "x eight end one", "whole"),
        node("Reshape", "whole frames", "f"),
        node("Shape", "f", "counts", start=1, end=2),
        node("Squeeze", "counts", "count"),
        node("Range", "zero count step", "locations"),
        node("Unsqueeze", "locations both", "column"),
        node("Less", "column seven", "early"),
        node("Where", "early f nothing", "y"),
    ]
    constants = {
        "zero": np.array(0),
        "step": np.array(1),
        "one": np.array([1]),
        "both": np.array([0, 2]),
        "eight": np.array([8]),
        "hop": np.array([16]),
        "seven": np.array([7]),
        "frames": np.array([0, -1, 16]),
        "nothing": np.float32(0),
    }
    proto = model_of(nodes, ["n", "m"], **constants)
    with pytest.warns(nnefc.support.diagnostics.ModelWarning, match="'m' must be no less than 8"):
        check(proto, tmp_path, {}, [(1, 30), (2, 243), (3, 24)])
    check(proto, tmp_path, {"n": 1, "m": "40..400"}, [(1, 40), (1, 399)])


def test_few_elements_and_every_other_one_are_taken(tmp_path: Path) -> None:
    nodes = [
        node("Slice", "x zero eight one", "first"),
        node("Slice", "x zero last one two", "other"),
        node("Concat", "first other", "y", axis=1),
    ]
    constants = {"zero": [0], "one": [1], "two": [2], "eight": [8], "last": [2**63 - 1]}
    proto = model_of(nodes, ["n", "m"], **{name: np.array(value) for name, value in constants.items()})
    check(proto, tmp_path, {}, [(1, 1), (2, 7), (3, 40)])
    check(proto, tmp_path, {"n": 1, "m": "40..400"}, [(1, 40), (1, 399)])


def test_the_last_frame_of_what_is_filled_up_is_left_out(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "length", start=1),
        node("Sub", "long length", "missing"),
        node("Concat", "none missing", "after", axis=0),
        node("Pad", "x after", "padded"),
        node("Unsqueeze", "padded one", "signal"),
        node("Conv", "signal window", "frames", strides=[16]),
        node("Transpose", "frames", "t", perm=[0, 2, 1]),
        node("Slice", "t zero before one", "all"),
        node("Exp", "all", "y"),
    ]
    constants = {"zero": [0], "one": [1], "before": [-1], "long": [300], "none": [0, 0, 0]}
    made = {name: np.array(value) for name, value in constants.items()}
    check(model_of(nodes, ["n", "m"], window=real(4, 1, 32), **made), tmp_path, {}, [(1, 9), (2, 299), (2, 400)])


def test_one_position_of_an_open_axis_is_taken_several_times(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "x", "t", perm=[0, 2, 1]),
        node("Gather", "t first", "g", axis=2),
        node("Transpose", "g", "u", perm=[0, 2, 1]),
        node("MaxPool", "u", "y", kernel_shape=[1], auto_pad=""),  # which onnxruntime takes for no padding
    ]
    check(model_of(nodes, [1, "n", 4], first=np.array([0, 0])), tmp_path, {}, [(1, 1, 4), (1, 5, 4)])


def test_sizes_in_bfloat16_are_multiplied(tmp_path: Path) -> None:
    half = helper.make_tensor("half", TensorProto.BFLOAT16, [1], [0.5])
    nodes = [
        node("Shape", "x", "size", start=1),
        node("Cast", "size", "wide", to=TensorProto.BFLOAT16),
        node("Mul", "wide half", "part"),
        node("Cast", "part", "scale", to=TensorProto.FLOAT),
        node("Mul", "x scale", "y"),
    ]
    proto = model_of(nodes, [2, "n"])
    proto.graph.initializer.append(half)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    artifact = nnefc.compile(path)
    for count in (3, 8):
        x = RNG.standard_normal((2, count)).astype(np.float32)
        np.testing.assert_allclose(artifact.run({"x": x})["y"], x * count / 2, rtol=1e-5)


@pytest.mark.parametrize("name", ["n/0", "n%0", "n/(1-1)", "n+99999999999999999999999"])
def test_names_that_are_no_sizes_are_names(name: str, tmp_path: Path) -> None:
    proto = model_of([node("Exp", "x", "e"), node("Identity", "z", "y")], ["n"])
    proto.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [name]))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    z = RNG.standard_normal(5).astype(np.float32)
    assert np.array_equal(nnefc.compile(path).run({"x": z[:2], "z": z})["y"], z)


def test_tensors_are_resized_by_factors_and_to_computed_sizes(tmp_path: Path) -> None:
    linear = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    cubic = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    nodes = [
        helper.make_node("Resize", ["x", "", "twice"], ["a"], coordinate_transformation_mode="asymmetric"),
        helper.make_node("Resize", ["a", "", "less"], ["b"], nearest_mode="ceil"),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Resize", ["b", "", "", "s"], ["c"], **linear),
        helper.make_node("Add", ["c", "x"], ["d"]),
        helper.make_node("Mul", ["s", "thrice"], ["t"]),
        helper.make_node("Resize", ["d", "", "", "t"], ["y"], **cubic),
    ]
    scales = {name: np.array([1, 1, s, s], np.float32) for name, s in (("twice", 2), ("less", 0.75))}
    shapes = [(1, 2, 1, 9), (3, 2, 8, 6), (2, 2, 13, 16)]
    model = model_of(nodes, ["n", 2, "h", "w"], **scales, thrice=np.array([1, 1, 1, 3], np.int64))
    check(model, tmp_path, {"n": "1..4", "h": "1..16", "w": "2..16"}, shapes)


def test_boxes_of_images_of_any_size_are_resized(tmp_path: Path) -> None:
    """Coordinates are floats of the dynamic sizes; those of the batch and of channels, too."""
    box = np.array([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], np.float32)
    crop = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    model = model_of(
        [helper.make_node("Resize", ["x", "box", "", "s"], ["y"], **crop)],
        ["n", "c", "h", "w"],
        box=box,
        s=np.array([1, 1, 3, 3], np.int64),
    )
    check(model, tmp_path, {}, [(1, 1, 4, 4), (1, 1, 7, 5), (1, 1, 9, 6)])


def test_windows_and_padding_that_follow_from_the_sizes(tmp_path: Path) -> None:
    """TensorFlow's padding "same", windows that are not whole, and padding by computed amounts."""
    nodes = [
        node("Conv", "x k", "c", auto_pad="SAME_UPPER", strides=[2, 2]),
        node("MaxPool", "c", "m", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        node("AveragePool", "m", "a", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, pads=[1, 1, 1, 1]),
        node("AveragePool", "a", "b", kernel_shape=[3, 3], auto_pad="SAME_LOWER", count_include_pad=1),
        node("Shape", "x", "s"),
        node("Slice", "s two four", "hw"),
        node("Div", "hw eight", "p"),
        node("Concat", "zeros p zeros p", "pads", axis=0),
        node("Pad", "b pads", "q", mode="edge"),
        node("Pad", "q pads", "y"),
    ]
    constants = {"two": [2], "four": [4], "eight": [8, 8], "zeros": [0, 0]}
    shapes = [(1, 2, 16, 16), (2, 2, 17, 31), (1, 2, 40, 22), (1, 2, 35, 36)]
    model = model_of(nodes, ["n", 2, "h", "w"], k=real(3, 2, 3, 3), **{k: np.array(v) for k, v in constants.items()})
    check(model, tmp_path, {"n": "1..2", "h": "16..40", "w": "16..40"}, shapes)


def test_as_many_elements_are_there_as_are_taken(tmp_path: Path) -> None:
    """The smallest size of `w` follows from the five largest of each row that the model takes."""
    nodes = [node("TopK", "x five", "v i"), node("GatherElements", "x i", "g", axis=1), node("Add", "v g", "y")]
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(nodes, ["n", "w"], five=np.array([5])).SerializeToString())
    with pytest.warns(nnefc.support.diagnostics.ModelWarning, match="'w' must be no less than 5"):
        artifact = nnefc.compile(path)
    with artifact.load() as library:
        x = RNG.standard_normal((3, 9)).astype(np.float32)
        np.testing.assert_array_equal(library(x), 2 * -np.sort(-x, 1)[:, :5])
        with pytest.raises(nnefc.RunError, match="takes 5 to"):
            library(x[:, :4])


def test_sizes_given_with_the_shape_of_an_input_have_its_name(tmp_path: Path) -> None:
    artifact = check(model_of([node("Relu", "x", "y")], [None, 4]), tmp_path, {"x": ("1..9", 4)}, [(1, 4), (9, 4)])
    assert str(artifact.inputs[0]) == "x: float32[x_0, 4]"


@pytest.mark.parametrize("text", ["5..3", "33..63:32"])
def test_ranges_without_a_size_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(model_of([node("Relu", "x", "y")], ["n"]).SerializeToString())
    with pytest.raises(CompileError, match="no size is in the range"):
        nnefc.compile(tmp_path / "model.onnx", shape={"n": text})


def test_what_a_model_leaves_open_stays_open_without_options(tmp_path: Path) -> None:
    """Dimensions with names, and without; only the given one is known."""
    nodes = [node("Conv", "x k", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")]
    proto = model_of(nodes, ["N", 3, -1, "?"], k=real(8, 3, 3, 3))
    artifact = check(proto, tmp_path, {}, [(1, 3, 20, 33), (2, 3, 7, 5), (1, 3, 300, 400)])
    assert str(artifact.inputs[0]) == "x: float32[N, 3, x_2, x_3]"
    assert [(d.name, d.minimum, d.maximum) for d in artifact.description.dimensions] == [
        (name, int(name != "N"), LARGEST) for name in ("N", "x_2", "x_3")
    ]
    artifact = check(proto, tmp_path, {"N": 2}, [(2, 3, 7, 5)])
    assert str(artifact.inputs[0]) == "x: float32[2, 3, x_2, x_3]"


def test_ranges_may_have_no_end(tmp_path: Path) -> None:
    proto = model_of([node("Relu", "x", "y")], ["n", "w"])
    artifact = check(proto, tmp_path, {"n": "2..", "w": "32..:32"}, [(2, 32), (9, 320)])
    assert [(d.minimum, d.maximum, d.multiple) for d in artifact.description.dimensions] == [
        (2, LARGEST, 1),
        (32, LARGEST, 32),
    ]
    with artifact.load() as library, pytest.raises(RunError, match="multiples of 32"):
        library(np.zeros((2, 33), np.float32))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"n": "1..", "h": "1..16777216", "w": "8..16777216:8"}, "'h' and 'w'"),
        ({"n": "1..64", "h": 2, "w": "1..900000000000000000"}, "'w'"),
    ],
)
def test_ranges_whose_product_is_beyond_64_bits_are_refused(
    given: Mapping[str, Any], names: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([node("Relu", "x", "y")], ["n", "h", "w"]).SerializeToString())
    with pytest.raises(CompileError, match=f"{names} may be more than 1,048,576.*\n.*w=[18]..1048576"):
        nnefc.compile(path, shape=given)


def test_an_operator_that_must_know_a_size_says_how_to_give_it(tmp_path: Path) -> None:
    """The last tensor might be smaller than the others."""
    nodes = [node("SplitToSequence", "x parts", "s", axis=0), node("SequenceAt", "s zero", "y")]
    proto = model_of(nodes, ["batch", "n"], zero=np.array(0, np.int64), parts=np.array(3, np.int64))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(CompileError, match=r"(?s)SplitToSequence.*--shape batch=1,n=128"):
        nnefc.compile(tmp_path / "model.onnx")


@pytest.mark.parametrize("op_type", ["LSTM", pytest.param("GRU", marks=pytest.mark.slow)])
def test_recurrent_layers_take_any_batch_and_length(op_type: str, tmp_path: Path) -> None:
    """A loop of an open trip count, whose body has dynamic sizes; one direction scans from the end."""
    size = 4 if op_type == "LSTM" else 3
    constants = {"w": real(2, size * 16, 5), "r": real(2, size * 16, 16), "b": real(2, size * 32)}
    layer = node(op_type, "x w r b", "y", hidden_size=16, direction="bidirectional")
    shapes = [(1, 1, 5), (7, 2, 5), (20, 3, 5)]
    check(model_of([layer], ["s", "n", 5], **constants), tmp_path, {"s": "1..20", "n": "1..3"}, shapes)


def test_states_before_the_first_step_tell_the_batch(tmp_path: Path) -> None:
    constants = {"w": real(1, 48, 5), "r": real(1, 48, 16), "b": real(1, 96), "h": real(1, 2, 16)}
    nodes = [node("GRU", "x w r b e h", "y", hidden_size=16)]
    nodes[0].input[4] = ""
    artifact = check(model_of(nodes, ["s", "n", "d"], **constants), tmp_path, {}, [(1, 2, 5), (7, 2, 5)])
    assert str(artifact.inputs[0]) == "x: float32[s, 2, 5]"


def test_sequences_of_an_dynamic_length_end_before(tmp_path: Path) -> None:
    constants = {"w": real(1, 48, 5), "r": real(1, 48, 16), "b": real(1, 96), "e": np.array([3, 9], np.int32)}
    layer = node("GRU", "x w r b e", "y", hidden_size=16)
    check(model_of([layer], ["s", 2, 5], **constants), tmp_path, {"s": "9..20"}, [(9, 2, 5), (13, 2, 5)])


def test_loops_go_round_as_often_as_a_size_says(tmp_path: Path) -> None:
    """`Scan` over the rows, and a `Loop` with as many iterations as there are columns."""
    value = helper.make_tensor_value_info
    scanned = helper.make_graph(
        [node("Add", "state row", "sum"), node("Identity", "sum", "item")],
        "rows",
        [value("state", TensorProto.FLOAT, ["w"]), value("row", TensorProto.FLOAT, ["w"])],
        [value("sum", TensorProto.FLOAT, ["w"]), value("item", TensorProto.FLOAT, ["w"])],
    )
    halved = helper.make_graph(
        [node("Mul", "before half", "after"), node("Identity", "go_on", "going_on")],
        "columns",
        [
            value("i", TensorProto.INT64, []),
            value("go_on", TensorProto.BOOL, []),
            value("before", TensorProto.FLOAT, None),
        ],
        [value("going_on", TensorProto.BOOL, []), value("after", TensorProto.FLOAT, None)],
    )
    nodes = [
        node("ReduceSum", "x zero", "total", keepdims=0),
        node("Scan", "total x", "last sums", body=scanned, num_scan_inputs=1),
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "w"),
        node("Loop", "w yes sums", "y", body=halved),
    ]
    constants = {"zero": np.array([0], np.int64), "one": np.array(1, np.int64), "yes": np.array(True)}
    constants["half"] = np.array(0.9, np.float32)
    check(model_of(nodes, ["h", "w"], **constants), tmp_path, {"h": "1..9", "w": "1..33"}, [(1, 1), (5, 33), (9, 4)])


@pytest.mark.slow
def test_fast_convolutions_are_right_where_batch_and_image_are_open(tmp_path: Path) -> None:
    """Channels so many that the algorithm is Winograd's; its tiles are counts over all three dimensions."""
    nodes = [node("Conv", "x k", "y", pads=[1, 1, 1, 1])]
    check(model_of(nodes, ["n", 96, "h", "w"], k=real(24, 96, 3, 3)), tmp_path, {}, [(1, 96, 12, 8), (2, 96, 7, 9)])


def test_means_of_integers_lose_their_fractions(tmp_path: Path) -> None:
    nodes = [
        node("Mul", "x hundred", "large"),
        node("Cast", "large", "whole", to=TensorProto.INT32),
        node("ReduceMean", "whole", "mean", axes=[0, 1], keepdims=0),
        node("Cast", "mean", "y", to=TensorProto.FLOAT),
    ]
    proto = model_of(nodes, ["n", "m", 3], hundred=np.array(100, np.float32))
    check(proto, tmp_path, {}, [(1, 1, 3), (5, 3, 3), (2, 17, 3)])


@pytest.mark.parametrize(
    ("start", "step", "in_fp16", "dtype"),
    [
        pytest.param(0.5, 1, False, np.float32, marks=pytest.mark.slow),
        (-0.25, 0.7, True, np.float32),
        pytest.param(0, 0.5, True, np.float32, marks=pytest.mark.slow),
        (0.1, 1, False, float),
    ],
)
def test_ranges_of_reals_end_at_dynamic_sizes(
    start: float, step: float, in_fp16: bool, dtype: type, tmp_path: Path
) -> None:
    """The last one has fractions that do not fit 64 bits."""
    nodes = [
        node("Shape", "x", "s", end=1),
        node("Squeeze", "s", "n"),
        node("Cast", "n", "end0", to=TensorProto.FLOAT if dtype is np.float32 else TensorProto.DOUBLE),
        node("Div" if in_fp16 else "Mul", "end0 factor", "end"),
        node("Range", "start end step", "reals"),
        node("Cast", "reals", "y", to=TensorProto.FLOAT),
    ]
    numbers = {"start": start, "step": step, "factor": 2 if in_fp16 else 1}
    proto = model_of(nodes, ["n"], **{name: np.array(number, dtype) for name, number in numbers.items()})
    check(proto, tmp_path, {}, [(1,), (2,), (7,), (14,), (64,)])


def test_channels_of_a_grouped_transposed_convolution_are_dynamic() -> None:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "c", "h", "w"]),
        helper.make_tensor_value_info("filter", TensorProto.FLOAT, ["c", "o", 3, 3]),
    ]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node("ConvTranspose", "x filter", "y", group=2)], "g", inputs, results)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    library = nnefc.compile(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for channels, outputs in ((4, 3), (2, 1), (6, 5)):
        given = {"x": real(2, channels, 5, 6), "filter": real(channels, outputs, 3, 3)}
        np.testing.assert_allclose(library.run(given)["y"], session.run(None, given)[0], atol=1e-5)
