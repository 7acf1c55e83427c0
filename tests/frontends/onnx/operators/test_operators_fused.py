"""Operators that onnxruntime's optimizer writes, compared with onnxruntime, or by their definition where it has no
kernel."""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

import numpy as np
import pytest
from onnx_operator_cases import SAMPLE_AND_ALL, Case, by_onnxruntime, check, compiled, sample

RNG = np.random.default_rng(5)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def case(op: str, *inputs: np.ndarray | None, constant: tuple[int, ...] = (), outputs: int = 1, **given: Any) -> Case:
    types = given.pop("types", {})
    return Case(op, inputs, given, frozenset(constant), outputs, given.pop("domain", "com.microsoft"), types)


@SAMPLE_AND_ALL
def test_they_agree_with_onnxruntime(whole: bool) -> None:
    rows = [real(2, 5, 12) for _ in range(2)]
    image, filters, bias = real(1, 3, 6, 6), real(4, 3, 3, 3), real(4)
    words, segments = RNG.integers(0, 9, (2, 5), np.int32), RNG.integers(0, 2, (2, 5), np.int32)
    tables, mask = [real(9, 12), real(6, 12)], (RNG.random((2, 5)) < 0.6).astype(np.int32)
    norms = [real(12), real(12)]
    integers = RNG.integers(0, 255, (3, 4, 8)).astype(np.uint8), RNG.integers(-127, 127, (8, 5)).astype(np.int8)
    scale, unsigned = np.array(0.03, np.float32), RNG.integers(0, 255, (8, 5)).astype(np.uint8)
    given = [
        case("Gelu", real(3, 7)),
        case("QuickGelu", real(3, 7), alpha=1.3),
        case("BiasGelu", rows[0], real(12)),
        case("FastGelu", real(3, 7)),
        case("FastGelu", rows[0], real(12)),
        case("FusedMatMul", real(2, 5, 3), real(2, 5, 4), transA=1, alpha=0.3),
        case("FusedMatMul", real(6, 5), real(4, 5), transB=1),
        case("FusedMatMul", real(4, 2, 3), real(2, 3, 5), transBatchA=1),
        case("FusedMatMul", real(3, 2, 4), real(2, 3, 5), transBatchA=1, transA=1),
        case("FusedMatMul", real(2, 4, 3), real(3, 2, 5), transBatchB=1),
        case("TransposeMatMul", real(3, 4), real(3, 5), transA=1),
        case("FusedGemm", real(4, 3), real(3, 5), real(5), activation="LeakyRelu", activation_alpha=0.2, beta=2.0),
        case("FusedGemm", real(4, 3), real(5, 3), activation="Tanh", transB=1, alpha=0.5),
        case("FusedConv", image, filters, bias, constant=(1, 2), activation="Relu", pads=[1, 1, 1, 1]),
        case("FusedConv", image, filters, bias, real(1, 4, 4, 4), constant=(1, 2), activation="HardSigmoid",
             activation_params=[0.3, 0.4]),
        case("FusedConv", image, filters, constant=(1,), activation="Clip", activation_params=[-0.3, 0.4]),
        case("SkipLayerNormalization", *rows, real(12), epsilon=1e-5),
        case("SkipLayerNormalization", *rows, *norms, real(12)),
        case("SkipLayerNormalization", rows[0], rows[1][0], real(12)),
        case("SkipSimplifiedLayerNormalization", *rows, real(12)),
        case("SkipSimplifiedLayerNormalization", *rows, real(12), real(12)),
        case("SimplifiedLayerNormalization", rows[0], real(12), domain=""),
        case("EmbedLayerNormalization", words, segments, *tables, real(2, 12), *norms, mask, outputs=2, types={1: 6}),
        case("EmbedLayerNormalization", words, None, *tables, None, *norms, None,
             RNG.integers(0, 6, (1, 5), np.int32), outputs=3, types={1: 6}),
        case("DynamicQuantizeMatMul", real(3, 4, 8), integers[1], abs(real(5)), constant=(1, 2)),
        case("DynamicQuantizeMatMul", real(3, 4, 8), unsigned, abs(real(1)), np.array([120], np.uint8), real(5),
             constant=(1, 2, 3, 4)),
        case("MatMulIntegerToFloat", *integers, scale, real(5), np.array(128, np.uint8), constant=(1, 3)),
        case("MatMulIntegerToFloat", integers[0], unsigned, scale, real(1), None, np.array(7, np.uint8), real(5)),
    ]  # fmt: skip
    given = [given[index] for index in sample(given, whole)]
    check(given, compiled(given, 17), by_onnxruntime(given, 17))


