"""`If`, `Loop` and `Scan` that are decided or unrolled at compile time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_models import BOOL, FLOAT, INT64, graph, info, loaded, model, node, results, tensor
from tvm import relax

from nnefc.frontends.onnx import lowering
from nnefc.ir.network import Network
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3)).astype(np.float32)


def operations(network: Network) -> list[str]:
    """Names of what is left to do, without copies of results."""
    names = []
    for binding in network.module["main"].body.blocks[0].bindings:
        if not isinstance(binding.value, relax.Call):
            continue
        name = binding.value.op.name
        if name == "relax.call_tir":
            name = binding.value.args[0].name_hint
        names.append(name.removeprefix("relax."))
    return [name for name in names if not name.startswith("copy")]


def agrees(proto: onnx.ModelProto, folder: Path, inputs: dict[str, Any], **options: Any) -> Network:
    """The network gives what onnxruntime gives."""
    network = loaded(proto, folder, **options)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    found = results(network, **{name: inputs[name] for name in network.inputs})
    for name, array in zip((info_.name for info_ in proto.graph.output), expected, strict=True):
        assert found[name].shape == np.shape(array)
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
    return network


def choice(*conditions: Any, then_shape: tuple[int, ...] = (2, 3)) -> onnx.ModelProto:
    then = graph([node("Exp", ["x"], ["t"])], [], [info("t", None)], name="then")
    if then_shape != (2, 3):
        then = graph([node("ReduceSum", ["x"], ["t"], keepdims=0)], [], [info("t", None)], name="then")
    other = graph([node("Neg", ["x"], ["e"])], [], [info("e", None)], name="else")
    return model(
        [node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other)],
        [info("x"), *conditions],
        [info("y", None)],
    )


@pytest.mark.parametrize(("value", "operation"), [(True, "exp"), (False, "negative")])
def test_a_known_condition_leaves_one_branch(tmp_path: Path, value: bool, operation: str) -> None:
    proto = choice()
    proto.graph.initializer.append(tensor("c", value, np.bool_))
    network = agrees(proto, tmp_path, {"x": X})
    assert operations(network) == [operation]


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.sample(2)
def test_a_computed_condition_picks_a_result(tmp_path: Path, value: bool, shape: tuple[int, ...]) -> None:
    agrees(choice(info("c", shape, BOOL)), tmp_path, {"x": X, "c": np.full(shape, value)})


def test_branches_of_a_computed_condition_have_one_shape(tmp_path: Path) -> None:
    proto = choice(info("c", (), BOOL), then_shape=())
    with pytest.raises(CompileError, match=r"'choice' \(If\): the branches give float32\[\] and float32\[2, 3\]"):
        loaded(proto, tmp_path)


def looping(
    body: onnx.GraphProto, inputs: list[str], outputs: list[onnx.ValueInfoProto], **constants: Any
) -> onnx.ModelProto:
    initializers = [tensor(name, value, np.asarray(value).dtype) for name, value in constants.items()]
    known = {*constants, "x", ""}
    free = [info(name, (), INT64 if name == "m" else BOOL) for name in inputs if name not in known]
    names = [output.name for output in outputs]
    return model([node("Loop", inputs, names, name="loop", body=body)], [info("x"), *free], outputs, initializers)


def body(nodes: list[onnx.NodeProto], states: int = 1, scans: int = 0) -> onnx.GraphProto:
    inputs = [info("i", (), INT64), info("go", (), BOOL), *(info(f"s{k}", None) for k in range(states))]
    outputs = [
        info("on", (), BOOL),
        *(info(f"t{k}", None) for k in range(states)),
        *(info(f"o{k}", None) for k in range(scans)),
    ]
    return graph(nodes, inputs, outputs, name="body")


ADD = [node("Identity", ["go"], ["on"]), node("Add", ["s0", "x"], ["t0"])]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_known_trip_count_is_unrolled(tmp_path: Path, count: int) -> None:
    proto = looping(body(ADD), ["m", "", "x"], [info("y")], m=np.int64(count))
    network = agrees(proto, tmp_path, {"x": X})
    assert operations(network) == ["add"] * count


def test_scan_outputs_are_stacked(tmp_path: Path) -> None:
    made = body([*ADD, node("Cast", ["i"], ["f"], to=FLOAT), node("Mul", ["t0", "f"], ["o0"])], scans=1)
    agrees(looping(made, ["m", "", "x"], [info("y"), info("all", None)], m=np.int64(4)), tmp_path, {"x": X})


def test_scan_outputs_of_no_iterations_are_empty(tmp_path: Path) -> None:
    made = body([*ADD, node("Neg", ["t0"], ["o0"])], scans=1)
    made.output[2].CopyFrom(info("o0", (2, 3)))
    network = loaded(looping(made, ["m", "", "x"], [info("y"), info("all", None)], m=np.int64(0)), tmp_path)
    found = results(network, x=X)
    assert found["all"].shape == (0, 2, 3)
    np.testing.assert_array_equal(found["y"], X)


def test_a_loop_may_end_by_a_known_condition(tmp_path: Path) -> None:
    nodes = [node("Less", ["i", "three"], ["on"]), node("Add", ["s0", "x"], ["t0"])]
    proto = looping(body(nodes), ["", "yes", "x"], [info("y")], yes=np.True_, three=np.int64(3))
    assert operations(agrees(proto, tmp_path, {"x": X})) == ["add"] * 4


def test_states_may_change_their_shape(tmp_path: Path) -> None:
    nodes = [node("Identity", ["go"], ["on"]), node("Concat", ["s0", "x"], ["t0"], axis=0)]
    agrees(looping(body(nodes), ["m", "", "x"], [info("y", None)], m=np.int64(3)), tmp_path, {"x": X})


UNTIL = [
    node("Add", ["s0", "x"], ["t0"]),
    node("ReduceSum", ["t0"], ["total"], keepdims=0),
    node("Less", ["total", "limit"], ["on"]),
]


@pytest.mark.parametrize("limit", [-100, 10, 25, 1000])
@pytest.mark.sample(2)
def test_a_loop_that_stops_by_a_computed_condition(tmp_path: Path, limit: float) -> None:
    proto = looping(body(UNTIL), ["m", "yes", "x"], [info("y")], m=np.int64(7), yes=np.True_, limit=np.float32(limit))
    agrees(proto, tmp_path, {"x": np.ones((2, 3), np.float32)})


def test_a_loop_that_stops_by_a_computed_condition_gives_as_many_elements(tmp_path: Path) -> None:
    outputs = [info("y"), info("all", None)]
    inner = body([*UNTIL, node("Neg", ["t0"], ["o0"])], scans=1)
    proto = looping(inner, ["m", "yes", "x"], outputs, m=np.int64(7), yes=np.True_, limit=np.float32(10))
    agrees(proto, tmp_path, {"x": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize("first", [True, False])
def test_a_loop_may_not_begin_at_all(tmp_path: Path, first: bool) -> None:
    proto = looping(body(ADD), ["m", "c", "x"], [info("y")], m=np.int64(3))
    agrees(proto, tmp_path, {"x": X, "c": np.array(first)})


def test_loops_that_cannot_be_are_refused(tmp_path: Path) -> None:
    cases = {
        "nothing ends it": looping(body(ADD), ["", "", "x"], [info("y")]),
        "its body takes 2 values from one iteration to the next, the node gives 1": looping(
            body([*ADD, node("Identity", ["s1"], ["t1"])], states=2), ["m", "", "x"], [info("y")], m=np.int64(1)
        ),
    }
    for message, proto in cases.items():
        with pytest.raises(CompileError) as caught:
            loaded(proto, tmp_path)
        assert "'loop' (Loop)" in str(caught.value)
        assert message in str(caught.value)


def scanning(**attributes: Any) -> onnx.ModelProto:
    inner = graph(
        [node("Add", ["s", "a"], ["t"]), node("Mul", ["t", "w"], ["o"])],
        [info("s", (3,)), info("a", (3,))],
        [info("t", (3,)), info("o", (3,))],
        name="inner",
    )
    return model(
        [node("Scan", ["z", "x"], ["last", "all"], body=inner, num_scan_inputs=1, **attributes)],
        [info("x", (4, 3) if "scan_input_axes" not in attributes else (3, 4))],
        [info("last", (3,)), info("all", None)],
        [tensor("z", [0, 0, 0]), tensor("w", [1, 2, 3])],
    )


def test_a_scan_goes_through_its_inputs(tmp_path: Path) -> None:
    agrees(scanning(), tmp_path, {"x": RNG.standard_normal((4, 3)).astype(np.float32)})


def test_a_scan_has_axes_and_directions(tmp_path: Path) -> None:
    proto = scanning(scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[-1], scan_output_directions=[1])
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    sums = np.cumsum(x[:, ::-1], axis=1)
    found = results(loaded(proto, tmp_path), x=x)
    np.testing.assert_allclose(found["last"], sums[:, -1], rtol=1e-5)
    np.testing.assert_allclose(found["all"], (sums * np.array([[1], [2], [3]]))[:, ::-1], rtol=1e-5)


def test_loops_inside_each_other(tmp_path: Path) -> None:
    """The inner one uses values of the outer one and of the graph."""
    inner = graph(
        [node("Identity", ["ig"], ["ion"]), node("Add", ["u", "s0"], ["v"])],
        [info("ii", (), INT64), info("ig", (), BOOL), info("u", None)],
        [info("ion", (), BOOL), info("v", None)],
        name="inner",
    )
    nodes = [node("Identity", ["go"], ["on"]), node("Loop", ["m", "", "x"], ["t0"], name="inside", body=inner)]
    agrees(looping(body(nodes), ["m", "", "x"], [info("y")], m=np.int64(3)), tmp_path, {"x": X})


def test_unrolling_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three loops of 100 iterations inside each other, whose states get more dimensions: they must be unrolled."""
    assert lowering._MAX_NODES == 65536
    monkeypatch.setattr(lowering, "_MAX_NODES", 2000)
    made = body([node("Identity", ["go"], ["on"]), *chain("s0", "c0", 10), node("Unsqueeze", ["c0", "axes"], ["t0"])])
    for level in range(3):
        inner = rename(made, f"_{level}")
        made = body([node("Identity", ["go"], ["on"]), node("Loop", ["m", "", "s0"], ["t0"], body=inner)])
    with pytest.raises(CompileError, match="more than 2000 nodes"):
        loaded(looping(made, ["m", "", "x"], [info("y")], m=np.int64(100), axes=np.array([0])), tmp_path)


def chain(first: str, last: str, count: int) -> list[onnx.NodeProto]:
    names = [first, *(f"{last}_{k}" for k in range(count - 1)), last]
    return [node("Identity", [a], [b]) for a, b in pairwise(names)]


def rename(made: onnx.GraphProto, suffix: str) -> onnx.GraphProto:
    """The graph with other names for all that it defines, constants and what is inside subgraphs left alone."""
    copy = onnx.GraphProto()
    copy.CopyFrom(made)
    for value in (*copy.input, *copy.output):
        value.name += suffix
    for element in copy.node:
        for names in (element.input, element.output):
            names[:] = [name if name in ("m", "x", "axes", "") else name + suffix for name in names]
    return copy
