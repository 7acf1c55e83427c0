"""nnefc behind ONNX's interface for engines, and ONNX's own test runner on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import FLOAT, INT64, info, model, node, save, tensor

import nnefc.onnx_backend as backend
from nnefc.integrations import onnx_backend as implementation
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(16)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_model_is_prepared_once_and_run_at_many_sizes() -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", ("n", 3))], [info("y", ("n", 2))],
                  [tensor("w", np.arange(6).reshape(3, 2))])  # fmt: skip
    prepared = backend.prepare(proto)
    for n in (1, 4):
        x = normal(n, 3)
        (y,) = prepared.run([x])
        np.testing.assert_allclose(y, x @ np.arange(6, dtype=np.float32).reshape(3, 2), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(prepared.run({"x": x}).y, y)
    assert prepared.known == ()
    assert len(prepared._libraries) == 1


def test_files_and_bytes_are_models_too(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])])
    x = normal(2, 3)
    for given in (proto, proto.SerializeToString(), save(proto, tmp_path)):
        np.testing.assert_array_equal(backend.run_model(given, [x]).y, -x)


def test_values_that_must_be_known_are_taken_from_the_run() -> None:
    sums = node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    proto = model([sums], [info("x", (2, 3)), info("axes", (1,), INT64)], [info("y", (None,))])
    prepared = backend.prepare(proto)
    for axis, shape in ((0, (3,)), (1, (2,)), (0, (3,))):
        assert prepared.run([normal(2, 3), np.array([axis])]).y.shape == shape
        assert prepared.known == ("axes",)
    assert len(prepared._libraries) == 2


def test_sequences_and_optionals_go_in_and_come_out() -> None:
    tensor_type = helper.make_tensor_type_proto(FLOAT, None)
    sequence = helper.make_sequence_type_proto(tensor_type)
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    proto = model(
        [
            node("SequenceInsert", ["s", "x"], ["t"]),
            node("OptionalHasElement", ["o"], ["there"]),
            node("Identity", ["o"], ["p"]),
        ],
        [helper.make_value_info("s", sequence), info("x", (2,)), helper.make_value_info("o", optional)],
        [
            helper.make_value_info("t", sequence),
            info("there", (), TensorProto.BOOL),
            helper.make_value_info("p", optional),
        ],
    )
    prepared, x = backend.prepare(proto), normal(2)
    made = prepared.run([[normal(3), normal(1, 2)], x, x])
    assert [element.shape for element in made.t] == [(3,), (1, 2), (2,)]
    assert made.there and np.array_equal(made.p, x)
    made = prepared.run([[], x, None])
    assert ([element.shape for element in made.t], bool(made.there), made.p) == ([(2,)], False, None)


def test_types_that_numpy_lacks_are_those_of_the_model() -> None:
    value = numpy_helper.to_array(helper.make_tensor("v", TensorProto.BFLOAT16, [3], [1.0, 2.5, -3.0]))
    proto = model([node("Neg", ["x"], ["y"])], [info("x", (3,), TensorProto.BFLOAT16)],
                  [info("y", (3,), TensorProto.BFLOAT16)])  # fmt: skip
    (y,) = backend.run_model(proto, [value])
    assert y.dtype == value.dtype
    np.testing.assert_array_equal(y.astype(np.float32), [-1.0, -2.5, 3.0])


def test_one_operator_is_run() -> None:
    x = normal(4, 5)
    made = backend.run_node(helper.make_node("Softmax", ["x"], ["y"], axis=0), [x])
    np.testing.assert_allclose(made.y, np.exp(x) / np.exp(x).sum(0), rtol=1e-5)
    made = backend.run_node(helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2), {"x": x}, opset_version=18)
    np.testing.assert_array_equal(made.b, x[2:])
    info_ = [(np.float32, (4, 5))]
    np.testing.assert_array_equal(
        backend.run_node(helper.make_node("Neg", ["x"], ["y"]), [x], outputs_info=info_).y, -x
    )
    with pytest.raises(CompileError, match="types of the results of Nothing cannot be inferred"):
        backend.run_node(helper.make_node("Nothing", ["x"], ["y"]), [x])


def test_what_is_never_supported_is_refused_before_there_are_data() -> None:
    unknown = model([node("Reelu", ["x"], ["y"])])
    assert not backend.is_compatible(unknown) and backend.is_compatible(model([node("Relu", ["x"], ["y"])]))
    with pytest.raises(CompileError, match="no such operator"):
        backend.prepare(unknown)


def test_wrong_inputs_are_named() -> None:
    prepared = backend.prepare(model([node("Neg", ["x"], ["y"])]))
    with pytest.raises(CompileError, match="no value for the input 'x'"):
        prepared.run([])
    with pytest.raises(CompileError, match="has 1 inputs, 2 are given"):
        prepared.run([normal(2, 3), normal(2, 3)])
    with pytest.raises(CompileError, match="no input 'z'"):
        prepared.run({"z": normal(2, 3)})


def test_devices_are_those_that_are_there() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("TPU") and not backend.supports_device("CPU:x")
    with pytest.raises(CompileError, match="no device 'TPU'"):
        backend.prepare(model([node("Neg", ["x"], ["y"])]), "TPU")


def test_a_driver_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking takes milliseconds, and ONNX's runner asks for each of its two thousand tests."""
    asked: list[str] = []
    monkeypatch.setattr(implementation, "find_library", lambda name: asked.append(name))
    implementation._has_driver.cache_clear()
    assert not any(backend.supports_device("CUDA:0") for _ in range(3))
    assert asked == ["cuda"]
    implementation._has_driver.cache_clear()
