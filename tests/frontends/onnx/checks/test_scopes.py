"""Names and scopes: single assignment, order, cycles, and what subgraphs see."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import BOOL, graph, info, loaded, model, node, results, tensor

from nnefc.frontends.onnx.checks.topological_order import in_topological_order
from nnefc.frontends.onnx.files.model import NodeDef
from nnefc.support.diagnostics import CompileError, ModelWarning

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
CONDITION = info("c", (), BOOL)


def message_of(proto: onnx.ModelProto, folder: Path) -> str:
    with pytest.raises(CompileError) as caught:
        loaded(proto, folder)
    return str(caught.value)


def branches(then: list[onnx.NodeProto], initializers: list[onnx.TensorProto] | None = None) -> onnx.ModelProto:
    """`y` is what `then` makes of `t`, if `c` holds, else `-x`."""
    return model(
        [
            node("Exp", ["x"], ["h"], name="first"),
            node(
                "If",
                ["c"],
                ["y"],
                name="choice",
                then_branch=graph(then, [], [info("t")], initializers or []),
                else_branch=graph([node("Neg", ["x"], ["e"])], [], [info("e")]),
            ),
            node("Exp", ["y"], ["z"], name="last"),
        ],
        [info("x"), CONDITION],
        [info("z")],
    )


def test_names_of_node_outputs_are_unique(tmp_path: Path) -> None:
    text = message_of(model([node("Neg", ["x"], ["y"], name="a"), node("Exp", ["x"], ["y"], name="b")]), tmp_path)
    assert "'y' is computed by node 'a' (Neg) and again by node 'b' (Exp)" in text


def test_a_node_must_not_make_an_input_or_an_initializer(tmp_path: Path) -> None:
    text = message_of(model([node("Neg", ["x"], ["x"], name="a")], None, [info("x")]), tmp_path)
    assert "node 'a' (Neg): its output 'x' has the name of an input or initializer" in text
    text = message_of(model([node("Neg", ["x"], ["w"])], None, [info("w")], [tensor("w", X)]), tmp_path)
    assert "its output 'w' has the name of an input or initializer" in text


def test_two_inputs_or_initializers_have_two_names(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])], [info("x"), info("x")])
    assert "two inputs 'x'" in message_of(proto, tmp_path)
    proto = model([node("Add", ["x", "w"], ["y"])], None, None, [tensor("w", 1), tensor("w", 2)])
    assert "two initializers 'w'" in message_of(proto, tmp_path)


def test_inputs_must_be_made_by_something(tmp_path: Path) -> None:
    text = message_of(model([node("Add", ["x", "nothing"], ["y"], name="sum")]), tmp_path)
    assert "node 'sum' (Add): no node computes its input 'nothing'" in text


def test_outputs_must_be_made_by_something(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])], None, [info("q")])
    assert "no node computes its output 'q'" in message_of(proto, tmp_path)


def test_nodes_out_of_topological_order_are_sorted_with_a_warning(tmp_path: Path) -> None:
    """In subgraphs and functions too; a subgraph may be what needs a later node."""
    inner = graph([node("Neg", ["u"], ["t"]), node("Add", ["x", "h"], ["u"])], [], [info("t")])
    proto = branches([])
    next(element for element in proto.graph.node[1].attribute if element.name == "then_branch").g.CopyFrom(inner)
    nodes = [*proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes[::-1])
    with pytest.warns(ModelWarning) as caught:
        network = loaded(proto, tmp_path)
    texts = [str(element.message) for element in caught]
    assert len(texts) == 2
    assert "model.onnx: the nodes of the graph of attribute 'then_branch' of node 'choice' (If) are not in" in texts[0]
    assert "model.onnx: the nodes of the model's graph are not in topological order" in texts[1]
    for condition, expected in ((True, np.exp(-X - np.exp(X))), (False, np.exp(-X))):
        np.testing.assert_allclose(results(network, x=X, c=np.array(condition))["z"], expected, rtol=1e-5)


def test_a_long_chain_of_nodes_in_reverse_is_sorted() -> None:
    count = range(20_000)
    nodes = tuple(NodeDef("Neg", "", "", "", (f"h{i}",), (f"h{i + 1}",), {}, {}) for i in reversed(count))
    ordered = in_topological_order(nodes, ["h0"])
    assert [element.outputs[0] for element in ordered] == [f"h{i + 1}" for i in count]


def test_cycles_are_shown(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "q"], ["p"], name="a"), node("Neg", ["p"], ["q"], name="b")]
    text = message_of(model([*nodes, node("Exp", ["q"], ["y"])]), tmp_path)
    assert "depends on itself" in text
    assert "node 'a' (Add)" in text
    assert "node 'b' (Neg)" in text


def test_cycles_through_subgraphs_are_found(tmp_path: Path) -> None:
    """The branch needs what is made of the result of its own node."""
    text = message_of(branches([node("Add", ["x", "z"], ["t"], name="inner")]), tmp_path)
    assert "needs 'z', which depends on itself" in text
    assert "node 'choice' (If)" in text
    text = message_of(branches([node("Add", ["x", "y"], ["t"], name="inner")]), tmp_path)
    assert "node 'choice' (If) needs 'y', which depends on itself" in text


def test_subgraphs_see_outer_names(tmp_path: Path) -> None:
    network = loaded(branches([node("Add", ["x", "h"], ["t"])]), tmp_path)
    for condition, expected in ((True, np.exp(X + np.exp(X))), (False, np.exp(-X))):
        np.testing.assert_allclose(results(network, x=X, c=np.array(condition))["z"], expected, rtol=1e-5)


def test_subgraphs_have_initializers(tmp_path: Path) -> None:
    network = loaded(branches([node("Add", ["x", "w"], ["t"])], [tensor("w", 2)]), tmp_path)
    np.testing.assert_allclose(results(network, x=X, c=np.array(True))["z"], np.exp(X + 2), rtol=1e-5)


def test_outputs_of_a_subgraph_are_computed(tmp_path: Path) -> None:
    proto = branches([node("Neg", ["x"], ["t"])])
    proto.graph.node[1].attribute[1].g.output[0].name = "nothing"
    assert "no node computes its output 'nothing'" in message_of(proto, tmp_path)


def test_names_of_one_branch_are_not_seen_in_the_other(tmp_path: Path) -> None:
    proto = branches([node("Add", ["x", "e"], ["t"])])
    assert "no node computes its input 'e'" in message_of(proto, tmp_path)


def test_names_of_a_subgraph_are_not_seen_outside(tmp_path: Path) -> None:
    proto = branches([node("Neg", ["x"], ["t"])])
    proto.graph.node[2].input[0] = "t"
    assert "no node computes its input 't'" in message_of(proto, tmp_path)


def test_both_branches_may_use_one_name(tmp_path: Path) -> None:
    proto = branches([node("Neg", ["x"], ["e"]), node("Identity", ["e"], ["t"])])
    loaded(proto, tmp_path)


def test_nodes_of_a_subgraph_must_not_hide_outer_names(tmp_path: Path) -> None:
    proto = branches([node("Neg", ["x"], ["h"], name="inner"), node("Identity", ["h"], ["t"])])
    text = message_of(proto, tmp_path)
    assert "node 'inner' (Neg): its output 'h' has the name of a value of an outer graph" in text


def test_a_name_in_a_subgraph_is_not_an_input_and_an_initializer(tmp_path: Path) -> None:
    proto = branches([node("Add", ["x", "w"], ["t"])], [tensor("w", 2)])
    proto.graph.node[1].attribute[1].g.input.append(info("w", ()))
    assert "'w' is both an input and an initializer" in message_of(proto, tmp_path)


def test_branches_that_never_run_are_checked_too(tmp_path: Path) -> None:
    proto = branches([node("Reelu", ["x"], ["t"])])
    proto.graph.initializer.append(tensor("c", False, np.bool_))
    assert "no such operator" in message_of(proto, tmp_path)


def test_types_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    w = tensor("w", [1, 2, 3], np.int64)
    text = message_of(model([node("Add", ["x", "w"], ["y"], name="sum")], None, None, [w]), tmp_path)
    assert "node 'sum' (Add): 'x' is tensor(float) and 'w' is tensor(int64)" in text
    text = message_of(model([node("Not", ["x"], ["y"], name="n")]), tmp_path)
    assert "node 'n' (Not): its input 'X', the tensor 'x', is tensor(float)" in text


def test_declared_types_must_be_the_computed_ones(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])], None, [info("y", (2, 3), onnx.TensorProto.INT64)])
    assert "'y' is declared as int64, but it is float32" in message_of(proto, tmp_path)


@pytest.mark.parametrize(
    ("name", "declared", "reason"),
    [
        ("h", (3, 3), "'h' is declared with 3 at axis 0, [2, 3] has 2"),
        ("h", (2, 3, 1), "'h' is declared with the rank 3"),
        ("y", (2, 1), "'y' is declared with 1 at axis 1, [2, 3] has 3"),
        ("y", (), "'y' is declared with the rank 0"),
    ],
)
def test_shapes_declared_wrongly_are_warned_of(
    tmp_path: Path, name: str, declared: tuple[int, ...], reason: str
) -> None:
    """The computed shape holds, of outputs too."""
    nodes = [node("Neg", ["x"], ["h"]), node("Neg", ["h"], ["y"])]
    wrong = info(name, declared)
    made = graph(nodes, value_info=[wrong]) if name == "h" else graph(nodes, None, [wrong])
    with pytest.warns(
        ModelWarning, match=re.escape(f"model.onnx: a declared shape is wrong, the computed one holds: {reason}")
    ):
        network = loaded(model(made), tmp_path)
    np.testing.assert_array_equal(results(network, x=X)["y"], X)


def test_the_warning_names_a_location_outside_of_the_compiler(tmp_path: Path) -> None:
    with pytest.warns(ModelWarning) as caught:
        loaded(model([node("Neg", ["x"], ["y"])], None, [info("y", (3,))]), tmp_path)
    assert Path(caught[0].filename).name == "onnx_models.py"


def test_shapes_that_do_not_fit_name_the_node(tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"], ["y"], name="sum")], None, None, [tensor("w", [1, 2])])
    assert "node 'sum' (Add)" in message_of(proto, tmp_path)
