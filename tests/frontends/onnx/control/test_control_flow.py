"""`If`, `Loop` and `Scan` that run as values computed at run time say, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_models import BOOL, FLOAT, INT64, graph, info, loaded, model, node, tensor
from random_control_flow import random_control_flow

from nnefc.driver.compile import compile_network
from nnefc.frontends.onnx.operator import Context
from nnefc.ir.network import If, Loop, Network
from nnefc.loader import Model, RunError
from nnefc.support.diagnostics import CompileError, ModelWarning
from nnefc.targets.machine.cpu.parsing import parse_target

RNG = np.random.default_rng(11)
X = RNG.standard_normal((2, 3)).astype(np.float32)
GO = node("Identity", ["go"], ["on"])


def running(network: Network) -> Model:
    return compile_network(network, parse_target("llvm")).load(threads=1)


def agrees(proto: onnx.ModelProto, folder: Path, *runs: Mapping[str, Any]) -> Network:
    """The library gives what onnxruntime gives, run after run in one session."""
    onnx.checker.check_model(proto)
    network = loaded(proto, folder)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with running(network) as library:
        for inputs in runs:
            arrays = {name: np.asarray(value) for name, value in inputs.items()}
            found = library.run({name: arrays[name] for name in network.inputs})
            for output, expected in zip(proto.graph.output, session.run(None, arrays), strict=True):
                assert found[output.name].shape == np.shape(expected)
                np.testing.assert_allclose(found[output.name], expected, rtol=1e-4, atol=1e-5, err_msg=output.name)
    return network


def body(nodes: list[onnx.NodeProto], states: int = 1, scans: int = 0, **types: Any) -> onnx.GraphProto:
    """States `s0`… to `t0`…, the outputs of each iteration `o0`…; float32 without a shape but where `types` say
    more."""
    typed = [types.get(f"s{k}", info(f"s{k}", None)) for k in range(states)]
    new = [info(f"t{k}", None, value.type.tensor_type.elem_type) for k, value in enumerate(typed)]
    return graph(
        nodes,
        [info("i", (), INT64), info("go", (), BOOL), *typed],
        [info("on", (), BOOL), *new, *(info(f"o{k}", None) for k in range(scans))],
        name="body",
    )


@pytest.mark.parametrize("possible", [True, False])
@pytest.mark.sample(1)
def test_a_branch_that_cannot_be_computed_fails_when_it_is_taken(tmp_path: Path, possible: bool) -> None:
    """A detector of voices has a branch for each rate, whose frames differ in length. Nested, for the depth of it."""
    good = graph(
        [node("Reshape", ["x", "six"], ["t"]), node("Identity", ["n"], ["tn"])],
        [],
        [info("t", None), info("tn", None, INT64)],
    )
    inner = node(
        "If",
        ["d"],
        ["b"],
        then_branch=graph([node("Reshape", ["x", "seven"], ["bt"])], [], [info("bt", None)]),
        else_branch=graph([node("Reshape", ["x", "eight"], ["be"])], [], [info("be", None)]),
    )
    bad = graph(
        [inner, node("Neg", ["b"], ["e"]), node("Identity", ["n"], ["en"])],
        [],
        [info("e", None), info("en", None, INT64)],
    )
    then, other = (good, bad) if possible else (bad, good)
    proto = model(
        [node("If", ["c"], ["y", "m"], then_branch=then, else_branch=other)],
        [info("x"), info("n", (2,), INT64), info("c", (), BOOL), info("d", (), BOOL)],
        [info("y", (6,)), info("m", (2,), INT64)],
        [tensor(name, [count], np.int64) for name, count in (("six", 6), ("seven", 7), ("eight", 8))],
    )
    inputs = {"x": X, "n": np.array([3, 4]), "c": np.bool_(possible), "d": np.bool_(True)}
    with pytest.warns(
        ModelWarning, match=r"a run that takes the branch 'g' will fail, it cannot be computed: .*Reshape"
    ):
        network = agrees(proto, tmp_path, inputs)
    with running(network) as library:
        with pytest.raises(RunError, match=r"the branch 'g' cannot be computed: .*Reshape"):
            library.run({**inputs, "c": np.bool_(not possible)})
        np.testing.assert_array_equal(library.run(inputs)["y"], X.ravel())


def test_one_of_the_branches_must_be_possible(tmp_path: Path) -> None:
    bad = graph([node("Reshape", ["x", "seven"], ["t"])], [], [info("t", None)])
    nodes = [node("If", ["c"], ["y"], then_branch=bad, else_branch=bad)]
    proto = model(nodes, [info("x"), info("c", (), BOOL)], [info("y", (7,))], [tensor("seven", [7], np.int64)])
    with pytest.raises(CompileError, match="Reshape"):
        loaded(proto, tmp_path)


def test_only_one_branch_runs(tmp_path: Path) -> None:
    """The other one would fail: its index is out of range."""
    proto = model(
        [
            node(
                "If",
                ["c"],
                ["y"],
                then_branch=graph([node("Gather", ["x", "k"], ["t"])], [], [info("t", (3,))]),
                else_branch=graph([node("ReduceSum", ["x", "axis"], ["e"], keepdims=0)], [], [info("e", (3,))]),
            )
        ],
        [info("x"), info("k", (), INT64), info("c", (), BOOL)],
        [info("y", (3,))],
        [tensor("axis", [0], np.int64)],
    )
    runs = [{"x": X, "k": np.int64(k), "c": np.bool_(c)} for k, c in [(1, True), (77, False), (0, True), (-9, False)]]
    network = agrees(proto, tmp_path, *runs)
    assert [type(control) for control in network.controls] == [If]
    with running(network) as library, pytest.raises(RunError, match="range"):
        library.run({"x": X, "k": np.int64(77), "c": np.bool_(True)})


def test_branches_may_give_what_is_there_already(tmp_path: Path) -> None:
    """Inputs, constants, a value of the graph around, the same twice, zeros of both signs."""
    names = [("x", "x_"), ("w", "w_"), ("t", "t2"), ("h", "h_"), ("zero", "z")]
    then = graph([node("Neg", ["x"], ["t"])], [], [info(n) for n in ("x_", "w_", "t", "t2", "h_", "z")], name="then")
    then.node.extend([node("Identity", [a], [b]) for a, b in names])
    other = graph([], [], [info(f"{n}o") for n in "abcdef"], name="else")
    other.node.extend(
        [node("Identity", [a], [f"{b}o"]) for a, b in zip(["h", "w", "x", "w", "h", "minus"], "abcdef", strict=True)]
    )
    proto = model(
        [
            node("Tanh", ["x"], ["h"]),
            node("If", ["condition"], list("abcdef"), then_branch=then, else_branch=other),
            node("Reciprocal", ["f"], ["infinite"]),
        ],
        [info("x"), info("condition", (1,), BOOL)],
        [info(n) for n in (*"abcde", "infinite")],
        [
            tensor("w", RNG.standard_normal((2, 3))),
            tensor("zero", np.zeros((2, 3))),
            tensor("minus", np.full((2, 3), -0.0)),
        ],
    )
    agrees(proto, tmp_path, *({"x": X, "condition": np.array([c])} for c in (True, False)))


def test_choices_inside_others_with_sizes_that_depend_on_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each inside the branch of another one: not every one doubles how often the innermost is lowered."""
    depth, lowered, run_graph = 8, [], Context.run_graph
    last = graph([node("NonZero", ["x"], ["n"]), node("Cast", ["n"], ["e"], to=FLOAT)], [], [info("e", None)])
    for k in range(depth):
        then = graph([node("Add", ["x", f"c{k}"], [f"t{k}"])], [], [info(f"t{k}", None)])
        nodes = [
            node("Greater", ["sum", f"c{k}"], [f"b{k}"]),
            node("If", [f"b{k}"], [f"y{k}"], then_branch=then, else_branch=last),
        ]
        last = graph(nodes, [], [info(f"y{k}", None)])
    proto = model(
        [node("ReduceSum", ["x"], ["sum"], keepdims=0), *last.node],
        [info("x")],
        [info(f"y{depth - 1}", (2, "found"))],
        [tensor(f"c{k}", k) for k in range(depth)],
    )
    monkeypatch.setattr(Context, "run_graph", lambda *args: (lowered.append(args), run_graph(*args))[1])
    agrees(proto, tmp_path, *({"x": np.full((2, 3), total / 6, np.float32)} for total in (9, 3.5, -1, 0)))
    assert len(lowered) <= 4 * depth**2


