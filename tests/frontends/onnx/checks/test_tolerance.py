"""Models that break rules without harm, and operators as the first versions of the standard had them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import INT64, graph, info, loaded, model, node, results, save, tensor

import nnefc
from nnefc.support.diagnostics import CompileError, ModelWarning

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
X4 = np.random.default_rng(4).standard_normal((2, 3, 4, 5)).astype(np.float32)
NEG = [node("Neg", ["x"], ["y"])]


def run(proto: onnx.ModelProto, folder: Path, x: np.ndarray = X) -> tuple[np.ndarray, list[str]]:
    """The output `y`, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network = loaded(proto, folder)
    found = results(network, **dict.fromkeys(network.inputs, x))["y"]
    return found, [str(element.message) for element in caught if element.category is ModelWarning]


def edited(change: Callable[[onnx.ModelProto], Any], nodes: Any = NEG, *parts: Any, **more: Any) -> onnx.ModelProto:
    proto = model(nodes, *parts, **more)
    change(proto)
    return proto


def inner(*nodes: onnx.NodeProto, output: str = "t", name: str = "inner") -> onnx.GraphProto:
    return graph(nodes, [], [info(output)], name=name)


ADD = [node("Add", ["x", "w"], ["y"])]
W123 = np.float32([1, 2, 3])
W = tensor("w", W123)
TWO = [node("Neg", ["x"], ["h"]), node("Neg", ["h"], ["y"])]
UNUSED = helper.make_function("f", "Bad", ["a"], ["b"], [node("Nope", ["a"], ["b"])], [helper.make_opsetid("", 21)])
NO_IMPORTS = helper.make_function("f", "A", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [])
NESTED = helper.make_function("f", "B", ["a"], ["b"], [node("A", ["a"], ["b"], domain="f")], [])

TOLERATED: dict[str, tuple[onnx.ModelProto, np.ndarray, str]] = {
    "an unused initializer": (model(NEG, None, None, [W]), -X, ""),
    "an initializer twice": (model(ADD, None, None, [W, W]), X + W123, "the initializer 'w' twice"),
    "an initializer without a name": (model(NEG, None, None, [tensor("", [1])]), -X, "initializer without a name"),
    "an initializer that is an input of another shape": (
        model(ADD, [info("x"), info("w", (7,))], None, [W]), X + W123, ""),
    "the shape of a value": (
        edited(lambda m: m.graph.value_info.append(info("h", (7,))), TWO), X, "'h' is declared with the rank 1"),
    "the type of a value": (
        edited(lambda m: m.graph.value_info.append(info("h", (2, 3), INT64)), TWO), X, "'h' is declared as int64"),
    "the type of what is not there": (edited(lambda m: m.graph.value_info.append(info("q")), TWO), X, ""),
    "a type without a name": (edited(lambda m: m.graph.value_info.add()), -X, ""),
    "an output without a type": (edited(lambda m: m.graph.output[0].ClearField("type")), -X, ""),
    "a graph without a name": (edited(lambda m: setattr(m.graph, "name", "")), -X, ""),
    "no version of the format": (
        edited(lambda m: m.ClearField("ir_version")), -X, "does not say which version of the format it is in: 3"),
    "operator sets in version 2": (edited(lambda m: setattr(m, "ir_version", 2)), -X, "which version 2 of the format"),
    "ai.onnx twice": (edited(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 21))), -X, ""),
    "imports that nothing is of": (model(NEG, imports={"com.nobody": 3}), -X, ""),
    "a domain that is not imported": (
        model([node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.5)]), (X > 0.5) * 1.0,
        "no operator set of the domain 'ai.onnx.ml': version"),
    "onnxruntime's domain that is not imported": (
        model([node("Gelu", ["x"], ["h"], domain="com.microsoft"), node("Sign", ["h"], ["y"])]), np.sign(X),
        "no operator set of the domain 'com.microsoft': version 1"),
    "functions without imports, in any order": (
        model([node("B", ["x"], ["y"], domain="f")], functions=[NESTED, NO_IMPORTS]), -X,
        "the function 'A' imports no operator set of the domain 'ai.onnx': version 21"),
    "a function that is not used": (model(NEG, functions=[UNUSED]), -X, ""),
    "metadata twice": (edited(lambda m: [m.metadata_props.add(key="k", value=v) for v in "ab"]), -X, ""),
    "an attribute without a type": (
        edited(lambda m: m.graph.node[0].attribute[0].ClearField("type"), [node("LeakyRelu", ["x"], ["y"], alpha=0.5)]),
        np.where(X < 0, X / 2, X), ""),
    "a node without outputs": (
        model([*NEG, node("Abs", ["x"], []), node("Abs", ["x"], [""])]), -X, "Abs is left out: nothing needs"),
    "unknown operators that nothing needs": (
        model([*NEG, node("Odd", ["y"], ["q"], domain="my"), node("Odder", ["q"], ["r"])]), -X,
        "the node my.Odd that makes 'q' is left out"),
    "an input that is not used": (model(NEG, [info("x"), info("z")]), -X, ""),
    "a branch that returns an outer value": (
        model([node("Neg", ["x"], ["h"]),
               node("If", ["c"], ["y"], then_branch=inner(output="h"),
                    else_branch=inner(node("Abs", ["x"], ["t"]), name=""))], None, None, [tensor("c", True, bool)]),
        -X, ""),
    "a branch whose initializer has an outer name": (
        model([node("If", ["c"], ["h"], else_branch=inner(node("Neg", ["x"], ["t"])),
                    then_branch=graph([node("Add", ["x", "w"], ["t"])], [], [info("t")], [tensor("w", [9, 9, 9])])),
               node("Add", ["h", "w"], ["y"])], None, None, [W, tensor("c", True, bool)]), X + 9 + W123, ""),
}  # fmt: skip
"""Models, what they compute, and a part of the warning."""


