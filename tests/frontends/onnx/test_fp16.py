"""16-bit floats: computed in float32, rounded where the model asks for it and where the program must have the type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto
from onnx_models import FLOAT, INT64, graph, info, loaded, model, node, results, tensor

import nnefc
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Network
from nnefc.passes.graph.rewriter import array_of, is_call, is_constant

HALF, BFLOAT = TensorProto.FLOAT16, TensorProto.BFLOAT16
_NUMPY = {FLOAT: np.dtype(np.float32), HALF: np.dtype(np.float16), BFLOAT: np.dtype(ml_dtypes.bfloat16)}


def _blocks(dtype: int) -> onnx.ModelProto:
    """Convolutions with what is around them, then attention over their pixels, in one element type."""
    rng, numpy = np.random.default_rng(4), _NUMPY[dtype]

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return tensor(name, rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1), numpy)

    weights = [
        weight("k0", 8, 3, 3, 3),
        weight("b0", 8),
        weight("k1", 8, 1, 3, 3),
        weight("k2", 8, 12, 2, 2),
        *(tensor(name, np.abs(rng.standard_normal(8)) + 0.5, numpy) for name in ("s", "var")),
        *(weight(name, 8) for name in ("b", "m")),
        *(weight(f"p{name}", 12, 12) for name in "qkv"),
        tensor("scale", np.sqrt(12), numpy),
        tensor("one", [1] * 12, numpy),
        tensor("flat", [1, 12, -1], np.int64),
    ]
    nodes = [
        node("Conv", ["x", "k0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c0", "s", "b", "m", "var"], ["n0"]),
        node("HardSwish", ["n0"], ["r0"]),
        node("Conv", ["r0", "k1"], ["c1"], group=8, pads=[1, 1, 1, 1]),
        node("Add", ["c1", "r0"], ["a1"]),
        node("MaxPool", ["a1"], ["m1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ConvTranspose", ["m1", "k2"], ["u1"], strides=[2, 2]),
        node("Reshape", ["u1", "flat"], ["f1"]),
        node("Transpose", ["f1"], ["t1"], perm=[0, 2, 1]),
        node("LayerNormalization", ["t1", "one"], ["l1"]),
        *(node("MatMul", ["l1", f"p{name}"], [name]) for name in "qkv"),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["qk"]),
        node("Div", ["qk", "scale"], ["w"]),
        node("Softmax", ["w"], ["a"]),
        node("MatMul", ["a", "v"], ["y"]),
    ]
    return model(nodes, [info("x", (1, 3, 7, 9), dtype)], [info("y", (1, None, 12), dtype)], weights, opset=22)


def _operators(network: Network) -> list[str]:
    bindings = bindings_of(network.module["main"])
    return [str(getattr(binding.value.op, "name", "")) for binding in bindings if hasattr(binding.value, "op")]


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
def test_only_the_border_tells_float16_from_single_precision(dtype: int, tmp_path: Path) -> None:
    single, half = (_operators(loaded(_blocks(kind), tmp_path)) for kind in (FLOAT, dtype))
    assert [name for name in half if name != "relax.astype"] == [name for name in single if name != "relax.astype"]
    assert half.count("relax.astype") == single.count("relax.astype") + 2


def test_results_are_those_of_onnxruntime(tmp_path: Path) -> None:
    proto = _blocks(HALF)
    x = np.random.default_rng(5).standard_normal((1, 3, 7, 9)).astype(np.float16)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    ours = nnefc.compile(tmp_path / "model.onnx").run({"x": x})["y"]
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    reference = session.run(None, {"x": x})[0]
    assert ours.dtype == np.float16
    np.testing.assert_allclose(ours.astype(np.float32), reference.astype(np.float32), rtol=2e-2, atol=2e-2)


def test_results_of_operators_are_not_rounded_between_them(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "c"], ["a"]), node("Sub", ["a", "c"], ["y"])]
    proto = model(nodes, [info("x", (3,), HALF)], [info("y", (3,), HALF)], [tensor("c", 2048, np.float16)])
    x = np.array([0.25, 1.75, -0.5], np.float16)
    np.testing.assert_array_equal(results(loaded(proto, tmp_path), x=x)["y"], x)


@pytest.mark.parametrize("cast", ["Cast", "CastLike"])
def test_casts_of_the_model_round_and_overflow(cast: str, tmp_path: Path) -> None:
    how = [node("Cast", ["x"], ["h"], to=HALF)] if cast == "Cast" else [node("CastLike", ["x", "c"], ["h"])]
    nodes = [*how, node("Mul", ["h", "c"], ["m"]), node("Cast", ["m"], ["y"], to=FLOAT)]
    proto = model(nodes, [info("x", (4,))], [info("y", (4,))], [tensor("c", 0.5, np.float16)])
    x = np.array([70000, -1e30, 2049, 1e-9], np.float32)
    np.testing.assert_array_equal(results(loaded(proto, tmp_path), x=x)["y"], [np.inf, -np.inf, 1024, 0])


def test_casts_to_bfloat16_round_within_a_kernel_and_keep_nan(tmp_path: Path) -> None:
    nodes = [node("Cast", ["x"], ["b"], to=BFLOAT), node("Cast", ["b"], ["y"], to=FLOAT)]
    proto = model(nodes, [info("x", (9,))], [info("y", (9,)), info("b", (9,), BFLOAT)])
    bits = [0x3F808000, 0x3F818000, 0x3F80FFFF, 0xBF807FFF, 0x7F7FFFFF, 0xFF800000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001]
    x = np.array(bits, np.uint32).view(np.float32)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with nnefc.compile(tmp_path / "model.onnx").load() as library:
        found = library.run({"x": x})
    expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(found["y"], expected)
    np.testing.assert_array_equal(found["b"].view(ml_dtypes.bfloat16).astype(np.float32), expected)


def test_outputs_round_and_overflow(tmp_path: Path) -> None:
    proto = model([node("Mul", ["x", "x"], ["y"])], [info("x", (2,), HALF)], [info("y", (2,), HALF)])
    x = np.array([300, 1.001], np.float16)
    np.testing.assert_array_equal(results(loaded(proto, tmp_path), x=x)["y"], [np.inf, (x * x)[1]])


def test_tables_that_are_gathered_from_stay_float16(tmp_path: Path) -> None:
    nodes = [node("Gather", ["table", "i"], ["g"]), node("Exp", ["g"], ["y"])]
    table = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float16)
    proto = model(nodes, [info("i", (3,), INT64)], [info("y", (3, 7), HALF)], [tensor("table", table, np.float16)])
    network = loaded(proto, tmp_path)
    assert 'R.Tensor((50, 7), dtype="float32")' not in network.module.script()
    got = nnefc.compile(tmp_path / "model.onnx").run({"i": np.array([49, 0, 7])})["y"]
    np.testing.assert_allclose(got, np.exp(table[[49, 0, 7]].astype(np.float32)), rtol=1e-3)


def _large_weights() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A network with more than 64 KB in each tensor of weights, which are read in all ways; and the weights."""
    rng = np.random.default_rng(6)
    shapes = {"m": (181, 187), "g": (191, 187), "k": (61, 3, 1, 181), "c": (191, 181)}
    weights = {name: (rng.standard_normal(shape) / 13).astype(np.float16) for name, shape in shapes.items()}

    def branch(name: str, *after: onnx.NodeProto) -> onnx.GraphProto:
        return graph([node("MatMul", ["x", "m"], ["n"]), *after], [], [info(name, (3, 187), HALF)], name=name)

    nodes = [
        node("If", ["yes"], ["i"], then_branch=branch("n"), else_branch=branch("r", node("Relu", ["n"], ["r"]))),
        node("MatMul", ["x", "m"], ["f"]),
        node("Gemm", ["f", "g"], ["a"], transB=1),
        node("Cast", ["a"], ["a_"], to=FLOAT),
        node("Cast", ["c"], ["c_"], to=FLOAT),
        node("Transpose", ["c_"], ["t"]),
        node("Transpose", ["t"], ["c__"]),
        node("MatMul", ["a_", "c__"], ["p"]),
        node("Einsum", ["a_", "c_"], ["e"], equation="ij,jk->k"),
        node("Reshape", ["x", "image"], ["x_"]),
        node("Conv", ["x_", "k"], ["z"]),
    ]
    inputs = [info("x", (3, 181), HALF), info("yes", (), TensorProto.BOOL)]
    outputs = [info("p", (3, 181), FLOAT), info("i", (3, 187), HALF), info("e", (181,), FLOAT)]
    held = [tensor(name, array, np.float16) for name, array in weights.items()]
    held.append(tensor("image", [1, 3, 1, 181], np.int64))
    return model(nodes, inputs, [*outputs, info("z", (1, 61, 1, 1), HALF)], held), weights


