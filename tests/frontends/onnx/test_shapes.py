"""Shapes of inputs: dimension variables, what the user gives, and shapes that are known from constants alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import INT64, info, loaded, model, node, results, tensor

from nnefc.ir.network import Network
from nnefc.support.diagnostics import CompileError, ModelWarning

RNG = np.random.default_rng(3)
PRODUCT = model(
    [node("MatMul", ["a", "b"], ["y"])],
    [info("a", ("k", "m")), info("b", ("m", "n"))],
    [info("y", ("k", "n"))],
)


def message_of(proto: onnx.ModelProto, folder: Path, **options: Any) -> str:
    with pytest.raises(CompileError) as caught:
        loaded(proto, folder, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "shape",
    [{"k": 2, "m": 3, "n": 4}, {"a": (2, 3), "b": (3, 4)}, {"a": (2, 3), "n": (4,)}, {"k": 2, "b": [3, 4]}],
)
def test_dimensions_are_bound_by_name_or_by_inputs(tmp_path: Path, shape: dict[str, Any]) -> None:
    network = loaded(PRODUCT, tmp_path, shape=shape)
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 3), (3, 4)))
    np.testing.assert_allclose(results(network, a=a, b=b)["y"], a @ b, rtol=1e-5, atol=1e-6)


def test_dimensions_that_are_not_given_stay_dynamic(tmp_path: Path) -> None:
    assert dynamic_names(loaded(PRODUCT, tmp_path, shape={"m": 3})) == ["k", "n"]


def dynamic_names(network: Network) -> list[str]:
    return [dimension.name for dimension in network.dynamic_dimensions]


def test_tensors_without_elements_have_sizes_that_arrays_have(tmp_path: Path) -> None:
    proto = model([node("Identity", ["x"], ["y"])], [info("x", (0, 1 << 62, 1 << 62))], [info("y", None)])
    assert f"without elements has the shape [0, {1 << 62}, {1 << 62}]" in message_of(proto, tmp_path)


def test_one_variable_has_one_size(tmp_path: Path) -> None:
    text = message_of(PRODUCT, tmp_path, shape={"a": (2, 3), "b": (4, 5)})
    assert "the dimension 'm' is 3 by axis 1 of the input 'a', but 4 by axis 0 of the input 'b'" in text
    assert "'k' is 7 by what is given" in message_of(PRODUCT, tmp_path, shape={"k": 7, "a": (2, 3), "n": 1})


def test_one_variable_has_one_size_in_outputs_too(tmp_path: Path) -> None:
    proto = model([node("Concat", ["x", "x"], ["y"], axis=0)], [info("x", ("n",))], [info("y", ("n",))])
    with pytest.warns(ModelWarning, match="the dimension 'n' is 3"):
        network = loaded(proto, tmp_path, shape={"n": 3})
    assert results(network, x=np.zeros(3, np.float32))["y"].shape == (6,)


def test_unknown_dimensions_are_unrelated(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])], [info("x", (None, None))], [info("y", (None, None))])
    assert dynamic_names(loaded(proto, tmp_path)) == ["x_0", "x_1"]
    x = RNG.standard_normal((2, 5)).astype(np.float32)
    np.testing.assert_array_equal(results(loaded(proto, tmp_path, shape={"x": (2, 5)}), x=x)["y"], -x)


def test_a_missing_shape_can_be_given(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])], [info("x", None)], [info("y", None)])
    assert "'x' has no declared shape" in message_of(proto, tmp_path)
    for shape in ((), (3,), (2, 1, 2)):
        x = RNG.standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(results(loaded(proto, tmp_path, shape={"x": shape}), x=x)["y"], -x)


def test_no_dimensions_and_no_shape_are_different(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])], [info("x", ())], [info("y", ())])
    x = np.float32(3)
    np.testing.assert_array_equal(results(loaded(proto, tmp_path), x=x)["y"], -x)
    assert "declared with the rank 0" in message_of(proto, tmp_path, shape={"x": (1,)})


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_sizes_may_be_zero(tmp_path: Path, shape: tuple[int, ...]) -> None:
    proto = model(
        [node("Neg", ["x"], ["h"]), node("Concat", ["h", "w"], ["y"], axis=0)],
        [info("x", shape)],
        [info("y", None)],
        [tensor("w", np.ones((1, *shape[1:])))],
    )
    found = results(loaded(proto, tmp_path), x=np.zeros(shape, np.float32))["y"]
    assert found.shape == (shape[0] + 1, *shape[1:])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"z": 1}, "no input and no dimension 'z'"),
        ({"aa": (2, 3)}, "did you mean 'a'?"),
        ({"a": (2, 3, 4), "n": 1}, "declared with the rank 2"),
        ({"k": (1, 2), "m": 1, "n": 1}, "needs one size, 2 are given"),
        ({"k": -1, "m": 1, "n": 1}, "not negative"),
        ({"k": 1.5, "m": 1, "n": 1}, "must be integers"),
        ({"k": 1 << 30, "m": 1 << 30, "n": 1}, "a tensor may have 2,147,483,647"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(tmp_path: Path, shape: dict[str, Any], message: str) -> None:
    assert message in message_of(PRODUCT, tmp_path, shape=shape)


def test_fixed_sizes_stay(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])])
    assert "declared with 2 at axis 0" in message_of(proto, tmp_path, shape={"x": (5, 3)})


def test_subgraphs_share_the_variables(tmp_path: Path) -> None:
    """A rank in a subgraph's declaration that contradicts the one outside is found."""
    inner = helper.make_graph([node("Neg", ["x"], ["t"])], "then", [], [info("t", ("n", "n"))])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
        [info("x", ("n",))],
        [info("y", ("n",))],
        [tensor("c", True, np.bool_)],
    )
    with pytest.warns(ModelWarning, match="declared with the rank 2"):
        loaded(proto, tmp_path, shape={"n": 3})