def test_a_loop_ends_by_a_condition_after_many_iterations(tmp_path: Path) -> None:
    """Steps of Collatz's sequence; its greatest number is limited by nothing."""
    one, two, three = (node("Constant", [], [f"c{k}"], value=tensor("", k, np.int64)) for k in (1, 2, 3))
    half = graph([two, node("Div", ["s0", "c2"], ["h"])], [], [info("h", (), INT64)], name="half")
    up = graph(
        [one, three, node("Mul", ["s0", "c3"], ["m3"]), node("Add", ["m3", "c1"], ["u"])], [], [info("u", (), INT64)]
    )
    nodes = [
        node("Mod", ["s0", "two"], ["odd"]),
        node("Cast", ["odd"], ["is_odd"], to=BOOL),
        node("If", ["is_odd"], ["t0"], then_branch=up, else_branch=half),
        node("Add", ["s1", "one"], ["t1"]),
        node("Greater", ["t0", "one"], ["on"]),
    ]
    scalar = {f"s{k}": info(f"s{k}", (), INT64) for k in range(2)}
    proto = model(
        [
            node("Greater", ["n", "one"], ["c"]),
            node("Loop", ["", "c", "n", "zero"], ["last", "y"], body=body(nodes, 2, **scalar)),
        ],
        [info("n", (), INT64)],
        [info("last", (), INT64), info("y", (), INT64)],
        [tensor(name, k, np.int64) for name, k in [("zero", 0), ("one", 1), ("two", 2)]],
    )
    network = agrees(proto, tmp_path, *({"n": np.int64(n)} for n in (27, 1, 2, 670617279)))
    assert [type(control) for control in network.controls] == [Loop]
    with running(network) as library:  # the longest way of all numbers below 10¹²
        assert library.run({"n": np.int64(989345275647)})["y"] == 1348


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.sample(1)
def test_a_branch_whose_sizes_would_be_negative_fails_when_it_is_taken(summed: bool, tmp_path: Path) -> None:
    """A window of five over fewer elements: also where the result of the branch is of another size."""
    pool = node("MaxPool", ["x"], ["m"], kernel_shape=[5])
    then, other = ([pool, node("Neg", ["m"], ["t"])], node("Relu", ["x"], ["e"]))
    if summed:
        then, other = [pool, node("ReduceSum", ["m"], ["t"])], node("ReduceSum", ["x"], ["e"])
    branches = {"then_branch": graph(then, [], [info("t", None)]), "else_branch": graph([other], [], [info("e", None)])}
    result = info("y", (1, 1, 1) if summed else (1, 2, "k"))
    proto = model([node("If", ["c"], ["y"], **branches)], [info("c", (), BOOL), info("x", (1, 2, "n"))], [result])
    taken = [(flag, n) for n in (1, 3, 4, 5, 9) for flag in (False, True) if n >= 5 - (not summed) or not flag]
    runs = [{"c": np.array(flag), "x": RNG.standard_normal((1, 2, n)).astype(np.float32)} for flag, n in taken]
    with pytest.warns(ModelWarning, match="less than 0 for n - 4"):
        network = agrees(proto, tmp_path, *runs)
    with running(network) as library:
        for n in (1, 3):
            with pytest.raises(RunError, match="do not take less than 0 for n - 4"):
                library.run({"c": np.array(True), "x": np.zeros((1, 2, n), np.float32)})
            library.run({"c": np.array(False), "x": np.zeros((1, 2, n), np.float32)})