def test_large_weights_are_constants_as_the_file_has_them(tmp_path: Path) -> None:
    proto, weights = _large_weights()
    calls = [binding.value for binding in bindings_of(loaded(proto, tmp_path).module["main"])]
    read = [operand for call in calls if is_call(call, "astype", "matmul", "nn.conv2d") for operand in call.args]
    constants = [array_of(operand) for operand in read if is_constant(operand)]
    assert {array.shape for array in constants} == {array.shape for array in weights.values()}
    assert {array.dtype for array in constants} == {np.dtype(np.float16)}


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])  # with conversions of float16, and without
def test_results_with_large_weights_are_those_of_float64(target: str, tmp_path: Path) -> None:
    proto, weights = _large_weights()
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    m, g, k, c = (weights[name].astype(np.float64) for name in "mgkc")
    x = np.random.default_rng(2).standard_normal((3, 181)).astype(np.float16)
    made = nnefc.compile(tmp_path / "model.onnx", target=target).run({"x": x, "yes": np.array(False)})
    f = x.astype(np.float64) @ m
    expected = {"p": f @ g.T @ c, "i": np.maximum(f, 0), "e": (f @ g.T).sum(0) @ c, "z": np.einsum("oiab,ib->o", k, x)}
    for name, array in expected.items():
        np.testing.assert_allclose(made[name].reshape(array.shape), array, rtol=2e-3, atol=2e-3)


