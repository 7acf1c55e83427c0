"""Models, nodes and attributes: what the IR specification says of each, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, helper
from onnx_models import FLOAT, INT64, graph, info, loaded, model, node, results, save, tensor

from nnefc.frontends.onnx import load, outline
from nnefc.support.diagnostics import CompileError

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def refused(proto: onnx.ModelProto, folder: Path, *words: str, by_checker: bool = True, **options: object) -> None:
    """The model is refused with all of these words; by onnx's own checker too, if it looks at such things."""
    with pytest.raises(CompileError) as caught:
        loaded(proto, folder, **options)
    for word in words:
        assert word in str(caught.value)
    if by_checker:
        with pytest.raises(onnx.checker.ValidationError):
            onnx.checker.check_model(proto)


def test_a_network_has_the_names_of_the_graph(tmp_path: Path) -> None:
    network = loaded(model([node("Neg", ["x"], ["y"])]), tmp_path)
    assert (network.name, network.inputs, network.outputs) == ("g", ("x",), ("y",))
    np.testing.assert_array_equal(results(network, x=X)["y"], -X)


def test_names_may_be_any_text(tmp_path: Path) -> None:
    proto = model([node("Neg", ["in/0:a"], ["out.ü 1"])], [info("in/0:a")], [info("out.ü 1")])
    network = loaded(proto, tmp_path)
    assert (network.inputs, network.outputs) == (("in/0:a",), ("out.ü 1",))


def test_inputs_of_the_model_have_element_types(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])])
    proto.graph.input[0].ClearField("type")
    refused(proto, tmp_path, "the input 'x'", "no declared element type")


def test_versions_of_the_format_that_are_not_there_yet_are_refused(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])])
    proto.ir_version = 99
    refused(proto, tmp_path, "is in version 99 of the format")


def test_an_input_can_be_an_output(tmp_path: Path) -> None:
    network = loaded(model([], [info("x")], [info("x")]), tmp_path)
    np.testing.assert_array_equal(results(network, x=X)["x"], X)


def test_a_constant_can_be_an_output(tmp_path: Path) -> None:
    network = loaded(model([], [], [info("w", (3,))], [tensor("w", [1, 2, 3])]), tmp_path)
    np.testing.assert_array_equal(results(network)["w"], [1, 2, 3])


def test_other_tensors_can_be_returned_instead_of_the_outputs(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["h"]), node("Exp", ["h"], ["y"])])
    network = loaded(proto, tmp_path, output_tensors=("h", "x"))
    assert network.outputs == ("h", "x")
    assert loaded(proto, tmp_path, output_tensors=("h", "y")).outputs == ("h", "y")
    with pytest.raises(CompileError, match=r"no tensor 'hh'.*\n.*'h'"):
        loaded(proto, tmp_path, output_tensors=("hh",))


def test_the_names_of_initializers_are_the_variables(tmp_path: Path) -> None:
    constants = [tensor("layer.0/w", [1, 2, 3]), tensor("unused", [4, 5, 6]), tensor("v", [7, 8, 9])]
    proto = model(
        [node("Mul", ["x", "layer.0/w"], ["h"]), node("Add", ["h", "v"], ["y"])],
        [info("x"), info("v", (3,))],
        None,
        constants,
    )
    assert loaded(proto, tmp_path).variables == ("layer.0/w", "unused", "v")
    assert loaded(proto, tmp_path, overridable=True).variables == ("layer.0/w", "unused")


