"""Functions: the model's own, and those by which the standard defines operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_models import FLOAT, info, loaded, model, node, results

from nnefc.frontends.onnx import lowering
from nnefc.frontends.onnx.operator import OPERATORS
from nnefc.support.diagnostics import CompileError

X = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]


def function(
    name: str,
    inputs: list[str],
    outputs: list[str],
    nodes: list[onnx.NodeProto],
    attributes: tuple[str, ...] = (),
    **more,
) -> onnx.FunctionProto:  # type: ignore[no-untyped-def]
    opsets = more.pop("opsets", OPSETS)
    return helper.make_function("my", name, inputs, outputs, nodes, opsets, list(attributes), **more)


def refers(made: onnx.NodeProto, name: str, to: str, kind: int) -> onnx.NodeProto:
    made.attribute.append(AttributeProto(name=name, ref_attr_name=to, type=kind))
    return made


def using(functions: list[onnx.FunctionProto], *nodes: onnx.NodeProto) -> onnx.ModelProto:
    return model(list(nodes), imports={"my": 1}, functions=functions)


def message_of(proto: onnx.ModelProto, folder: Path) -> str:
    with pytest.raises(CompileError) as caught:
        loaded(proto, folder)
    return str(caught.value)


SWISH = function("Swish", ["a"], ["b"], [node("Sigmoid", ["a"], ["s"]), node("Mul", ["a", "s"], ["b"])])


def call(
    name: str = "Swish", inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("y",), **more
) -> onnx.NodeProto:  # type: ignore[no-untyped-def]
    return node(name, list(inputs), list(outputs), domain="my", **more)


def test_a_function_is_replaced_by_its_body(tmp_path: Path) -> None:
    proto = using([SWISH], call(outputs=("h",)), call(inputs=("h",)))
    onnx.checker.check_model(proto)
    np.testing.assert_allclose(
        results(loaded(proto, tmp_path), x=X)["y"], ReferenceEvaluator(proto).run(None, {"x": X})[0], rtol=1e-5
    )


def test_functions_call_functions(tmp_path: Path) -> None:
    twice = function("Twice", ["a"], ["c"], [call(inputs=("a",), outputs=("b",)), call(inputs=("b",), outputs=("c",))])
    proto = using([SWISH, twice], call("Twice"))
    swish = lambda v: v / (1 + np.exp(-v))  # noqa: E731
    np.testing.assert_allclose(results(loaded(proto, tmp_path), x=X)["y"], swish(swish(X)), rtol=1e-5)


def test_names_of_a_body_are_its_own(tmp_path: Path) -> None:
    """`x`, `s` and `y` mean other things inside; names outside are not seen."""
    odd = function("Odd", ["y"], ["x"], [node("Neg", ["y"], ["s"]), node("Exp", ["s"], ["x"])])
    np.testing.assert_allclose(results(loaded(using([odd], call("Odd")), tmp_path), x=X)["y"], np.exp(-X), rtol=1e-5)
    peeking = function("Peeking", ["a"], ["b"], [node("Add", ["a", "x"], ["b"])])
    assert "no node computes its input 'x'" in message_of(using([peeking], call("Peeking")), tmp_path)


def test_attributes_are_passed_on(tmp_path: Path) -> None:
    leaky = function(
        "Leaky",
        ["a"],
        ["b"],
        [refers(node("LeakyRelu", ["a"], ["b"]), "alpha", "slope", AttributeProto.FLOAT)],
        ("slope",),
    )
    proto = using([leaky], call("Leaky", slope=0.25))
    np.testing.assert_allclose(results(loaded(proto, tmp_path), x=X)["y"], np.where(X < 0, X / 4, X), rtol=1e-5)
    left_out = results(loaded(using([leaky], call("Leaky")), tmp_path), x=X)["y"]
    np.testing.assert_allclose(left_out, np.where(X < 0, X / 100, X), rtol=1e-5)  # LeakyRelu's own default
    cast = function(
        "Cast_", ["a"], ["b"], [refers(node("Cast", ["a"], ["b"]), "to", "kind", AttributeProto.INT)], ("kind",)
    )
    assert "the attribute 'to' is missing" in message_of(using([cast], call("Cast_")), tmp_path)
    assert "no attribute 'sloop'" in message_of(using([leaky], call("Leaky", slope=1.0, sloop=1.0)), tmp_path)


def test_attributes_of_functions_have_defaults(tmp_path: Path) -> None:
    body = [refers(node("LeakyRelu", ["a"], ["b"]), "alpha", "slope", AttributeProto.FLOAT)]
    leaky = function("Leaky", ["a"], ["b"], body, attribute_protos=[helper.make_attribute("slope", 0.5)])
    for given, slope in (({}, 0.5), ({"slope": 0.125}, 0.125)):
        proto = using([leaky], call("Leaky", **given))
        np.testing.assert_allclose(results(loaded(proto, tmp_path), x=X)["y"], np.where(X < 0, X * slope, X), rtol=1e-5)


def test_inputs_of_functions_may_be_left_out(tmp_path: Path) -> None:
    clip = function("MyClip", ["a", "low", "high"], ["b"], [node("Clip", ["a", "low", "high"], ["b"])])
    for inputs in (("x",), ("x", "", "")):
        found = results(loaded(using([clip], call("MyClip", inputs)), tmp_path), x=X)["y"]
        np.testing.assert_array_equal(found, X)
    text = message_of(using([clip], call("MyClip", ("x", "x", "x", "x"))), tmp_path)
    assert "3 inputs, the node 4" in text


def test_a_body_has_imports_of_its_own(tmp_path: Path) -> None:
    """Softmax means another thing in version 12 of the standard."""
    old = function("Old", ["a"], ["b"], [node("Softmax", ["a"], ["b"], axis=0)], opsets=[helper.make_opsetid("", 12)])
    found = results(loaded(using([old], call("Old")), tmp_path), x=X)["y"]
    exp = np.exp(X)
    np.testing.assert_allclose(found, exp / exp.sum(), rtol=1e-5)


def test_functions_may_be_overloaded(tmp_path: Path) -> None:
    one = function("F", ["a"], ["b"], [node("Neg", ["a"], ["b"])], overload="one")
    two = function("F", ["a"], ["b"], [node("Exp", ["a"], ["b"])], overload="two")
    for overload, expected in (("one", -X), ("two", np.exp(X))):
        proto = using([one, two], call("F", overload=overload))
        np.testing.assert_allclose(results(loaded(proto, tmp_path), x=X)["y"], expected, rtol=1e-5)
    assert "two functions" in message_of(using([one, one], call("F", overload="one")), tmp_path)


def test_functions_must_not_call_themselves(tmp_path: Path) -> None:
    a = function("A", ["a"], ["b"], [call("B", ("a",), ("b",))])
    b = function("B", ["a"], ["b"], [call("A", ("a",), ("b",))])
    assert "calls itself" in message_of(using([a, b], call("A")), tmp_path)


def test_bodies_that_grow_exponentially_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lowering._MAX_NODES == 65536
    monkeypatch.setattr(lowering, "_MAX_NODES", 1000)
    functions = [SWISH]
    for level in range(40):
        inner = functions[-1].name
        parts = [call(inner, ("a",), ("h",)), call(inner, ("h",), ("b",))]
        functions.append(function(f"F{level}", ["a"], ["b"], parts))
    assert "more than 1000 nodes" in message_of(using(functions, call("F39")), tmp_path)


def test_outputs_of_a_body_must_be_made(tmp_path: Path) -> None:
    lost = function("Lost", ["a"], ["b"], [node("Neg", ["a"], ["c"])])
    assert "the function 'Lost': no node computes its output 'b'" in message_of(using([lost], call("Lost")), tmp_path)


def test_functions_see_subgraphs_of_their_own(tmp_path: Path) -> None:
    branch = helper.make_graph([node("Exp", ["a"], ["t"])], "t", [], [info("t", None)])
    other = helper.make_graph([node("Neg", ["a"], ["e"])], "e", [], [info("e", None)])
    nodes = [
        refers(node("Constant", [], ["k"]), "value_int", "which", AttributeProto.INT),
        node("Cast", ["k"], ["c"], to=onnx.TensorProto.BOOL),
        node("If", ["c"], ["b"], then_branch=branch, else_branch=other),
    ]
    pick = function("Pick", ["a"], ["b"], nodes, ("which",))
    for which, expected in ((1, np.exp(X)), (0, -X)):
        found = results(loaded(using([pick], call("Pick", which=which)), tmp_path), x=X)["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


CONTEXT = [("MeanVarianceNormalization", 13, {"axes": [1]}), ("Celu", 12, {"alpha": 0.7}), ("Gelu", 20, {})]


@pytest.mark.parametrize(("op_type", "version", "attributes"), CONTEXT)
def test_operators_without_a_lowering_come_from_their_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op_type: str, version: int, attributes: dict[str, object]
) -> None:
    """Bodies of the standard, fixed ones and those that depend on types and attributes."""
    assert OPERATORS[op_type], "it has one, which is taken away"
    monkeypatch.setitem(OPERATORS.declared, op_type, {})
    proto = model([node(op_type, ["x"], ["y"], **attributes)], opset=version)
    expected = ReferenceEvaluator(proto).run(None, {"x": X})[0]
    np.testing.assert_allclose(results(loaded(proto, tmp_path), x=X)["y"], expected, rtol=1e-4, atol=1e-5)


def test_operators_without_either_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPERATORS["Neg"]
    monkeypatch.setitem(OPERATORS.declared, "Neg", {})
    text = message_of(model([node("Neg", ["x"], ["y"], name="n")], None, [info("y", (2, 3), FLOAT)]), tmp_path)
    assert "node 'n' (Neg): the operator is not supported" in text