def _branch(nodes: Sequence[onnx.NodeProto], name: str) -> onnx.GraphProto:
    return graph(nodes, [], [info(name, (3,), HALF)], name=name)


def test_bodies_of_choices_and_loops_take_and_give_float16(tmp_path: Path) -> None:
    rounding = graph(
        [node("Identity", ["on"], ["on_"]), node("Mul", ["s", "e"], ["s_"])],
        [info("n", (), INT64), info("on", (), TensorProto.BOOL), info("s", (3,), HALF)],
        [info("on_", (), TensorProto.BOOL), info("s_", (3,), HALF)],
        name="rounding",
    )
    nodes = [
        node("Exp", ["x"], ["e"]),
        node(
            "If",
            ["yes"],
            ["i"],
            then_branch=_branch([node("Add", ["e", "x"], ["p"])], "p"),
            else_branch=_branch([node("Sub", ["e", "x"], ["q"])], "q"),
        ),
        node("Loop", ["times", "", "i"], ["y"], body=rounding),
    ]
    inputs = [info("x", (3,), HALF), info("yes", (), TensorProto.BOOL), info("times", (), INT64)]
    proto = model(nodes, inputs, [info("y", (3,), HALF)])
    x = np.array([0.5, -1, 0.125], np.float16)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    for yes in (True, False):
        given = {"x": x, "yes": np.array(yes), "times": np.array(2)}
        made = nnefc.compile(tmp_path / "model.onnx").run(given)["y"]
        wide = x.astype(np.float64)
        expected = (np.exp(wide) + (wide if yes else -wide)) * np.exp(wide) ** 2
        assert made.dtype == np.float16
        np.testing.assert_allclose(made.astype(np.float64), expected, rtol=3e-3)


def test_types_that_follow_from_float16_are_float16(tmp_path: Path) -> None:
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("EyeLike", ["e"], ["eye"]),
        node("SequenceConstruct", ["e", "x"], ["items"]),
        node("SequenceAt", ["items", "zero"], ["first"]),
        node("Shape", ["e"], ["shape"]),
        node("ArgMax", ["e"], ["best"], axis=1, keepdims=0),
        node("DequantizeLinear", ["q", "s"], ["d"]),
    ]
    outputs = [info("eye", (2, 2), HALF), info("first", (2, 2), HALF), info("best", (2,), INT64), info("d", (2,), HALF)]
    given = [tensor("zero", 0, np.int64), tensor("q", [3, -4], np.int8), tensor("s", 0.5, np.float16)]
    network = loaded(model(nodes, [info("x", (2, 2), HALF)], outputs, given, opset=23), tmp_path)
    made = results(network, x=np.array([[1, 2], [4, 3]], np.float16))
    assert [array.dtype for array in made.values()] == [np.float16, np.float16, np.int64, np.float16]
    np.testing.assert_array_equal(made["eye"], np.eye(2))
    np.testing.assert_array_equal(made["best"], [1, 0])
    np.testing.assert_array_equal(made["d"], [1.5, -2])


@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3", "aarch64-linux-gnu"])
@pytest.mark.sample(1)
def test_conversions_need_nothing_that_a_library_lacks(target: str, tmp_path: Path) -> None:
    nodes = [node("Exp", ["x"], ["e"]), node("Cast", ["e"], ["y"], to=BFLOAT)]
    proto = model(nodes, [info("x", (32,), HALF)], [info("y", (32,), BFLOAT), info("e", (32,), HALF)])
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    artifact = nnefc.compile(tmp_path / "model.onnx", target=target)
    artifact.export(tmp_path / "model.so")  # the linker refuses what is missing
    if "x86-64" in target and ("v3" not in target or "f16c" in Path("/proc/cpuinfo").read_text()):
        x = np.linspace(-12, 11, 32).astype(np.float16)
        e = nnefc.load(tmp_path / "model.so").run({"x": x})["e"]
        np.testing.assert_allclose(e.astype(np.float32), np.exp(x.astype(np.float32)), rtol=1e-3, atol=6e-8)
