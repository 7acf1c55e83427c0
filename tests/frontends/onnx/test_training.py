"""Training: what a model says of it is checked, and its step compiled; the states are kept between runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import INT64, graph, info, loaded, model, node, results, save, tensor

import nnefc
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(11)
W, B = RNG.standard_normal((4, 3)).astype(np.float32), np.zeros(3, np.float32)
START = RNG.standard_normal((4, 3)).astype(np.float32)
PREVIEW = "ai.onnx.preview.training"


def classifier() -> onnx.GraphProto:
    """`p = softmax(x @ w + b)` for a batch of 5."""
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["z"]), node("Softmax", ["z"], ["p"])]
    return graph(nodes, [info("x", (5, 4))], [info("p", (5, 3))], [tensor("w", W), tensor("b", B)])


def momentum_step() -> onnx.GraphProto:
    """One step by hand-written derivatives of the cross-entropy with one-hot labels `t`, and `Momentum`."""
    nodes = [
        node("Sub", ["p", "t"], ["d"]),
        node("Transpose", ["x"], ["xt"]),
        node("MatMul", ["xt", "d"], ["gw"]),
        node("ReduceSum", ["d", "axis"], ["gb"], keepdims=0),
        node(
            "Momentum",
            ["rate", "count", "w", "b", "gw", "gb", "vw", "vb"],
            ["w_new", "b_new", "vw_new", "vb_new"],
            domain=PREVIEW,
            alpha=0.9,
            beta=0.8,
            mode="standard",
            norm_coefficient=0.01,
        ),
        node("Add", ["count", "one"], ["count_new"]),
        node("Log", ["p"], ["lp"]),
        node("Mul", ["lp", "t"], ["lpt"]),
        node("ReduceSum", ["lpt"], ["nll"], keepdims=0),
        node("Neg", ["nll"], ["loss"]),
    ]
    initializers = [
        tensor("rate", 0.05),
        tensor("count", 0, np.int64),
        tensor("one", 1, np.int64),
        tensor("axis", [0], np.int64),
        tensor("vw", np.zeros((4, 3))),
        tensor("vb", np.zeros(3)),
    ]
    outputs = [info("loss", ()), info("count_new", (), INT64), info("w_new", (4, 3)), info("b_new", (3,))]
    outputs += [info("vw_new", (4, 3)), info("vb_new", (3,))]
    return graph(nodes, [info("t", (5, 3))], outputs, initializers, name="step")


UPDATES = {name: f"{name}_new" for name in ("w", "b", "vw", "vb", "count")}


def trained(
    algorithm: onnx.GraphProto,
    updates: dict[str, str],
    initialization: onnx.GraphProto | None = None,
    first: dict[str, str] | None = None,
) -> onnx.ModelProto:
    proto = model(classifier(), imports={PREVIEW: 1})
    bindings = [list(part.items()) if part is not None else None for part in (updates, first)]
    proto.training_info.append(helper.make_training_info(algorithm, bindings[0], initialization, bindings[1]))
    return proto


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Reference:
    """The same training in NumPy, in double precision."""

    def __init__(self, w: np.ndarray) -> None:
        self.w, self.b, self.vw, self.vb, self.count = w.astype(np.float64), np.zeros(3), 0.0, 0.0, 0

    def step(self, x: np.ndarray, t: np.ndarray) -> float:
        p = softmax(x @ self.w + self.b)
        gw, gb = x.T @ (p - t) + 0.01 * self.w, (p - t).sum(axis=0) + 0.01 * self.b
        beta = 0.8 if self.count else 1.0
        self.vw, self.vb = 0.9 * self.vw + beta * gw, 0.9 * self.vb + beta * gb
        self.w, self.b, self.count = self.w - 0.05 * self.vw, self.b - 0.05 * self.vb, self.count + 1
        return float(-(np.log(p) * t).sum())


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Points of three classes, and their labels one-hot."""
    rng = np.random.default_rng(2)
    centres = rng.standard_normal((3, 4)) * 2
    made = []
    for _ in range(count):
        labels = rng.integers(0, 3, 5)
        x = centres[labels] + rng.standard_normal((5, 4)) * 0.5
        made.append((x.astype(np.float32), np.eye(3, dtype=np.float32)[labels]))
    return made