def test_the_first_round_of_a_loop_is_computed_in_the_loop_alone(tmp_path: Path) -> None:
    """Though its condition is constant, and data-dependent sizes are in it."""
    nodes = [
        node("Greater", ["s0", "zero"], ["positive"]),
        node("NonZero", ["positive"], ["locations"]),
        node("Cast", ["locations"], ["real"], to=FLOAT),
        node("ReduceSum", ["real"], ["sum"], keepdims=0),
        node("Add", ["s1", "sum"], ["t1"]),
        node("Sub", ["s0", "one"], ["t0"]),
        node("ReduceMax", ["t0"], ["largest"], keepdims=0),
        node("Greater", ["largest", "zero"], ["on"]),
    ]
    states = {"s0": info("s0", (7,)), "s1": info("s1", ())}
    proto = model(
        [node("Loop", ["", "yes", "x", "zero"], ["last", "y"], body=body(nodes, 2, **states))],
        [info("x", (7,))],
        [info("last", (7,)), info("y", ())],
        [tensor("yes", True, np.bool_), tensor("zero", 0, np.float32), tensor("one", 1, np.float32)],
    )
    network = agrees(proto, tmp_path, *({"x": RNG.random(7).astype(np.float32) * k} for k in (3, 9, 0.5)))
    assert not network.counts
    assert "nonzero" not in {str(gv.name_hint) for gv in network.module.functions}