def test_embeddings_of_integers_agree_with_onnxruntime() -> None:
    words, segments = RNG.integers(0, 9, (2, 5), np.int32), RNG.integers(0, 2, (2, 5), np.int32)
    tables = [RNG.integers(0, 256, shape).astype(np.uint8) for shape in ((9, 12), (6, 12), (2, 12), (12,), (12,))]
    scales = [np.array(0.01 * (position + 1), np.float32) for position in range(5)]
    zeros = [np.array(100 + position, np.uint8) for position in range(5)]
    mask = (RNG.random((2, 5)) < 0.6).astype(np.int32)
    inputs = [words, segments, *tables, mask, *scales, *zeros]
    constant = (*range(2, 7), *range(8, 18))
    given = [case("QEmbedLayerNormalization", *inputs, constant=constant, outputs=2, types={1: 6})]
    check(given, compiled(given, 17), by_onnxruntime(given, 17))


def test_old_versions_of_the_standard_have_layer_normalization_from_onnxruntime() -> None:
    given = [case("LayerNormalization", real(2, 5, 12), real(12), real(12), domain="", epsilon=1e-3)]
    check(given, compiled(given, 14), by_onnxruntime(given, 14))


@pytest.mark.slow
def test_those_for_other_processors_agree_with_their_definitions() -> None:
    x, bias, skip = real(2, 3, 8), real(8), real(2, 3, 8)
    scores, mask = real(2, 3, 4, 5), real(2, 1, 1, 5)
    powers = np.exp((scores + mask).astype(np.float64))
    left, right = np.split((x + bias).astype(np.float64), 2, -1)
    image, scale, offset = real(2, 3, 2, 8), real(8), real(8)
    added, row = real(2, 3, 2, 8), real(2, 8)
    pairs = [
        (case("BiasAdd", x, bias, skip), [x + bias + skip]),
        (case("BiasSoftmax", scores, mask, axis=3, is_inner_broadcast=1), [powers / powers.sum(-1, keepdims=True)]),
        (case("BiasSplitGelu", x, bias), [left * right * (1 + np.vectorize(erf)(right / sqrt(2))) / 2]),
        (case("BiasDropout", x, bias, skip), [x + bias + skip]),
        (case("GemmFastGelu", x, real(8, 4) * 0, real(4) * 0), [np.zeros((2, 3, 4))]),
        (case("FusedMatMulActivation", x, np.eye(8, dtype=np.float32), activation="Relu"), [np.maximum(x, 0)]),
        (case("GroupNorm", image, scale, offset, groups=4, activation=1), [silu(groups(image, scale, offset))]),
        (case("SkipGroupNorm", image, scale, offset, added, bias, groups=4, activation=0, outputs=2),
         [groups(image + added + bias, scale, offset), image + added + bias]),
        (case("SkipGroupNorm", image, scale, offset, row, groups=4, activation=0),
         [groups(image + row[:, None, None], scale, offset)]),
        (case("NhwcConv", image, np.eye(8, dtype=np.float32)[:, :, None, None], constant=(1,)), [image]),
    ]  # fmt: skip
    given, wanted = zip(*pairs, strict=True)
    check(given, compiled(given, 17), [[array.astype(np.float32) for array in arrays] for arrays in wanted])


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def groups(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """The normalization of 4 groups of 2 channels, which come last."""
    parts = x.astype(np.float64).reshape(len(x), -1, 4, 2)
    mean, variance = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    return ((parts - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) * scale + offset