def test_fifty_steps_agree_with_numpy(tmp_path: Path) -> None:
    path = save(trained(momentum_step(), UPDATES), tmp_path)
    reference, losses = Reference(W), []
    with nnefc.compile(path, entry="training:0").load(threads=1) as session:
        assert {state.name for state in session.states} == set(UPDATES)
        for x, t in batches(50):
            found = session.run({"x": x, "t": t})
            losses.append(reference.step(x, t))
            np.testing.assert_allclose(found["loss"], losses[-1], rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(found["w_new"], reference.w, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(found["b_new"], reference.b, rtol=1e-3, atol=1e-4)
            assert found["count_new"] == reference.count
        assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 5
        session.reset()
        x, t = batches(1)[0]
        np.testing.assert_allclose(session.run({"x": x, "t": t})["loss"], losses[0], rtol=1e-4)


def test_initialization_is_what_a_session_begins_with(tmp_path: Path) -> None:
    first = graph(
        [node("Identity", ["start"], ["a"]), node("Mul", ["a", "half"], ["w0"])],
        [],
        [info("w0", (4, 3))],
        [tensor("start", START), tensor("half", 0.5)],
        name="first",
    )
    proto = trained(momentum_step(), UPDATES, first, {"w": "w0"})
    network = loaded(proto, tmp_path, entry="training:0")
    values = {state.name: state.initial for state in network.states}
    np.testing.assert_array_equal(values["w"], START / 2)
    np.testing.assert_array_equal(values["b"], B)
    x, t = batches(1)[0]
    assert network.inputs == ("x", "t")
    reference = Reference(START / 2)
    with nnefc.compile(save(proto, tmp_path), entry="training:0").load(threads=1) as session:
        np.testing.assert_allclose(session.run({"x": x, "t": t})["loss"], reference.step(x, t), rtol=1e-4)


def test_random_initialization_with_a_seed_is_computed_at_compile_time(tmp_path: Path) -> None:
    """Whatever is constant can be the initialization; a product of matrices here."""
    a, b = RNG.standard_normal((4, 2)).astype(np.float32), RNG.standard_normal((2, 3)).astype(np.float32)
    first = graph([node("MatMul", ["a", "c"], ["w0"])], [], [info("w0", (4, 3))], [tensor("a", a), tensor("c", b)])
    network = loaded(trained(momentum_step(), UPDATES, first, {"w": "w0"}), tmp_path, entry="training:0")
    value = next(state.initial for state in network.states if state.name == "w")
    np.testing.assert_allclose(value, a @ b, rtol=1e-5)


def test_without_an_entry_the_graph_is_compiled(tmp_path: Path) -> None:
    network = loaded(trained(momentum_step(), UPDATES), tmp_path)
    assert (network.inputs, network.outputs, network.states) == (("x",), ("p",), ())


def gradient_step() -> onnx.GraphProto:
    """The same derivatives by `Gradient`, and gradient descent."""
    nodes = [
        node("Log", ["p"], ["lp"]),
        node("Mul", ["lp", "t"], ["lpt"]),
        node("ReduceSum", ["lpt"], ["nll"], keepdims=0),
        node("Neg", ["nll"], ["loss"]),
        node("Gradient", ["w", "b", "x"], ["gw", "gb"], domain=PREVIEW, xs=["w", "b"], zs=["x"], y="loss"),
        node("Mul", ["gw", "rate"], ["dw"]),
        node("Mul", ["gb", "rate"], ["db"]),
        node("Sub", ["w", "dw"], ["w_new"]),
        node("Sub", ["b", "db"], ["b_new"]),
    ]
    outputs = [info("loss", ()), info("w_new", (4, 3)), info("b_new", (3,))]
    return graph(nodes, [info("t", (5, 3))], outputs, [tensor("rate", 0.05)], name="step")


def test_gradients_are_derived(tmp_path: Path) -> None:
    path = save(trained(gradient_step(), {"w": "w_new", "b": "b_new"}), tmp_path)
    w, b = W.astype(np.float64), B.astype(np.float64)
    with nnefc.compile(path, entry="training:0").load(threads=1) as session:
        for x, t in batches(50):
            p = softmax(x @ w + b)
            found = session.run({"x": x, "t": t})
            np.testing.assert_allclose(found["loss"], -(np.log(p) * t).sum(), rtol=1e-3, atol=1e-5)
            w, b = w - 0.05 * x.T @ (p - t), b - 0.05 * (p - t).sum(axis=0)
            np.testing.assert_allclose(found["w_new"], w, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(found["b_new"], b, rtol=1e-3, atol=1e-4)


def test_gradients_may_be_taken_elsewhere(tmp_path: Path) -> None:
    """At the node's inputs, which need not be the tensors that the formula was computed from."""
    nodes = [
        node("Mul", ["x", "x"], ["s"]),
        node("Mul", ["s", "k"], ["y"]),
        node("Gradient", ["a", "k"], ["g"], domain=PREVIEW, xs=["x"], zs=["k"], y="y"),
    ]
    inputs = [info("x"), info("k"), info("a")]
    network = loaded(model(nodes, inputs, [info("y"), info("g")], imports={PREVIEW: 1}), tmp_path)
    x, k, a = (RNG.standard_normal((2, 3)).astype(np.float32) for _ in range(3))
    found = results(network, x=x, k=k, a=a)
    np.testing.assert_allclose(found["g"], 2 * a * k, rtol=1e-5)
    np.testing.assert_allclose(found["y"], x * x * k, rtol=1e-5)


def changed(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    proto = trained(momentum_step(), UPDATES)
    change(proto)
    return proto


def bind(field: str, key: str, value: str) -> Callable[[onnx.ModelProto], object]:
    return lambda proto: getattr(proto.training_info[0], field).add(key=key, value=value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (bind("update_binding", "w", "b_new"), "assigns to 'w' twice"),
        (bind("update_binding", "x", "w_new"), "assigns to 'x', which is not an initializer"),
        (bind("update_binding", "rate", "gw"), "assigns 'gw' to 'rate', but there is no such output"),
        (bind("initialization_binding", "w", "w0"), "an initialization binding, but no initialization"),
        (lambda p: p.training_info[0].algorithm.initializer.append(tensor("w", W)), "initializer 'w' has the name"),
        (lambda p: p.training_info[0].algorithm.input.append(info("x")), "input 'x' has the name"),
        (lambda p: p.training_info[0].algorithm.node.append(node("Neg", ["x"], ["h"])), "node output 'h' has the name"),
        (lambda p: p.training_info[0].algorithm.output.append(info("p", (5, 3))), "output 'p' is an output"),
        (lambda p: p.training_info[0].algorithm.node.append(node("Neg", ["q"], ["r"])), "computes its input 'q'"),
        (
            lambda p: p.training_info[0].initialization.CopyFrom(graph([], [info("x")], [info("x")])),
            "the initialization of training:0 has inputs",
        ),
    ],
)
def test_trainings_that_contradict_themselves_are_refused(
    tmp_path: Path, change: Callable[[onnx.ModelProto], object], message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        loaded(changed(change), tmp_path)


def test_initial_values_must_fit_the_state(tmp_path: Path) -> None:
    first = graph([], [], [info("w0", (3,))], [tensor("w0", [1, 2, 3])])
    with pytest.raises(CompileError, match=r"assigns float32\[3\] to 'w', which is float32\[4, 3\]"):
        loaded(trained(momentum_step(), UPDATES, first, {"w": "w0"}), tmp_path, entry="training:0")


def test_new_values_must_fit_the_state(tmp_path: Path) -> None:
    proto = trained(momentum_step(), {"w": "b_new"})
    with pytest.raises(CompileError, match=r"the new value of 'w' is float32\[3\]"):
        loaded(proto, tmp_path, entry="training:0")


@pytest.mark.parametrize("entry", ["training:1", "training:-1", "training", "main", "training:0x"])
def test_entries_that_are_not_there_are_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(CompileError, match=f"no entry '{entry}'"):
        loaded(trained(momentum_step(), UPDATES), tmp_path, entry=entry)


def optimizer(op_type: str, states: int, **attributes: object) -> onnx.ModelProto:
    names = ["x", "g", *(f"s{k}" for k in range(states))]
    made = node(
        op_type, ["r", "t", *names], [f"{name}_new" for name in names if name != "g"], domain=PREVIEW, **attributes
    )
    inputs = [info("r", ()), info("t", (), INT64), *(info(name, (2, 3)) for name in names)]
    return model([made], inputs, [info(name, (2, 3), TensorProto.FLOAT) for name in made.output], imports={PREVIEW: 1})


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.sample(1)
def test_optimizers_follow_their_formulas(tmp_path: Path, count: int) -> None:
    x, g, h, v = (np.abs(RNG.standard_normal((2, 3))).astype(np.float32) for _ in range(4))
    rate, t = np.float32(0.1), np.int64(count)
    adagrad = optimizer("Adagrad", 1, decay_factor=0.2, epsilon=1e-3, norm_coefficient=0.1)
    found = results(loaded(adagrad, tmp_path), r=rate, t=t, x=x, g=g, s0=h)
    regular = 0.1 * x + g
    np.testing.assert_allclose(found["s0_new"], h + regular**2, rtol=1e-5)
    moved = x - 0.1 / (1 + 0.2 * count) * regular / (np.sqrt(h + regular**2) + 1e-3)
    np.testing.assert_allclose(found["x_new"], moved, rtol=1e-5)

    nesterov = optimizer("Momentum", 1, alpha=0.9, beta=0.7, mode="nesterov", norm_coefficient=0.1)
    found = results(loaded(nesterov, tmp_path), r=rate, t=t, x=x, g=g, s0=v)
    new = 0.9 * v + (0.7 if count else 1) * regular
    np.testing.assert_allclose(found["s0_new"], new, rtol=1e-5)
    np.testing.assert_allclose(found["x_new"], x - 0.1 * (regular + 0.9 * new), rtol=1e-5)

    adam = optimizer("Adam", 2, alpha=0.9, beta=0.99, epsilon=1e-3, norm_coefficient=0.1, norm_coefficient_post=0.2)
    found = results(loaded(adam, tmp_path), r=rate, t=t, x=x, g=g, s0=v, s1=h)
    mean, square = 0.9 * v + 0.1 * regular, 0.99 * h + 0.01 * regular**2
    corrected = 0.1 * np.sqrt(1 - 0.99**count) / (1 - 0.9**count) if count else 0.1
    np.testing.assert_allclose(found["s0_new"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["s1_new"], square, rtol=1e-5)
    np.testing.assert_allclose(found["x_new"], 0.8 * (x - corrected * mean / (np.sqrt(square) + 1e-3)), rtol=1e-4)