@pytest.mark.parametrize("condition", ["", "c"])
def test_the_trip_count_is_an_input(tmp_path: Path, condition: str) -> None:
    made = body([GO, node("Add", ["s0", "x"], ["t0"])])
    given = [info("c", (), BOOL)] if condition else []
    proto = model(
        [node("Loop", ["m", condition, "x"], ["y"], body=made)], [info("x"), info("m", (), INT64), *given], [info("y")]
    )
    runs = [{"x": X, "m": np.int64(m)} for m in (3, 0, 1, -5, 1500)]
    agrees(proto, tmp_path, *([r | {"c": np.bool_(c)} for r in runs for c in (True, False)] if condition else runs))


@pytest.mark.parametrize("trips", [2, 1500])
def test_the_iteration_may_be_declared_as_a_vector(tmp_path: Path, trips: int) -> None:
    """As old exporters wrote it; outputs have an axis more then."""
    nodes = [GO, node("Mod", ["i", "two"], ["k"]), node("Gather", ["x", "k"], ["o0"]), node("Add", ["s0", "x"], ["t0"])]
    made = body(nodes, scans=1)
    del made.input[:2]
    for position, value in enumerate((info("i", (1,), INT64), info("go", (1,), BOOL))):
        made.input.insert(position, value)
    made.output[0].CopyFrom(info("on", (1,), BOOL))
    loop = node("Loop", ["m", "", "x"], ["y", "rows"], body=made)
    constants = [tensor(name, each, np.int64) for name, each in (("m", trips), ("two", 2))]
    proto = model([loop], [info("x")], [info("y"), info("rows", (trips, 1, 3))], constants)
    agrees(proto, tmp_path, {"x": X})


def test_states_may_change_positions(tmp_path: Path) -> None:
    nodes = [
        GO,
        node("Identity", ["s1"], ["t0"]),
        node("Add", ["s0", "s1"], ["t1"]),
        node("Identity", ["s3"], ["t2"]),
        node("Identity", ["s2"], ["t3"]),
    ]
    proto = model(
        [node("Neg", ["x"], ["n"]), node("Loop", ["m", "", "x", "n", "x", "w"], list("abcd"), body=body(nodes, 4))],
        [info("x"), info("m", (), INT64)],
        [info(name) for name in "abcdn"],
        [tensor("w", RNG.standard_normal((2, 3)))],
    )
    agrees(proto, tmp_path, *({"x": X, "m": np.int64(m)} for m in range(6)))


