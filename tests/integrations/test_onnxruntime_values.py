"""Sequences, optional values, strings and inputs of unknown rank in sessions, compared with onnxruntime."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime_calls import CPU, Failure, outcome

import nnefc.onnxruntime as ort

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

F = np.float32


def both(model: str | onnx.ModelProto) -> tuple[Any, Any]:
    """Sessions of a model: onnxruntime's and nnefc's."""
    proto = onnx.parser.parse_model(HEAD + model) if isinstance(model, str) else model
    content = proto.SerializeToString()
    return onnxruntime.InferenceSession(content, providers=CPU), ort.InferenceSession(content, cache=False)


def described(session: Any) -> list[Any]:
    return [(each.name, each.type, each.shape) for each in (*session.get_inputs(), *session.get_outputs())]


def check_alike(pair: tuple[Any, Any], *feeds: Any) -> None:
    peer, session = pair
    assert described(session) == described(peer)
    for feed in feeds:
        wanted = outcome(lambda _, s, feed=feed: s.run(None, feed), onnxruntime, peer)
        found = outcome(lambda _, s, feed=feed: s.run(None, feed), ort, session)
        assert found.agrees(wanted) if isinstance(found, Failure) else found == wanted, feed


def test_sequences_go_in_and_come_out() -> None:
    pair = both(
        "g (seq(float[N]) s, float[3] z) => (seq(float[N]) r, float[3] y) { r = SequenceInsert(s, z)\n y = Abs(z) }"
    )
    z = np.array([1, -2, 3], F)
    feeds = [{"s": elements, "z": z} for elements in ([], [z], [z, z + 1], [z[:2], z])]
    check_alike(pair, *feeds, {"s": [z.astype(np.float64)], "z": z}, {"s": z, "z": z}, {"s": [z]}, {"z": z})
    values = pair[1].run_with_ort_values(
        ["r"], {n: ort.OrtValue(ort.capi._pybind_state.OrtValue(v)) for n, v in feeds[1].items()}
    )
    assert values[0].is_tensor_sequence() and values[0].data_type() == "seq(tensor(float))"


def test_a_split_gives_a_list() -> None:
    text = """g (float[6] z) => (seq(float[N]) r) {
        n = Constant <value = int64 {2}> ()
        r = SplitToSequence <axis = 0> (z, n)
    }"""
    pair, z = both(text), np.arange(6, dtype=F)
    check_alike(pair, {"z": z})
    (value,) = pair[1].run_with_ort_values(None, {"z": onnxruntime.OrtValue.ortvalue_from_numpy(z)})
    assert value.is_tensor_sequence()


def test_optional_values_may_be_absent() -> None:
    given = np.ones(3, F)
    check_alike(
        both("g (optional(float[3]) s) => (bool b) { b = OptionalHasElement(s) }"), {}, {"s": None}, {"s": given}
    )
    check_alike(both("g (float[3] z) => (optional(float[3]) r) { r = Optional(z) }"), {"z": given})


def test_ranks_that_are_not_declared_follow_from_the_inputs() -> None:
    proto = onnx.parser.parse_model(HEAD + "g (float[N] x) => (float[N] y) { y = Neg(x) }")
    for info in (*proto.graph.input, *proto.graph.output):
        info.type.tensor_type.ClearField("shape")
    pair = both(proto)
    check_alike(pair, {"x": np.ones((2, 3), F)}, {"x": np.ones(4, F)}, {"x": np.ones((2, 3))}, {"x": np.float32(1)})
    assert pair[1].get_modelmeta().graph_name == "g"


def test_initializers_that_are_inputs_can_be_given() -> None:
    proto = onnx.parser.parse_model(HEAD + "g (float[N, 2] x, float[2] w) => (float[N, 2] y) { y = Mul(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.array([2, 3], F), "w"))
    x, w = np.ones((3, 2), F), np.array([5, 7], F)
    pair = both(proto)
    check_alike(pair, {"x": x}, {"x": x, "w": w}, {"w": w}, {"x": x, "w": w.astype(np.float64)})
    found, wanted = (each.get_overridable_initializers() for each in pair[::-1])
    assert [(each.name, each.type, each.shape) for each in found] == [(e.name, e.type, e.shape) for e in wanted]


def test_initializers_of_old_models_are_constants() -> None:
    text = '<ir_version: 3, opset_import: ["" : 9]> g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.array([2, 3], F), "w"))
    x = np.ones(2, F)
    check_alike(both(proto), {"x": x}, {"x": x, "w": x})


def test_strings() -> None:
    nodes = [helper.make_node("Identity", ["s"], ["t"])]
    kinds = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in ("s", "t")]
    graph = helper.make_graph(nodes, "strings", kinds[:1], kinds[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    pair = both(proto)
    feeds = [
        {"s": np.array(["a", "äö", ""])},
        {"s": np.array(["a", ""], object)},
        {"s": np.array(["a", None, 2.5], object)},
        {"s": ["b", "c"]},
        {"s": np.ones(2, F)},
    ]
    check_alike(pair, *feeds)
    (value,) = pair[1].run_with_ort_values(None, {"s": ort.OrtValue(ort.capi._pybind_state.OrtValue(feeds[1]["s"]))})
    assert (value.data_type(), value.numpy().tolist()) == ("tensor(string)", ["a", ""])


def test_other_libraries_read_values_without_a_copy() -> None:
    array = np.arange(6, dtype=F).reshape(2, 3)
    for package in (onnxruntime, ort):
        value = package.OrtValue.ortvalue_from_numpy(array)._get_c_value()
        shared = np.from_dlpack(value)
        assert shared.tolist() == array.tolist() and shared.ctypes.data == value.data_ptr()


def test_names_of_dimensions_are_those_of_the_model() -> None:
    text = """g (float[?, 3, H, W] x, float[N, 3] a, float[M, 3] b)
              => (float[?, 3, H2, W2] y, float[?, 3] c, int64[2, ?] z) {
        y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        c = Concat <axis = 0> (a, b)
        z = NonZero (a)
    }"""
    peer, session = both(text)
    assert described(session) == described(peer)


def test_sizes_that_the_compiler_is_given_are_shown() -> None:
    proto = onnx.parser.parse_model(HEAD + "g (float[N, 3] x) => (float[N, 3] y) { y = Abs(x) }")
    session = ort.InferenceSession(proto, shape={"N": 2}, cache=False)
    assert described(session) == [("x", "tensor(float)", [2, 3]), ("y", "tensor(float)", [2, 3])]


def test_sizes_by_denotation() -> None:
    proto = onnx.parser.parse_model(HEAD + "g (float[N, 3] x) => (float[N, 3] y) { y = Abs(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    found = []
    for module in (onnxruntime, ort):
        settings = module.SessionOptions()
        settings.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
        found.append(module.InferenceSession(proto.SerializeToString(), settings, CPU).get_inputs()[0].shape)
    assert found[0] == found[1] == [2, 3]


class Tensor:
    """An array of another library, which shows its memory by DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_arrays_of_other_libraries_and_byte_orders_are_taken() -> None:
    _, session = both("g (float[N, 2] x) => (float[N, 2] y) { y = Abs(x) }")
    array = np.array([[-1, 2], [3, -4]], F)
    for given in (Tensor(array), array.astype(">f4"), np.asfortranarray(array)):
        np.testing.assert_array_equal(session.run(None, {"x": given})[0], np.abs(array))
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="float64"):
        session.run(None, {"x": Tensor(array.astype(np.float64))})