def test_initializers_that_are_inputs_are_constants(tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x"), info("w", (3,))], None, [tensor("w", [1, 2, 3])])
    network = loaded(proto, tmp_path)
    assert network.inputs == ("x",)
    np.testing.assert_array_equal(results(network, x=X)["y"], X + np.array([1, 2, 3]))


def test_initializers_that_are_inputs_are_inputs_on_request(tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x"), info("w", (3,))], None, [tensor("w", [1, 2, 3])])
    network = loaded(proto, tmp_path, overridable=True)
    assert network.inputs == ("x", "w")
    w = np.array([5, 6, 7], np.float32)
    np.testing.assert_array_equal(results(network, x=X, w=w)["y"], X + w)


def test_sparse_initializers_are_spread_out(tmp_path: Path) -> None:
    made = graph([node("Add", ["x", "w"], ["y"])])
    values, indices = tensor("w", [7, 9]), tensor("", [1, 5], np.int64)
    made.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    expected = np.array([[0, 7, 0], [0, 0, 9]], np.float32) + X
    np.testing.assert_array_equal(results(loaded(model(made), tmp_path), x=X)["y"], expected)


@pytest.mark.parametrize(
    ("indices", "message"), [([5, 1], "ascend"), ([1, 6], "out of its range"), ([1], "indices"), ([-1, 2], "range")]
)
def test_indices_of_sparse_initializers_are_checked(tmp_path: Path, indices: list[int], message: str) -> None:
    made = graph([node("Add", ["x", "w"], ["y"])])
    sparse = helper.make_sparse_tensor(tensor("w", [7, 9]), tensor("", indices, np.int64), [2, 3])
    made.sparse_initializer.append(sparse)
    refused(model(made), tmp_path, "sparse initializer 'w'", message)


def test_optional_inputs_may_be_missing_or_empty(tmp_path: Path) -> None:
    for names in (["x"], ["x", ""], ["x", "", ""]):
        network = loaded(model([node("Clip", names, ["y"])]), tmp_path)
        np.testing.assert_array_equal(results(network, x=X)["y"], X)
    network = loaded(model([node("Clip", ["x", "", "top"], ["y"])], None, None, [tensor("top", 1)]), tmp_path)
    np.testing.assert_array_equal(results(network, x=X)["y"], np.minimum(X, 1))


def test_required_inputs_must_be_there(tmp_path: Path) -> None:
    refused(model([node("Add", ["x"], ["y"], name="sum")]), tmp_path, "'sum' (Add)", "2 inputs")
    refused(model([node("Add", ["x", ""], ["y"])]), tmp_path, "makes 'y'", "input 'B' is missing", by_checker=False)


def test_optional_outputs_may_be_left_out(tmp_path: Path) -> None:
    for names in (["y"], ["y", ""]):
        network = loaded(model([node("Dropout", ["x"], names)]), tmp_path)
        np.testing.assert_array_equal(results(network, x=X)["y"], X)


def test_outputs_must_not_be_more_than_the_operator_has(tmp_path: Path) -> None:
    refused(model([node("Neg", ["x"], ["y", "z"])]), tmp_path, "1 outputs, the node 2")


def test_variadic_inputs_have_a_minimum(tmp_path: Path) -> None:
    network = loaded(model([node("Sum", ["x"] * 5, ["y"])]), tmp_path)
    np.testing.assert_array_equal(results(network, x=X)["y"], 5 * X)
    refused(model([node("Sum", [], ["y"])]), tmp_path, "Sum", "1 or more inputs, the node 0")


def test_defaults_of_attributes_are_those_of_the_imported_version(tmp_path: Path) -> None:
    """The axis of Softmax is 1 before version 13, the last one from then on, and the meaning differs too."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    shape = [info("x", (2, 3, 4))], [info("y", (2, 3, 4))]
    old = results(loaded(model([node("Softmax", ["x"], ["y"])], *shape, opset=11), tmp_path), x=x)["y"]
    new = results(loaded(model([node("Softmax", ["x"], ["y"])], *shape, opset=13), tmp_path), x=x)["y"]
    exp = np.exp(x)
    np.testing.assert_allclose(old, exp / exp.sum(axis=(1, 2), keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(new, exp / exp.sum(axis=2, keepdims=True), rtol=1e-5)


def attribute(**fields: object) -> AttributeProto:
    return AttributeProto(name="alpha", **fields)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (attribute(type=AttributeProto.FLOAT, f=1.0, i=1), "exactly one"),
        (attribute(type=AttributeProto.INT, i=1), "of type INT, it must be FLOAT"),
        (attribute(type=AttributeProto.FLOAT, i=1), "its type says 'f'"),
        (attribute(type=AttributeProto.FLOAT, ref_attr_name="a"), "not in a function"),
        (attribute(type=AttributeProto.FLOAT, ref_attr_name="a", f=1.0), "refers to 'a' too"),
    ],
)
def test_attributes_have_exactly_one_value_of_their_type(tmp_path: Path, made: AttributeProto, message: str) -> None:
    proto = model([node("LeakyRelu", ["x"], ["y"], name="n")])
    proto.graph.node[0].attribute.append(made)
    refused(proto, tmp_path, "'n' (LeakyRelu)", message, by_checker=False)


def test_a_value_that_is_the_default_of_its_field_counts(tmp_path: Path) -> None:
    """`alpha` of zero may be written as a type without any field."""
    proto = model([node("LeakyRelu", ["x"], ["y"])])
    proto.graph.node[0].attribute.append(attribute(type=AttributeProto.FLOAT))
    np.testing.assert_array_equal(results(loaded(proto, tmp_path), x=X)["y"], np.maximum(X, 0))


def test_unknown_and_double_attributes_are_refused(tmp_path: Path) -> None:
    refused(model([node("LeakyRelu", ["x"], ["y"], alpa=0.5)]), tmp_path, "no attribute 'alpa'", "'alpha'?")
    proto = model([node("LeakyRelu", ["x"], ["y"], alpha=0.5)])
    proto.graph.node[0].attribute.append(proto.graph.node[0].attribute[0])
    refused(proto, tmp_path, "'alpha' twice", by_checker=False)


def test_required_attributes_must_be_there(tmp_path: Path) -> None:
    refused(model([node("Cast", ["x"], ["y"])]), tmp_path, "the attribute 'to' is missing")


def test_every_kind_of_attribute_is_read(tmp_path: Path) -> None:
    """Through Constant, which has one of each."""
    constants = {
        "value_float": (1.5, FLOAT),
        "value_floats": ([1.5, 2.5], FLOAT),
        "value_int": (7, INT64),
        "value_ints": ([7, 8], INT64),
        "value": (tensor("", [[1, 2]]), FLOAT),
    }
    for name, (value, dtype) in constants.items():
        expected = onnx.numpy_helper.to_array(value) if name == "value" else np.array(value)
        proto = model([node("Constant", [], ["y"], **{name: value})], [], [info("y", expected.shape, dtype)])
        found = results(loaded(proto, tmp_path))["y"]
        np.testing.assert_array_equal(found, expected)


def test_operators_that_are_not_there_are_named(tmp_path: Path) -> None:
    refused(model([node("Reelu", ["x"], ["y"])]), tmp_path, "no such operator", "did you mean 'Relu'?")
    refused(model([node("Gelu", ["x"], ["y"])], opset=13), tmp_path, "does not have this operator yet")
    refused(
        model([node("Relu", ["x"], ["y"], domain="my")]),
        tmp_path,
        "the domain 'my' is not the standard's",
        by_checker=False,
    )
    proto = model([node("Relu", ["x"], ["y"], domain="my")], imports={"my": 1})
    refused(proto, tmp_path, "the domain 'my' is not the standard's", by_checker=False)


def test_models_must_say_what_they_import(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])])
    del proto.opset_import[:]
    refused(proto, tmp_path, "imports no operator set")
    proto = model([node("Neg", ["x"], ["y"])])
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 20))
    refused(proto, tmp_path, "in two versions", by_checker=False)
    refused(model([node("Neg", ["x"], ["y"])], opset=999), tmp_path, "the newest that", by_checker=False)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for content, message in ((b"", "no graph"), (b"\xff" * 99, "cannot be parsed"), (b"\x08\x03", "no graph")):
        path.write_bytes(content)
        with pytest.raises(CompileError, match=message) as caught:
            load(path)
        assert str(path) in str(caught.value)
    with pytest.raises(CompileError, match="cannot read"):
        load(tmp_path / "none.onnx")
    with pytest.raises(CompileError, match="cannot read"):
        load(tmp_path)


def test_graphs_inside_each_other_have_a_limit(tmp_path: Path) -> None:
    def leaf(name: str) -> onnx.GraphProto:
        return graph([node("Identity", ["x"], [name])], [], [info(name)])

    inner = leaf("b0")
    for level in range(1, 28):
        branch = node("If", ["c"], [f"b{level}"], then_branch=inner, else_branch=leaf(f"e{level}"))
        inner = graph([branch], [], [info(f"b{level}")])
    proto = model([node("If", ["c"], ["y"], then_branch=inner, else_branch=leaf("e"))], [info("x"), info("c", (), 9)])
    with pytest.raises(CompileError, match="nested more than"):
        loaded(proto, tmp_path)


def test_results_that_no_memory_holds_are_refused(tmp_path: Path) -> None:
    shape = tensor("s", [1 << 20, 1 << 20, 1 << 20, 2, 3], np.int64)
    refused(
        model([node("Expand", ["x", "s"], ["y"])], None, [info("y", None)], [shape]),
        tmp_path,
        "makes 'y'",
        by_checker=False,
    )
    shape = tensor("s", [1 << 45], np.int64)
    refused(
        model([node("ConstantOfShape", ["s"], ["y"])], [], [info("y", None)], [shape]),
        tmp_path,
        "makes 'y'",
        by_checker=False,
    )


def test_cut_files_are_refused(tmp_path: Path) -> None:
    whole = save(model([node("Add", ["x", "w"], ["y"])], None, None, [tensor("w", [1, 2, 3])]), tmp_path).read_bytes()
    path = tmp_path / "cut.onnx"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(CompileError):
            load(path)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_models_or_errors(tmp_path: Path, seed: int) -> None:
    """Whatever single bytes become: no other exception, no crash."""
    inner = graph([node("Add", ["x", "w"], ["t"])], [], [info("t")], name="inner")
    nodes = [node("If", ["c"], ["h"], then_branch=inner, else_branch=inner), node("Softmax", ["h"], ["y"], axis=1)]
    whole = save(model(nodes, [info("x"), info("c", (), 9)], None, [tensor("w", X)]), tmp_path).read_bytes()
    rng, path = np.random.default_rng(seed), tmp_path / "damaged.onnx"
    outcomes = set()
    for _ in range(150):
        data = bytearray(whole)
        for position in rng.integers(0, len(whole), rng.integers(1, 4)):
            data[position] = rng.integers(256)
        path.write_bytes(data)
        try:
            load(path)
            outcomes.add("model")
        except CompileError:
            outcomes.add("error")
        with suppress(CompileError):
            outline(path)
    assert outcomes == {"model", "error"}


@pytest.mark.parametrize("name", [b"Neg", b"the-node", b"dom", b"in-", b"out-"])
def test_names_must_be_text(tmp_path: Path, name: bytes) -> None:
    """Whatever is instead of a letter."""
    made = helper.make_node("Neg", ["in-"], ["out-"], name="the-node", domain="dom")
    path = save(model([made], [info("in-")], [info("out-")], imports={"dom": 1}), tmp_path)
    path.write_bytes(path.read_bytes().replace(name, b"\xff" + name[1:]))
    with pytest.raises(CompileError, match="not UTF-8"):
        load(path)