def test_what_a_loop_begins_with_may_be_needed_later(tmp_path: Path) -> None:
    made = body([GO, node("Mul", ["s0", "x"], ["p"]), node("Tanh", ["p"], ["t0"])])
    nodes = [
        node("Exp", ["x"], ["h"]),
        node("Loop", ["m", "", "h"], ["a"], body=made),
        node("Add", ["h", "a"], ["b"]),
        node("Loop", ["m", "", "b"], ["c"], body=made),
        node("Concat", ["c", "a", "x"], ["y"], axis=0),
    ]
    proto = model(nodes, [info("x"), info("m", (), INT64)], [info("y", (6, 3))])
    agrees(proto, tmp_path, *({"x": X, "m": np.int64(m)} for m in (0, 1, 4)))


def test_a_long_loop_has_outputs_of_each_round(tmp_path: Path) -> None:
    """More than is unrolled; the number of the round is a value too."""
    nodes = [
        GO,
        node("Cast", ["i"], ["f"], to=FLOAT),
        node("Sin", ["f"], ["w"]),
        node("Mul", ["s0", "w"], ["o0"]),
        node("Add", ["s0", "x"], ["a"]),
        node("Tanh", ["a"], ["t0"]),
        node("ReduceMax", ["t0"], ["o1"], keepdims=0),
    ]
    proto = model(
        [node("Loop", ["m", "", "x"], ["y", "all", "top"], body=body(nodes, scans=2))],
        [info("x")],
        [info("y"), info("all", (700, 2, 3)), info("top", (700,))],
        [tensor("m", 700, np.int64)],
    )
    network = agrees(proto, tmp_path, {"x": X})
    assert isinstance(network.controls[0], Loop)
    assert network.controls[0].trip_count == 700


@pytest.mark.parametrize("length", [1, 5, 400])
@pytest.mark.sample(2)
def test_a_scan_goes_along_axes_in_both_directions(tmp_path: Path, length: int) -> None:
    """One of its outputs is the state as well: iterations read it there."""
    inner = graph(
        [
            node("Add", ["s", "a"], ["sum"]),
            node("Mul", ["sum", "half"], ["t"]),
            node("Sub", ["t", "b"], ["o"]),
            node("MatMul", ["t", "w"], ["p"]),
            node("Identity", ["t"], ["q"]),
        ],
        [info("s", (3,)), info("a", (3,)), info("b", (3,))],
        [info("t", (3,)), info("o", (3,)), info("p", (2,)), info("q", (3,))],
        name="inner",
    )
    proto = model(
        [
            node(
                "Scan",
                ["z", "x", "v"],
                ["last", "o", "p", "q"],
                body=inner,
                num_scan_inputs=2,
                scan_input_axes=[1, -2],
                scan_input_directions=[1, 0],
                scan_output_axes=[-1, 0, 0],
                scan_output_directions=[0, 1, 1],
            )
        ],
        [info("z", (3,)), info("x", (3, length)), info("v", (length, 3))],
        [info("last", (3,)), info("o", (3, length)), info("p", (length, 2)), info("q", (length, 3))],
        [tensor("half", 0.5), tensor("w", RNG.standard_normal((3, 2)))],
    )
    inputs = {"z": X[0], "x": RNG.standard_normal((3, length)), "v": RNG.standard_normal((length, 3))}
    network = agrees(proto, tmp_path, {name: np.asarray(a, np.float32) for name, a in inputs.items()})
    assert bool(network.controls) == (length == 400)


def test_loops_inside_each_other(tmp_path: Path) -> None:
    """The inner one's trip count is the number of the outer one's iteration; it uses values of all graphs around it."""
    inner = graph(
        [node("Identity", ["ig"], ["ion"]), node("Add", ["u", "s0"], ["a"]), node("Sin", ["a"], ["b"])],
        [info("ii", (), INT64), info("ig", (), BOOL), info("u", None)],
        [info("ion", (), BOOL), info("v", None), info("w", None)],
        name="inner",
    )
    inner.node.extend([node("Mul", ["b", "x"], ["v"]), node("ReduceSum", ["v"], ["w"], keepdims=0)])
    nodes = [
        node("Loop", ["i", "", "x"], ["z", "sums"], name="inside", body=inner),
        node("ReduceSum", ["sums"], ["total"], keepdims=0),
        node("Add", ["z", "total"], ["q"]),
        node("Tanh", ["q"], ["t0"]),
        node("ReduceSum", ["t0"], ["level"], keepdims=0),
        node("Less", ["level", "limit"], ["on"]),
    ]
    proto = model(
        [node("Loop", ["m", "", "x"], ["y"], name="around", body=body(nodes))],
        [info("x"), info("m", (), INT64), info("limit", ())],
        [info("y")],
    )
    agrees(
        proto, tmp_path, *({"x": X, "m": np.int64(m), "limit": np.float32(v)} for m, v in [(9, 50), (9, -1), (0, 0)])
    )


