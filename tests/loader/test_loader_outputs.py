"""Runs that compute some outputs only, and times of kernels by a switch."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import nnefc
from nnefc.loader import Model, RunError

_FLOAT, _INT64, _BOOL, _STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING


def _model(rows: int | str) -> onnx.ModelProto:
    """Returns a model that computes `early` on the way to `late`; its other outputs come from a branch, a loop, a
    data-dependent size and strings, and one is an input.
    """
    rng = np.random.default_rng(3)
    weights = [onnx.numpy_helper.from_array(rng.standard_normal((5, 5)).astype(np.float32), f"w{i}") for i in range(4)]
    value = [helper.make_tensor_value_info(name, _FLOAT, [rows, 5]) for name in ("after", "t", "e")]
    branches = {
        name: helper.make_graph([helper.make_node("MatMul", ["x", weight], [result])], name, [], [info])
        for name, weight, result, info in (("then", "w2", "t", value[1]), ("else", "w3", "e", value[2]))
    }
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["before", "w1"], ["product"]),
            helper.make_node("Softmax", ["product"], ["after"]),
            helper.make_node("Identity", ["going"], ["goes"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", _INT64, []),
            helper.make_tensor_value_info("going", _BOOL, []),
            helper.make_tensor_value_info("before", _FLOAT, [rows, 5]),
        ],
        [helper.make_tensor_value_info("goes", _BOOL, []), value[0]],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["early"]),
        helper.make_node("Softmax", ["early"], ["middle"]),
        helper.make_node("MatMul", ["middle", "w1"], ["late"]),
        helper.make_node("ReduceMax", ["middle"], ["largest"], axes=[0, 1], keepdims=0),
        helper.make_node("Greater", ["largest", "half"], ["condition"]),
        helper.make_node(
            "If", ["condition"], ["by_condition"], then_branch=branches["then"], else_branch=branches["else"]
        ),
        helper.make_node("Loop", ["trips", "", "x"], ["by_loop"], body=body),
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Where", ["positive", "yes", "no"], ["words"]),
        helper.make_node("Greater", ["x", "zero"], ["positive"]),
        helper.make_node("Identity", ["x"], ["given"]),
    ]
    nodes[8:10] = nodes[9:7:-1]
    constants = [
        onnx.numpy_helper.from_array(np.float32(0.5), "half"),
        onnx.numpy_helper.from_array(np.float32(0), "zero"),
        helper.make_tensor("yes", _STRING, [], [b"yes"]),
        helper.make_tensor("no", _STRING, [], [b"no"]),
    ]
    shapes = {"found": (_INT64, [2, None]), "words": (_STRING, [rows, 5])}
    names = ("early", "late", "by_condition", "by_loop", "found", "words", "given")
    outputs = [helper.make_tensor_value_info(n, *shapes.get(n, (_FLOAT, [rows, 5]))) for n in names]
    inputs = [helper.make_tensor_value_info("x", _FLOAT, [rows, 5]), helper.make_tensor_value_info("trips", _INT64, [])]
    graph = helper.make_graph(nodes, "several", inputs, outputs, [*weights, *constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module", params=[3, "n"], ids=["known", "dynamic"])
def pair(request: pytest.FixtureRequest) -> tuple[Model, onnxruntime.InferenceSession]:
    model = _model(request.param)
    loaded = nnefc.compile(model, shape={"x": ("1..8", 5)} if request.param == "n" else None).load(threads=1)
    return loaded, onnxruntime.InferenceSession(model.SerializeToString())


def _inputs(model: Model, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 9)) if model.dimensions and isinstance(model.inputs[0].shape[0], str) else 3
    return {"x": rng.standard_normal((rows, 5)).astype(np.float32), "trips": np.array(rng.integers(0, 4))}


def _assert_equal(found: dict[str, np.ndarray], names: list[str], expected: list[np.ndarray]) -> None:
    for name, value in zip(names, expected, strict=True):
        if value.dtype == np.float32:
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found[name], value)


def test_any_outputs_are_those_of_a_whole_run(pair: tuple[Model, onnxruntime.InferenceSession]) -> None:
    model, reference = pair
    all_names = [tensor.name for tensor in model.outputs]
    rng = np.random.default_rng(0)
    for seed in range(40):
        names = [name for name in all_names if rng.random() < 0.4] or ["late"]
        inputs = _inputs(model, seed)
        found = model.run(inputs, outputs=names)
        assert list(found) == names
        _assert_equal(found, names, reference.run(names, inputs))
    _assert_equal(model.run(inputs), all_names, reference.run(None, inputs))


def test_kernels_that_are_not_needed_do_not_run(pair: tuple[Model, onnxruntime.InferenceSession]) -> None:
    model, _ = pair
    inputs = _inputs(model, 1) | {"trips": np.array(2)}
    with model.session(threads=1) as session:

        def computed(outputs: list[str] | None) -> dict[str, int]:
            session.time_kernels()
            session.run(inputs, outputs=outputs)
            return {name: kernel.calls for kernel in session.profile() for name in kernel.tensors}

        every = computed(None)
        assert every["early"] == every["late"] == 1
        assert every["product"] == 2
        early = computed(["early"])
        assert early["early"] == 1
        assert not any(early[name] for name in ("late", "product", "by_condition", "words") if name in early)
        loop = computed(["by_loop"])
        assert loop["product"] == 2
        assert loop["early"] == loop["late"] == 0
        assert computed(["late", "by_loop", "given"])["early"] == 1


def test_arrays_are_given_for_some_of_them(pair: tuple[Model, onnxruntime.InferenceSession]) -> None:
    model, _ = pair
    if model._library.finds_sizes:
        pytest.skip("takes no arrays for outputs")
    inputs = _inputs(model, 2)
    early = np.empty((inputs["x"].shape[0], 5), np.float32)
    found = model.run(inputs, out={"early": early, "late": np.empty_like(early)}, outputs=["early"])
    assert list(found) == ["early"]
    np.testing.assert_array_equal(early, model.run(inputs)["early"])


def test_an_unknown_output_is_refused(pair: tuple[Model, onnxruntime.InferenceSession]) -> None:
    with pytest.raises(RunError, match='no output "lat": did you mean "late"'):
        pair[0].run(_inputs(pair[0], 0), outputs=["lat"])


def test_libraries_compiled_for_size_compute_all() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])],
        "two",
        [helper.make_tensor_value_info("x", _FLOAT, [3])],
        [helper.make_tensor_value_info(name, _FLOAT, [3]) for name in "yz"],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with nnefc.compile(model, small=True).load() as loaded:
        found = loaded.run({"x": np.array([-1, 0, 2], np.float32)}, outputs=["z"])
        assert list(found) == ["z"]
        np.testing.assert_array_equal(found["z"], [1, 0, -2])
        with pytest.raises(RunError, match="nnefc_time_kernels"):
            loaded.time_kernels()


def test_times_are_taken_while_they_are_wanted(pair: tuple[Model, onnxruntime.InferenceSession]) -> None:
    model, _ = pair
    inputs = _inputs(model, 5)
    with model.session(threads=1) as session:
        with pytest.raises(RunError, match=r"call time_kernels\(\)"):
            session.profile()
        session.time_kernels()
        session.run(inputs)
        session.run(inputs)
        first = session.profile()
        assert {kernel.calls for kernel in first if "early" in kernel.tensors} == {2}
        assert all(kernel.rule and kernel.seconds >= kernel.last_seconds > 0 for kernel in first if kernel.calls)
        session.time_kernels(False)
        session.run(inputs)
        assert session.profile() == first
        session.forget_profile()
        assert sum(kernel.calls for kernel in session.profile()) == 0