def test_values_of_inputs_can_be_known_at_compile_time(tmp_path: Path) -> None:
    proto = model(
        [node("Reshape", ["x", "s"], ["y"])], [info("x", (2, 6)), info("s", ("r",), INT64)], [info("y", None)]
    )
    assert "must be known at compile time" in message_of(proto, tmp_path)
    network = loaded(proto, tmp_path, values={"s": [3, -1]})
    assert network.inputs == ("x",)
    x = RNG.standard_normal((2, 6)).astype(np.float32)
    np.testing.assert_array_equal(results(network, x=x)["y"], x.reshape(3, 4))
    assert "no input 'q'" in message_of(proto, tmp_path, values={"q": 1})
    assert "are not of type int64" in message_of(proto, tmp_path, values={"s": ["a"]})


def test_arithmetic_of_shapes_is_done_at_compile_time(tmp_path: Path) -> None:
    """What exporters make of `x.reshape(x.size(0), -1)` and of a division of sizes."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "minus"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["h"]),
        node("Slice", ["s", "one", "two", "axes"], ["c"]),
        node("Div", ["c", "two"], ["half"]),
        node("Slice", ["h", "axes", "half", "one"], ["y"]),
    ]
    constants = {"zero": 0, "axes": [0], "one": [1], "two": [2], "minus": [-1]}
    initializers = [tensor(name, value, np.int64) for name, value in constants.items()]
    proto = model(nodes, [info("x", ("n", 4, 3))], [info("y", ("n", "half"))], initializers)
    network = loaded(proto, tmp_path, shape={"n": 5})
    x = RNG.standard_normal((5, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(results(network, x=x)["y"], x.reshape(5, -1)[:, :2])


def test_shapes_may_come_from_any_operator_on_constants(tmp_path: Path) -> None:
    """Also from one that has no form in NumPy: its kernel is run at compile time."""
    nodes = [
        node("MatMul", ["m", "v"], ["f"]),
        node("Exp", ["zero"], ["one"]),
        node("Add", ["f", "one"], ["g"]),
        node("Cast", ["g"], ["s"], to=TensorProto.INT64),
        node("Reshape", ["x", "s"], ["y"]),
    ]
    weights = [tensor("m", [[1, 1], [0, 1]]), tensor("v", [1, 1]), tensor("zero", [0, 0])]
    network = loaded(model(nodes, [info("x", (6,))], [info("y", (3, 2))], weights), tmp_path)
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(results(network, x=x)["y"], x.reshape(3, 2))


def sequence_info(name: str, shape: list[Any] | None) -> onnx.ValueInfoProto:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, shape)
    return helper.make_value_info(name, helper.make_sequence_type_proto(element))


def test_sequences_become_tensors_of_the_network(tmp_path: Path) -> None:
    proto = model(
        [node("ConcatFromSequence", ["s"], ["y"], axis=0)], [sequence_info("s", [None, 2])], [info("y", None)]
    )
    assert "the elements of the sequence 's'" in message_of(proto, tmp_path)
    network = loaded(proto, tmp_path, shape={"s": [(1, 2), (3, 2)]})
    assert network.inputs == ("s.0", "s.1")
    a, b = RNG.standard_normal((1, 2)).astype(np.float32), RNG.standard_normal((3, 2)).astype(np.float32)
    np.testing.assert_array_equal(results(network, **{"s.0": a, "s.1": b})["y"], np.concatenate([a, b]))
    assert "element 1 of the input 's'" in message_of(proto, tmp_path, shape={"s": [(1, 2), (3, 3)]})


@pytest.mark.parametrize("open_", [-1, "?", None])
def test_exporters_write_dynamic_sizes_in_their_own_ways(tmp_path: Path, open_: int | str | None) -> None:
    proto = model([node("Neg", ["x"], ["y"])], [info("x", (open_, open_))], [info("y", (open_, open_))])
    assert dynamic_names(loaded(proto, tmp_path)) == ["x_0", "x_1"]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(results(loaded(proto, tmp_path, shape={"x": (2, 3)}), x=x)["y"], -x)


def test_elements_of_a_sequence_may_differ_in_a_named_size(tmp_path: Path) -> None:
    """Wherever the elements go; elsewhere a name is one size."""
    nodes = [
        node("SequenceAt", ["s", "zero"], ["a"]),
        node("SequenceAt", ["s", "one"], ["b"]),
        node("Neg", ["a"], ["y"]),
        node("Neg", ["b"], ["z"]),
    ]
    named = [info(name, ["n", 2]) for name in "abyz"]
    constants = [tensor("zero", 0, np.int64), tensor("one", 1, np.int64)]
    proto = model(nodes, [sequence_info("s", ["n", 2])], named[2:], constants)
    proto.graph.value_info.extend(named[:2])
    network = loaded(proto, tmp_path, shape={"s": [(3, 2), (1, 2)]})
    found = results(network, **{"s.0": np.ones((3, 2), np.float32), "s.1": np.zeros((1, 2), np.float32)})
    assert found["y"].shape == (3, 2) and found["z"].shape == (1, 2)
    split = model(
        [node("Split", ["x", "parts"], ["y", "z"])], [info("x", (4, 2))], named[2:], [tensor("parts", [3, 1], np.int64)]
    )
    with pytest.warns(ModelWarning, match="the dimension 'n' is 3"):
        loaded(split, tmp_path)


def test_sequences_can_be_outputs(tmp_path: Path) -> None:
    proto = model([node("SequenceConstruct", ["x", "x"], ["s"])], None, [sequence_info("s", None)])
    network = loaded(proto, tmp_path)
    assert network.outputs == ("s.0", "s.1")


def test_optional_inputs_of_the_graph_may_be_absent(tmp_path: Path) -> None:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    optional = helper.make_value_info("o", helper.make_optional_type_proto(element))
    proto = model([node("OptionalHasElement", ["o"], ["y"])], [optional], [info("y", (), TensorProto.BOOL)])
    assert results(loaded(proto, tmp_path, shape={"o": None}))["y"] == np.False_
    network = loaded(proto, tmp_path, shape={"o": (2,)})
    assert results(network, o=np.zeros(2, np.float32))["y"] == np.True_


def test_values_that_are_known_already_are_used_for_others(tmp_path: Path) -> None:
    """Numbers without axes too; each is computed from the last one that something needed."""
    nodes = []
    for i in range(3):
        nodes += [node("Exp", [f"h{i}"], [f"e{i}"]), node("Log", [f"e{i}"], [f"l{i}"])]
        nodes += [node("Add", [f"l{i}", "one"], [f"h{i + 1}"]), node("Round", [f"h{i + 1}"], [f"r{i + 1}"])]
        nodes += [node("Cast", [f"r{i + 1}"], [f"n{i + 1}"], to=INT64)]
        nodes += [node("Range", ["zero", f"n{i + 1}", "step"], [f"y{i + 1}"])]
    constants = [tensor("h0", 1), tensor("one", 1), tensor("zero", 0, np.int64), tensor("step", 1, np.int64)]
    proto = model(nodes, [info("x")], [info(f"y{i}", None, INT64) for i in range(1, 4)], constants)
    found = results(loaded(proto, tmp_path), x=np.zeros((2, 3), np.float32))
    for count, value in enumerate(found.values(), 2):
        np.testing.assert_array_equal(value, np.arange(count))