def test_convolutions_in_a_loop_and_in_a_branch(tmp_path: Path) -> None:
    """Their layouts end at the borders of bodies."""
    convolution = node("Conv", ["s0", "w", "b"], ["c0"], pads=[1, 1, 1, 1])
    inner = graph([node("Conv", ["c0", "w", "b"], ["c1"], pads=[1, 1, 1, 1])], [], [info("c1", None)], name="then")
    other = graph([node("Relu", ["c0"], ["r"])], [], [info("r", None)], name="else")
    nodes = [
        convolution,
        node("ReduceMean", ["c0"], ["mean"], keepdims=0),
        node("Less", ["mean", "zero"], ["low"]),
        node("If", ["low"], ["d"], then_branch=inner, else_branch=other),
        node("Tanh", ["d"], ["t0"]),
        GO,
    ]
    shape = (1, 24, 7, 5)
    proto = model(
        [
            node("Conv", ["x", "w", "b"], ["h"], pads=[1, 1, 1, 1]),
            node("Relu", ["h"], ["g"]),
            node("Loop", ["m", "", "g"], ["l"], body=body(nodes)),
            node("Conv", ["l", "w", "b"], ["y"], pads=[1, 1, 1, 1]),
        ],
        [info("x", shape), info("m", (), INT64)],
        [info("y", shape)],
        [
            tensor("w", RNG.standard_normal((24, 24, 3, 3)) / 15),
            tensor("b", RNG.standard_normal(24) / 9),
            tensor("zero", 0),
        ],
    )
    x = RNG.standard_normal(shape).astype(np.float32)
    agrees(proto, tmp_path, *({"x": x, "m": np.int64(m)} for m in (0, 1, 5)))


def test_states_that_no_round_changes_are_known_in_the_body(tmp_path: Path) -> None:
    """The body can reshape by a state; one that only looks so, or changes its sign alone, is computed."""
    nodes = [
        GO,
        node("Reshape", ["s0", "s1"], ["r"]),
        node("Sin", ["r"], ["q"]),
        node("Reshape", ["q", "back"], ["u"]),
        node("Mul", ["u", "s2"], ["t0"]),
        node("Identity", ["s1"], ["t1"]),
        node("Add", ["s2", "s2"], ["t2"]),
        node("Neg", ["s3"], ["t3"]),
    ]
    states = {"s1": info("s1", (1,), INT64)}
    proto = model(
        [
            node("Loop", ["m", "", "x", "flat", "one", "zero"], ["y", "f", "o", "z"], body=body(nodes, 4, **states)),
            node("Reciprocal", ["z"], ["infinite"]),
        ],
        [info("x"), info("m", (), INT64)],
        [info("y"), info("f", (1,), INT64), info("o", ()), info("infinite", ())],
        [tensor("flat", [6], np.int64), tensor("back", [2, 3], np.int64), tensor("one", 1), tensor("zero", 0)],
    )
    agrees(proto, tmp_path, *({"x": X, "m": np.int64(m)} for m in (0, 1, 3)))