@pytest.mark.parametrize("name", TOLERATED)
def test_what_does_no_harm_is_let_pass(tmp_path: Path, name: str) -> None:
    proto, expected, warning = TOLERATED[name]
    found, warned = run(proto, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert any(warning in text for text in warned) if warning else warned == []


@pytest.mark.parametrize("version", range(1, onnx.IR_VERSION + 1))
@pytest.mark.sample(4)
def test_all_versions_of_the_format_are_read(tmp_path: Path, version: int) -> None:
    """Versions before the third have no operator sets, and those before the fourth list initializers as inputs."""
    inputs = [info("x"), info("w", (3,))] if version < 4 else None
    proto = model(ADD if version >= 3 else [node("Add", ["x", "w"], ["y"], broadcast=1)], inputs, None, [W], opset=8)
    proto.ir_version = version
    if version < 3:
        del proto.opset_import[:]
    np.testing.assert_array_equal(run(proto, tmp_path)[0], X + np.float32([1, 2, 3]))


BAD: dict[str, tuple[onnx.ModelProto, str]] = {
    "two initializers": (model(ADD, None, None, [W, tensor("w", [4, 4, 4])]), "give one of them another name"),
    "no operator set": (edited(lambda m: m.ClearField("opset_import")), "model.opset_import.append"),
    "operator sets of two versions": (
        edited(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 20))), "onnx.checker.check_model"),
    "a newer operator set": (model(NEG, opset=999), "convert the model to an older operator set"),
    "an unknown operator": (model([node("Odd", ["x"], ["y"], domain="my")]), "--operators FILE.py"),
    "an operator that the standard lacks": (
        model([node("DynamicSlice", ["x"], ["y"])], opset=1), "--operators FILE.py"),
    "an unknown attribute": (model([node("Neg", ["x"], ["y"], z=1)]), "onnx.checker.check_model"),
    "an old attribute with a meaning": (
        model([node("Add", ["x", "w"], ["y"], broadcast=1, axis=1)], None, None, [W]), "onnx.checker.check_model"),
    "a name twice": (model([*NEG, node("Abs", ["x"], ["y"])]), "onnx.checker.check_model"),
    "an input without a type": (
        edited(lambda m: m.graph.input[0].ClearField("type")), "type.tensor_type.elem_type = onnx.TensorProto.FLOAT"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused_has_a_way_out(tmp_path: Path, name: str) -> None:
    proto, hint = BAD[name]
    with pytest.raises(CompileError) as caught:
        loaded(proto, tmp_path)
    assert caught.value.hint is not None and hint in caught.value.hint


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


C, SPREAD = random(3), random(3)[:, None, None]
S, B, M, V = (np.abs(random(3) + k) + np.float32(0.1) for k in range(4))
FULL = [np.abs(random(3, 4, 5) + k) + np.float32(0.1) for k in range(4)]
VECTORS = [tensor(name, value) for name, value in zip("sbmv", (S, B, M, V), strict=True)]
BATCH = ["x", "s", "b", "m", "v"]


def normalized(s: np.ndarray, b: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    s, b, m, v = (part if part.ndim > 1 else part[:, None, None] for part in (s, b, m, v))
    return (X4 - m) / np.sqrt(v + 1e-5) * s + b


def soft(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


Old = tuple[int, onnx.NodeProto, np.ndarray, list[onnx.TensorProto]]
OLD: dict[str, Old] = {
    "Add, axis": (1, node("Add", ["x", "c"], ["y"], broadcast=1, axis=1, consumed_inputs=[0, 0]), X4 + SPREAD,
                  [tensor("c", C)]),
    "Sub, suffix": (6, node("Sub", ["x", "c"], ["y"], broadcast=1), X4 - random(4, 5), [tensor("c", random(4, 5))]),
    "Mul, number": (6, node("Mul", ["x", "c"], ["y"], broadcast=1), X4 * 3, [tensor("c", 3)]),
    "Div, negative axis": (6, node("Div", ["x", "c"], ["y"], broadcast=1, axis=-3), X4 / SPREAD, [tensor("c", C)]),
    "Add, left over": (7, node("Add", ["x", "c"], ["y"], broadcast=1), X4 + SPREAD, [tensor("c", SPREAD)]),
    "PRelu": (6, node("PRelu", ["x", "c"], ["y"]), np.where(X4 < 0, X4 * SPREAD, X4), [tensor("c", C)]),
    "Relu, left over": (6, node("Relu", ["x"], ["y"], consumed_inputs=[0]), np.maximum(X4, 0), []),
    "Max": (1, node("Max", ["x", "c"], ["y"], consumed_inputs=[0, 0]), np.maximum(X4, 0.1),
            [tensor("c", np.full(X4.shape, 0.1))]),
    "Clip": (1, node("Clip", ["x"], ["y"], min=-1.0, max=1.0, consumed_inputs=[0]), X4.clip(-1, 1), []),
    "BatchNormalization": (1, node("BatchNormalization", BATCH, ["y"], is_test=1, consumed_inputs=[0, 0, 0, 1, 1]),
                           normalized(S, B, M, V), VECTORS),
    "BatchNormalization, left over": (9, node("BatchNormalization", BATCH, ["y"], is_test=1, spatial=1),
                                      normalized(S, B, M, V), VECTORS),
    "BatchNormalization, all outputs": (
        6, node("BatchNormalization", BATCH, ["y", "m1", "v1", "m2", "v2"], is_test=1), normalized(S, B, M, V),
        VECTORS),
    "BatchNormalization, by element": (7, node("BatchNormalization", BATCH, ["y"], spatial=0), normalized(*FULL),
                                       [tensor(n, a) for n, a in zip("sbmv", FULL, strict=True)]),
    "Dropout": (1, node("Dropout", ["x"], ["y"], is_test=1, ratio=0.3, consumed_inputs=[0]), X4, []),
    "Dropout, left over": (7, node("Dropout", ["x"], ["y"], is_test=1), X4, []),
    "Upsample": (1, node("Upsample", ["x"], ["y"], height_scale=2.0, width_scale=2.0), X4.repeat(2, 2).repeat(2, 3),
                 []),
    "Upsample, scales": (7, node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 1.0, 2.0]), X4.repeat(2, 3), []),
    "Upsample, input": (9, node("Upsample", ["x", "s"], ["y"]), X4.repeat(3, 2), [tensor("s", [1, 1, 3, 1])]),
    "Reshape": (1, node("Reshape", ["x"], ["y"], shape=[0, -1], consumed_inputs=[0]), X4.reshape(2, -1), []),
    "Cast": (1, node("Cast", ["x"], ["y"], to="INT32"), X4.astype(np.int32), []),
    "Split": (1, node("Split", ["x", "s"], ["y", "z"], axis=1), X4[:, :1], [tensor("s", [1, 2])]),
    "Pad": (1, node("Pad", ["x"], ["y"], paddings=[0, 0, 0, 1, 0, 0, 0, 1], value=2.0),
            np.pad(X4, ((0, 0),) * 3 + ((1, 1),), constant_values=2), []),
    "Slice": (1, node("Slice", ["x"], ["y"], starts=[1], ends=[3], axes=[2]), X4[:, :, 1:3], []),
    "Affine": (1, node("Affine", ["x"], ["y"], alpha=2.0, beta=1.0), 2 * X4 + 1, []),
    "ScaledTanh": (1, node("ScaledTanh", ["x"], ["y"], alpha=2.0, beta=0.5), 2 * np.tanh(X4 / 2), []),
    "ParametricSoftplus": (1, node("ParametricSoftplus", ["x"], ["y"], alpha=2.0, beta=0.5), 2 * soft(X4 / 2), []),
    "ThresholdedRelu": (1, node("ThresholdedRelu", ["x"], ["y"], alpha=0.5), np.where(X4 > 0.5, X4, 0), []),
    "ImageScaler": (1, node("ImageScaler", ["x"], ["y"], scale=2.0, bias=C.tolist()), 2 * X4 + SPREAD, []),
    "Crop": (1, node("Crop", ["x"], ["y"], border=[1, 0, 2, 1]), X4[:, :, :3, 1:3], []),
    "Crop, sizes": (1, node("Crop", ["x"], ["y"], border=[1, 2, 0, 0], scale=[2, 3]), X4[:, :, 2:4, 1:4], []),
    "MeanVarianceNormalization": (
        1, node("MeanVarianceNormalization", ["x"], ["y"]),
        (X4 - X4.mean((0, 2, 3), keepdims=True)) / X4.std((0, 2, 3), keepdims=True), []),
    "MeanVarianceNormalization, mean": (
        1, node("MeanVarianceNormalization", ["x"], ["y"], across_channels=1, normalize_variance=0), X4 - X4.mean(),
        []),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_operators_are_what_they_were(tmp_path: Path, name: str) -> None:
    opset, made, expected, constants = OLD[name]
    dtype = helper.np_dtype_to_tensor_dtype(expected.dtype) if expected.dtype != np.float64 else TensorProto.FLOAT
    proto = model([made], [info("x", X4.shape)], [info("y", expected.shape, dtype)], constants, opset=opset)
    proto.ir_version = 3
    found, _ = run(proto, tmp_path, X4)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_misspelt_default_of_a_direction_is_read(tmp_path: Path) -> None:
    """The first version of GRU goes `foward`."""
    weights = [tensor("w", random(1, 6, 3)), tensor("r", random(1, 6, 2))]
    border = [info("x", (4, 1, 3))], [info("y", (4, 1, 1, 2)), info("z", (1, 1, 2))]
    made = []
    for opset in (1, 3):
        proto = model([node("GRU", ["x", "w", "r"], ["y", "z"], hidden_size=2)], *border, weights, opset=opset)
        made.append(run(proto, tmp_path, random(4, 1, 3))[0])
    np.testing.assert_allclose(*made, rtol=1e-6)


@pytest.mark.slow
def test_external_weights_of_more_than_two_gigabytes_are_read(tmp_path: Path) -> None:
    """Two tables of 1.1 GB, upper of whose bytes the file system does not store."""
    rows, width, file = 1100, 1 << 20, tmp_path / "weights.bin"
    with file.open("wb") as content:
        content.truncate(2 * rows * width)
        for position, value in ((3 * width, 3), ((rows + 7) * width, 5)):
            content.seek(position)
            content.write(bytes([value]) * width)

    def table(name: str, offset: int) -> onnx.TensorProto:
        made = TensorProto(
            name=name, data_type=TensorProto.UINT8, dims=[rows, width], data_location=TensorProto.EXTERNAL
        )
        for key, value in (("location", file.name), ("offset", offset), ("length", rows * width)):
            made.external_data.add(key=key, value=str(value))
        return made

    nodes = [node("Gather", ["a", "i"], ["s"]), node("Gather", ["b", "i"], ["t"]), node("Add", ["s", "t"], ["y"])]
    border = [info("i", (2,), INT64)], [info("y", (2, width), TensorProto.UINT8)]
    proto = model(nodes, *border, [table("a", 0), table("b", rows * width)])
    with nnefc.compile(save(proto, tmp_path)).load(threads=1) as library:
        found = library.run({"i": np.array([3, 7])})["y"]
    assert (found == [[3], [5]]).all()