def test_a_binding_may_write_where_it_reads() -> None:
    _, session = both("g (float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }")
    memory = np.array([[1, 2], [3, 4]], F)
    for _ in range(2):
        binding = session.io_binding()
        binding.bind_cpu_input("x", memory)
        binding.bind_output("y", "cpu", 0, F, memory.shape, memory.ctypes.data)
        session.run_with_iobinding(binding)
    assert memory.tolist() == [[1, 2], [3, 4]]


def test_types_for_programs_that_bind_memory() -> None:
    helper_of = sys.modules["nnefc.onnxruntime.transformers.io_binding_helper"].TypeHelper
    _, session = both("g (float[N] x, int64[N] i, bool[N] b) => (float[N] y) { y = Where(b, x, x) }")
    assert helper_of.get_io_numpy_type_map(session) == {"x": F, "i": np.int64, "b": bool, "y": F}
    assert helper_of.get_io_onnx_type_map(session) == {"x": 1, "i": 7, "b": 9, "y": 1}
    assert (helper_of.get_input_type(session, "i"), helper_of.get_output_type(session, "y")) == (
        "tensor(int64)",
        "tensor(float)",
    )
    with pytest.raises(ValueError, match=r"tensor\(string\) is none of"):
        helper_of.ort_type_to_numpy_type("tensor(string)")


def test_bfloat16_goes_in_as_its_bits() -> None:
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    bits = (np.array([1, -2, 0.5], F).view(np.uint32) >> 16).astype(np.uint16)
    pair = both(proto)
    found = []
    for module, session in zip((onnxruntime, ort), pair, strict=True):
        value = module.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
        found.append(session.run_with_ort_values(None, {"x": value})[0].numpy().tolist())
    assert found[0] == found[1] == [1, -2, 0.5]
