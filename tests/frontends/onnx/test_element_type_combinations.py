"""Combinations of element types that schemas allow, and few models have: values by NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import INT64, info, model, node, save

import nnefc
import nnefc.onnx_backend as backend
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(11)


def run(op_type: str, inputs: list[np.ndarray], outputs: list[np.dtype | type], opset: int = 23, **given: Any) -> Any:
    names = [f"i{index}" for index in range(len(inputs))]
    results = [f"o{index}" for index in range(len(outputs))]
    code = helper.np_dtype_to_tensor_dtype
    made = model(
        [node(op_type, names, results, **given)],
        [helper.make_tensor_value_info(n, code(a.dtype), a.shape) for n, a in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info(n, code(np.dtype(d)), None) for n, d in zip(results, outputs, strict=True)],
        opset=opset,
    )
    return backend.run_model(made, inputs)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint64"])
@pytest.mark.sample(2)
def test_integers_shrink_by_real_limits(dtype: str) -> None:
    x = np.arange(0 if dtype.startswith("u") else -4, 5).astype(dtype)
    (found,) = run("Shrink", [x], [x.dtype], lambd=1.5, bias=1.5)
    real = x.astype(np.float64)
    expected = np.where(real < -1.5, real + 1.5, np.where(real > 1.5, real - 1.5, 0)).astype(dtype)
    np.testing.assert_array_equal(found, expected)


def test_statistics_have_the_type_that_the_layer_keeps_them_in() -> None:
    x, scale = RNG.standard_normal((3, 5)), RNG.standard_normal(5)
    y, mean, inverse = run("LayerNormalization", [x, scale], [np.float64, np.float32, np.float32], opset=17)
    np.testing.assert_allclose(mean, x.mean(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(y, (x - x.mean(-1, keepdims=True)) * inverse * scale, rtol=1e-5)


@pytest.mark.parametrize("result", [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, np.uint8])
@pytest.mark.sample(1)
def test_matrices_of_narrow_floats_are_multiplied(result: Any) -> None:
    narrow = np.dtype(ml_dtypes.float8_e4m3fn)
    a, b = RNG.standard_normal((3, 4)).astype(narrow), RNG.standard_normal((4, 2)).astype(narrow)
    scales = [np.float32(s) for s in (0.5, 0.25, 0.02)]
    zero = np.array(0 if result is not np.uint8 else 9, result)
    inputs = [a, scales[0], np.array(0, narrow), b, scales[1], np.array(0, narrow), scales[2], zero]
    (found,) = run("QLinearMatMul", [np.asarray(i) for i in inputs], [np.dtype(result)], opset=21)
    real = (a.astype(np.float64) * 0.5) @ (b.astype(np.float64) * 0.25) / np.float64(scales[2])
    if result is np.uint8:
        np.testing.assert_array_equal(found, np.clip(np.rint(real) + 9, 0, 255).astype(np.uint8))
    else:
        limit = float(ml_dtypes.finfo(result).max)
        np.testing.assert_array_equal(found, np.clip(real, -limit, limit).astype(np.float32).astype(result))


def test_integers_are_quantized_with_integer_scales() -> None:
    x = RNG.integers(-4000, 4000, (6,)).astype(np.int32)
    (found,) = run("QuantizeLinear", [x, np.array(7, np.int32), np.array(3, np.int8)], [np.int8])
    np.testing.assert_array_equal(found, np.clip(np.rint(x / 7) + 3, -128, 127).astype(np.int8))


@pytest.mark.parametrize(("one", "other"), [("float64", "float32"), ("float32", "float64")])
@pytest.mark.sample(1)
def test_values_of_attention_may_be_of_another_type(one: str, other: str) -> None:
    query, key = (RNG.standard_normal((1, 2, n, 4)).astype(one) for n in (3, 5))
    value = RNG.standard_normal((1, 2, 5, 4)).astype(other)
    (found,) = run("Attention", [query, key, value], [np.dtype(one)])
    scores = np.exp(query @ key.swapaxes(-1, -2) / 2)
    np.testing.assert_allclose(found, scores / scores.sum(-1, keepdims=True) @ value, rtol=1e-4)


def test_bodies_of_the_standard_take_the_types_of_their_operators(tmp_path: Path) -> None:
    """The loss takes bfloat16 from version 13 on, the operator that its body has only later."""
    kind = onnx.TensorProto.BFLOAT16
    scores = RNG.standard_normal((3, 5)).astype(ml_dtypes.bfloat16)
    labels = np.array([0, 4, 2])
    proto = model(
        [node("SoftmaxCrossEntropyLoss", ["x", "l"], ["y"])],
        [info("x", (3, 5), kind), info("l", (3,), INT64)],
        [info("y", (), kind)],
        opset=13,
    )
    (found,) = backend.run_model(str(save(proto, tmp_path)), [scores, labels])
    real = scores.astype(np.float64)
    chances = np.exp(real) / np.exp(real).sum(1, keepdims=True)
    expected = -np.log(chances[np.arange(3), labels]).mean()
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=2**-7)


def test_constants_of_strings_are_read_as_numbers_of_every_type() -> None:
    words = {
        np.uint64: [b"18446744073709551615", b"5", b"9007199254740993", b" +7.9 "],
        np.int64: [b"-9223372036854775808", b"9007199254740993", b"1e3", b"-2.5"],
        np.int8: [b"-128", b"127", b"0", b"12e-1"],
        np.float32: [b"-inf", b".5", b"1e40", b"nan"],
        np.bool_: [b"1", b"0", b"0.5", b"1.0"],
    }
    expected: dict[type, list[float]] = {
        np.uint64: [2**64 - 1, 5, 2**53 + 1, 7],
        np.int64: [-(2**63), 2**53 + 1, 1000, -2],
        np.int8: [-128, 127, 0, 1],
        np.float32: [-np.inf, 0.5, np.inf, np.nan],
        np.bool_: [1, 0, 0, 1],
    }
    nodes, outputs = [], []
    for number, (kind, texts) in enumerate(words.items()):
        code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        text = helper.make_tensor("", onnx.TensorProto.STRING, [4], texts)
        nodes += [
            node("Constant", [], [f"t{number}"], value=text),
            node("Cast", [f"t{number}"], [f"y{number}"], to=code),
        ]
        outputs.append(helper.make_tensor_value_info(f"y{number}", code, [4]))
    found = backend.run_model(model(nodes, [info("x", [1])], outputs), [np.zeros(1, np.float32)])
    for values, (kind, numbers) in zip(found, expected.items(), strict=True):
        np.testing.assert_array_equal(values, np.array([kind(n) for n in numbers]))


@pytest.mark.parametrize("text", ["99999999999999999999", "-1e30", "inf", "1_0", "0x10", "", "1.5.2", "300"])
def test_constants_of_strings_that_a_type_does_not_hold_are_refused(text: str) -> None:
    code = onnx.TensorProto.INT64 if len(text) > 3 else onnx.TensorProto.UINT8
    value = helper.make_tensor("", onnx.TensorProto.STRING, [], [text.encode()])
    nodes = [node("Constant", [], ["t"], value=value), node("Cast", ["t"], ["y"], to=code)]
    made = model(nodes, [info("x", [1])], [helper.make_tensor_value_info("y", code, [])])
    with pytest.raises(CompileError, match=r"is not a number of type|is out of the range of"):
        nnefc.compile(made)