def test_a_sequence_goes_through_a_loop_and_a_choice(tmp_path: Path) -> None:
    then = graph(
        [node("Neg", ["p"], ["n"]), node("SequenceConstruct", ["n", "p"], ["t"])],
        [],
        [onnx.helper.make_tensor_sequence_value_info("t", FLOAT, None)],
    )
    other = graph(
        [node("SequenceConstruct", ["p", "x"], ["e"])],
        [],
        [onnx.helper.make_tensor_sequence_value_info("e", FLOAT, None)],
    )
    zero, one = (node("Constant", [], [f"c{k}"], value=tensor("", k, np.int64)) for k in (0, 1))
    made = graph(
        [
            GO,
            zero,
            one,
            node("SequenceAt", ["s", "c0"], ["p"]),
            node("ReduceSum", ["p"], ["total"], keepdims=0),
            node("Less", ["total", "limit"], ["low"]),
            node("If", ["low"], ["t"], then_branch=then, else_branch=other),
        ],
        [info("i", (), INT64), info("go", (), BOOL), onnx.helper.make_tensor_sequence_value_info("s", FLOAT, None)],
        [info("on", (), BOOL), onnx.helper.make_tensor_sequence_value_info("t", FLOAT, None)],
        name="body",
    )
    nodes = [
        node("Exp", ["x"], ["h"]),
        node("SequenceConstruct", ["x", "h"], ["first"]),
        node("Loop", ["m", "", "first"], ["last"], body=made),
        node("ConcatFromSequence", ["last"], ["y"], axis=0),
    ]
    proto = model(
        nodes,
        [info("x"), info("m", (), INT64), info("limit", ())],
        [info("y", (4, 3))],
    )
    runs = [{"x": X, "m": np.int64(m), "limit": np.float32(v)} for m in range(4) for v in (-100, 0, 100)]
    agrees(proto, tmp_path, *runs)


def test_a_run_with_a_failing_kernel_ends(tmp_path: Path) -> None:
    """Nothing else would end this loop."""
    nodes = [node("Gather", ["x", "k"], ["row"]), node("Add", ["s0", "row"], ["t0"]), GO]
    nodes[-1] = node("Less", ["s1", "one"], ["on"])
    nodes += [node("Mul", ["s1", "one"], ["t1"])]
    proto = model(
        [node("Loop", ["", "c", "x", "z"], ["y", "e"], body=body(nodes, 2))],
        [info("x"), info("k", (), INT64), info("c", (), BOOL), info("z", ())],
        [info("y"), info("e", ())],
        [tensor("one", 1)],
    )
    with running(loaded(proto, tmp_path)) as library, pytest.raises(RunError, match="range"):
        library.run({"x": X, "k": np.int64(5), "c": np.bool_(True), "z": np.float32(0)})


def test_what_cannot_run_as_a_loop_is_refused(tmp_path: Path) -> None:
    grow = [GO, node("Concat", ["s0", "s0"], ["t0"], axis=0)]
    cases = {
        "one of its states grows without a limit that is known before the loop": model(
            [node("Loop", ["m", "", "x"], ["y"], name="loop", body=body(grow))],
            [info("x"), info("m", (), INT64)],
            [info("y", None)],
        ),
        "nothing ends it": model(
            [node("Loop", ["", "", "x"], ["y"], name="loop", body=body([GO, node("Neg", ["s0"], ["t0"])]))],
            [info("x")],
            [info("y", None)],
        ),
        "its condition must be one bool, it is bool[2]": model(
            [node("Loop", ["", "c", "x"], ["y"], name="loop", body=body([GO, node("Neg", ["s0"], ["t0"])]))],
            [info("x"), info("c", (2,), BOOL)],
            [info("y", None)],
        ),
    }
    for message, proto in cases.items():
        with pytest.raises(CompileError) as caught:
            loaded(proto, tmp_path)
        assert "node 'loop' (Loop): " + message in str(caught.value)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed % 5 > 0)) for seed in range(24)])
@pytest.mark.sample(1)
def test_random_choices_and_loops(tmp_path: Path, seed: int) -> None:
    proto = random_control_flow(seed)
    rng = np.random.default_rng(seed)
    runs = [{"x": rng.uniform(-1, 1, (3, 3)).astype(np.float32), "m": np.int64(m)} for m in (2, 0, 5)]
    agrees(proto, tmp_path, *runs)
