"""What models compute from dynamic sizes: integers, reals that become integers again, booleans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import tirx

import nnefc
from nnefc.frontends.onnx.symbolic_values import computed
from nnefc.symbolic.arrays import of_elements
from nnefc.symbolic.dims import Range, Size, ranges, substituted
from nnefc.symbolic.values import quotient, rounded, truncated, whole_quotient

RNG = np.random.default_rng(7)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, ["" if i == "_" else i for i in inputs.split()], outputs.split(), **attributes)


def check(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    shapes: Sequence[tuple[int, int]],
    opset: int = 18,
    **constants: Any,
) -> None:
    """A library of a model with the input `x`, a matrix of any size, and the output `y` gives what onnxruntime gives.

    `s` is the shape, `h` and `w` are its elements.
    """
    own = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "h"),
        node("Gather", "s one", "w"),
        *nodes,
    ]
    constants = {"zero": np.array(0), "one": np.array(1), **constants}
    graph = helper.make_graph(
        own,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "columns"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    path = folder / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with nnefc.compile(path, shape={"rows": "1..40", "columns": "1..40"}).load() as library:
        for shape in shapes:
            x = RNG.standard_normal(shape).astype(np.float32)
            (expected,) = session.run(None, {"x": x})
            np.testing.assert_array_equal(library(x), expected)


SHAPES = [(3, 4), (1, 17), (40, 2), (8, 8)]
INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT


def test_minus_ones_are_replaced_as_exporters_write_it(tmp_path: Path) -> None:
    """Expand to `[2, -1, -1]`, by the idiom of PyTorch's exporter."""
    nodes = [
        node("ConstantOfShape", "three", "ones", value=numpy_helper.from_array(np.array([1]))),
        node("Mul", "ones minus", "unknown"),
        node("Concat", "two w1 minus", "wanted", axis=0),
        node("Unsqueeze", "w first", "w1"),
        node("Equal", "wanted unknown", "is_unknown"),
        node("Where", "is_unknown ones wanted", "target"),
        node("Transpose", "x", "t", perm=[1, 0]),
        node("Expand", "t target", "y"),
    ]
    order = [3, 0, 1, 2, 4, 5, 6, 7]
    constants = {"three": [3], "minus": [-1], "two": [2], "first": [0]}
    check(tmp_path, [nodes[i] for i in order], SHAPES, **{k: np.array(v) for k, v in constants.items()})


def test_sizes_that_are_multiplied_as_reals_are_integers_again(tmp_path: Path) -> None:
    """The first `ceil(0.3 h) + round(w / 8)` of the elements of `x`, twice."""
    nodes = [
        node("Cast", "h", "hf", to=FLOAT),
        node("Mul", "hf third", "part"),
        node("Ceil", "part", "up"),
        node("Cast", "w", "wf", to=FLOAT),
        node("Div", "wf eight", "eighth"),
        node("Round", "eighth", "near"),
        node("Add", "up near", "sum"),
        node("Cast", "sum", "count", to=INT),
        node("Reshape", "count last", "end"),
        node("Reshape", "x last", "flat"),
        node("Slice", "flat start end", "few"),
        node("Mul", "few two", "y"),
    ]
    constants = {"last": np.array([-1]), "start": np.array([0]), "third": np.float32(0.3), "two": np.float32(2)}
    check(tmp_path, nodes, [*SHAPES, (30, 20), (10, 28)], eight=np.float32(8), **constants)


def test_booleans_that_the_ranges_leave_open_choose_sizes(tmp_path: Path) -> None:
    """Rows are padded to the larger of both sizes, but to no more than 20 where that is less than the rows."""
    nodes = [
        node("Greater", "h w", "tall"),
        node("Less", "w limit", "few"),
        node("Or", "tall few", "any"),
        node("Not", "any", "none"),
        node("Where", "none w h", "more"),
        node("Max", "more h", "target"),
        node("Sub", "target h", "missing"),
        node("Reshape", "missing last", "m"),
        node("Concat", "nothing nothing m nothing", "pads", axis=0),
        node("Pad", "x pads", "y"),
    ]
    check(tmp_path, nodes, [*SHAPES, (9, 33)], limit=np.array(20), last=np.array([-1]), nothing=np.array([0]))


def test_reals_of_sizes_are_tensors_where_they_are_computed_with(tmp_path: Path) -> None:
    nodes = [
        node("Cast", "h", "hf", to=FLOAT),
        node("Div", "hf four", "q"),
        node("Greater", "h w", "tall"),
        node("Cast", "tall", "t", to=FLOAT),
        node("Add", "q t", "r"),
        node("Mul", "x r", "y"),
    ]
    check(tmp_path, nodes, SHAPES, four=np.float32(4))


def test_vectors_of_sizes_are_taken_apart_and_scattered_into(tmp_path: Path) -> None:
    nodes = [
        node("Split", "s", "a b", num_outputs=2),
        node("ScatterND", "s where a", "square"),
        node("Tile", "square two", "four"),
        node("Slice", "four one1 three", "part"),
        node("ReduceMax", "part", "high", keepdims=1),
        node("CumSum", "s zero", "sums"),
        node("Range", "zero two0 one", "locations"),
        node("Gather", "sums locations", "same"),
        node("Concat", "high same", "all", axis=0),
        node("Cast", "all", "reals", to=FLOAT),
        node("ReduceSum", "x", "total", keepdims=1),
        node("Reshape", "total last", "t"),
        node("Min", "t low", "lower"),
        node("Max", "lower low", "c"),
        node("Mul", "reals c", "y"),
    ]
    constants = {"where": [[1]], "two": [2], "two0": 2, "one1": [1], "three": [3], "last": [-1]}
    check(tmp_path, nodes, SHAPES, low=np.float32(1), **{k: np.array(v) for k, v in constants.items()})


@pytest.mark.parametrize("scale", [0.1, 0.5, 1 / 3, 0.7, 1.25])
def test_constants_are_simple_fractions_of_integers(scale: float) -> None:
    found = quotient(np.float32(scale))
    for size in range(1, 100):
        product = quotient(size) * found
        assert truncated(product) == int(np.float32(size) * np.float32(scale))
        assert rounded(product) == np.rint(np.float32(size) * np.float32(scale))


def test_quotients_of_integers_are_rounded_towards_zero(tmp_path: Path) -> None:
    """`(w - 3) / 2 + 1` windows, as exporters calculate them, whatever the quotient is for fewer than three columns."""
    nodes = [
        node("Unsqueeze", "x zeros", "image"),
        node("MaxPool", "image", "windows", kernel_shape=[3], strides=[2]),
        node("Sub", "w three", "left"),
        node("Div", "left two", "steps"),
        node("Add", "steps one", "count"),
        node("Mul", "h count", "all"),
        node("Reshape", "all last", "target"),
        node("Reshape", "windows target", "y"),
    ]
    constants = {"zeros": np.array([0]), "last": np.array([-1]), "two": np.array(2), "three": np.array(3)}
    with pytest.warns(nnefc.ModelWarning, match="the size of 'columns' must be from 3 to 40"):
        check(tmp_path, nodes, [(3, 4), (1, 17), (40, 3), (8, 8)], **constants)


def test_shapes_are_split(tmp_path: Path) -> None:
    """In equal parts, and in parts of given sizes."""
    nodes = [
        node("Split", "s", "rows columns", num_outputs=2),
        node("Concat", "rows columns rows", "three", axis=0),
        node("Split", "three parts", "first last", axis=0),
        node("Concat", "columns last rows", "all", axis=0),
        node("ReduceProd", "all", "n", keepdims=0),
        node("Div", "n h", "fewer"),
        node("Range", "zero fewer one", "y_int"),
        node("Cast", "y_int", "y", to=FLOAT),
    ]
    check(tmp_path, nodes, [(3, 4), (1, 17), (8, 2)], parts=np.array([1, 2]))


REMAINDERS = {
    "integers": [
        node("Mod", "w three", "remainder"),
        node("Sub", "three remainder", "missing"),
        node("Mod", "missing three", "more"),
    ],
    "signed integers": [
        node("Mod", "w three", "remainder", fmod=1),
        node("Sub", "three remainder", "missing"),
        node("Mod", "missing three", "more", fmod=1),
    ],
    "reals": [
        node("Cast", "w", "w_real", to=FLOAT),
        node("Cast", "three", "three_real", to=FLOAT),
        node("Mod", "w_real three_real", "remainder", fmod=1),
        node("Sub", "three_real remainder", "missing"),
        node("Mod", "missing three_real", "more_real", fmod=1),
        node("Cast", "more_real", "more", to=INT),
    ],
}


@pytest.mark.parametrize("kind", REMAINDERS)
@pytest.mark.sample(1)
def test_pixels_that_fill_up_blocks_are_cut_off_again(kind: str, tmp_path: Path) -> None:
    """As dilated convolutions of TensorFlow are exported: a large number says that nothing is cut off."""
    nodes = [
        *REMAINDERS[kind],
        node("Concat", "zeros1 zeros1 zeros1 more", "pads", axis=0),
        node("Pad", "x pads", "wider"),
        node("Shape", "wider", "s2"),
        node("Gather", "s2 one1", "w2"),
        node("Div", "w2 three", "thirds"),
        node("Concat", "minus three thirds", "blocks", axis=0),
        node("Reshape", "wider blocks", "in_blocks"),
        node("Reshape", "in_blocks s2", "joined"),
        node("Equal", "more zeros1", "is_none"),
        node("Cast", "is_none", "none", to=INT),
        node("Not", "is_none", "is_some"),
        node("Cast", "is_some", "some", to=INT),
        node("Mul", "none far", "to_the_end"),
        node("Neg", "some", "minus_some"),
        node("Mul", "minus_some more", "less"),
        node("Add", "to_the_end less", "end"),
        node("Slice", "joined zeros1 end one1", "cut"),
        node("Add", "cut x", "y"),
    ]
    constants = {"zeros1": [0], "one1": [1], "three": [3], "minus": [-1], "far": [(1 << 31) - 1]}
    check(tmp_path, nodes, [(3, 4), (1, 17), (40, 3), (8, 8)], **{k: np.array(v) for k, v in constants.items()})


def test_sizes_are_limited_by_bounds_that_are_attributes(tmp_path: Path) -> None:
    nodes = [
        node("Cast", "s", "reals", to=FLOAT),
        node("Clip", "reals", "more", min=2.0),
        node("Clip", "more", "few", min=0.0, max=8.5),
        node("Cast", "few", "sizes", to=INT),
        node("ConstantOfShape", "sizes", "y"),
    ]
    check(tmp_path, nodes, SHAPES, opset=10)


def test_remainders_of_sizes_that_may_be_0_are_not_sizes() -> None:
    size = tirx.Var("size", "int64")
    with ranges({size: Range(1, 40, 8)}):
        rests = [computed("Mod", {}, [np.array([40]), of_elements([Size(size) - k], (1,))]) for k in (0, 1)]
    assert rests[0] is not None
    assert rests[1] is None


def test_indices_of_elements_mean_their_own_position_alone() -> None:
    """NumPy would repeat a single index along the remainder of the data."""
    data, index = np.array([[2, 3], [4, 5]], object), np.array([[1]])
    for axis, found, row in ((0, 4, [[2, 3], [99, 5]]), (1, 3, [[2, 99], [4, 5]])):
        gathered = computed("GatherElements", {"axis": axis}, [data, index])
        scattered = computed("ScatterElements", {"axis": axis}, [data, index, np.array([[99]])])
        assert gathered is not None and gathered[0].tolist() == [[found]]
        assert scattered is not None and scattered[0].tolist() == row
    assert computed("GatherElements", {"axis": 0}, [data, np.zeros((1, 3), int)]) is None
    assert computed("ScatterElements", {}, [data, np.array([[0, 1]]), np.array([[9]])]) is None


def test_tensors_that_sizes_are_spread_to_are_computed_at_run_time(tmp_path: Path) -> None:
    nodes = [
        node("Expand", "h square", "rows"),
        node("Tile", "s many", "pairs"),
        node("Reshape", "pairs square", "tiled"),
        node("Add", "rows tiled", "sum"),
        node("Cast", "sum", "reals", to=FLOAT),
        node("ReduceSum", "x", "total", keepdims=0),
        node("Min", "total low", "lower"),
        node("Max", "lower low", "unit"),
        node("Mul", "reals unit", "y"),
    ]
    check(tmp_path, nodes, SHAPES[:2], low=np.float32(1), square=np.array([256, 256]), many=np.array([1 << 15]))


@pytest.mark.parametrize(
    ("op_type", "operands"),
    [
        ("Expand", ["n", np.array([1 << 40, 1 << 20])]),
        ("Tile", ["n", np.array([1 << 40])]),
        ("Range", ["n", "n + 2**40", np.array(1)]),
        ("Pow", ["n", np.array(1 << 40)]),
        ("Add", [np.arange(1 << 8).reshape(-1, 1).astype(object), np.arange(1 << 8).astype(object)]),
        ("Mod", [np.arange(1 << 8).reshape(-1, 1).astype(object), np.arange(1, 1 << 8).astype(object)]),
        (
            "Max",
            [np.arange(16).astype(object).reshape([16 if a == each else 1 for a in range(5)]) for each in range(5)],
        ),
    ],
)
def test_results_of_many_elements_are_refused_before_they_are_made(op_type: str, operands: list[Any]) -> None:
    size = tirx.Var("size", "int64")
    with ranges({size: Range(1, 40, 8)}):
        named = {"n": of_elements([Size(size)], (1,)), "n + 2**40": of_elements([Size(size) + (1 << 40)], (1,))}
        given = [named[operand] if isinstance(operand, str) else operand for operand in operands]
        assert computed(op_type, {}, given) is None


@pytest.mark.parametrize("divisor", [1, 2, 7, -1, -3])
def test_whole_quotients_are_those_of_c(divisor: int) -> None:
    size = tirx.Var("size", "int64")
    with ranges({size: Range(1, 40, 8)}):
        found = whole_quotient(Size(size) - 20, divisor)
        assert [substituted(found, {size: each}) for each in range(1, 41)] == [
            math.trunc((each - 20) / divisor) for each in range(1, 41)
        ]


def test_chains_of_whole_quotients_stay_short() -> None:
    size = tirx.Var("size", "int64")
    with ranges({size: Range(1, 1 << 20, 8)}):
        found, exact = Size(size), 1_000_003
        lengths = []
        for _ in range(1000):
            found, exact = whole_quotient(found - 3, 2), math.trunc((exact - 3) / 2)
            lengths.append(len(str(found)))
        assert max(lengths) < 2000
        assert substituted(found, {size: 1_000_003}) == exact
