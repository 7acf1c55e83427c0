"""Further operators of onnxruntime's domain, and experiments of the early standard, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
from exact_products import HAS_EXACT_PRODUCTS
from onnx import TensorProto
from onnx_operator_cases import SAMPLE_AND_ALL, Case, by_onnxruntime, check, compiled, sample

RNG = np.random.default_rng(29)
INT32, INT64, UINT32, UINT8, INT8 = (
    getattr(TensorProto, name) for name in ("INT32", "INT64", "UINT32", "UINT8", "INT8")
)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def codes(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def signed(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def byte(value: int) -> np.ndarray:
    return np.array(value, np.uint8)


def case(op: str, *inputs: np.ndarray | None, **given: Any) -> Case:
    constant, outputs, types = (
        given.pop(key, other) for key, other in (("constant", ()), ("outputs", 1), ("types", {}))
    )
    domain = given.pop("domain", "com.microsoft")
    return Case(op, inputs, given, frozenset(constant), outputs, domain, types)


def test_operators_of_quantized_tensors_agree_with_onnxruntime() -> None:
    grid = scale(0.1), byte(10), scale(0.25), byte(30)
    step = 1 if HAS_EXACT_PRODUCTS else 2  # weights of 7 bits: onnxruntime saturates sums of wider ones
    filters = (
        scale(0.1),
        byte(120),
        signed(4, 3, 3, 3) // step,
        scale(0.02 * step),
        np.array(0, np.int8),
        scale(2.0),
        byte(128),
    )
    known, bytes_ = (1, 2, 3, 4), {0: UINT8}
    given = [
        case("QLinearWhere", RNG.random((2, 3)) < 0.5, codes(2, 3), scale(0.1), byte(120), codes(1, 3), scale(0.2),
             byte(100), scale(0.15), byte(128), types=bytes_),
        case("QLinearConv", codes(1, 6, 7, 3), *filters, constant=range(1, 8), channels_last=1, pads=[1, 1, 1, 1],
             types=bytes_),
        case("QLinearConv", codes(1, 3, 6, 7), *filters, constant=range(1, 8), strides=[2, 2], types=bytes_),
        case("NhwcMaxPool", codes(1, 6, 7, 3), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], types=bytes_),
        case("QuantizeLinear", real(3, 4), scale(0.05), byte(100), types=bytes_),
        case("QuantizeLinear", real(3, 4), abs(real(4)), signed(4), axis=1, types={0: INT8}),
        case("DequantizeLinear", codes(3, 4), scale(0.05), byte(100)),
        case("QLinearGlobalAveragePool", codes(1, 5, 6, 3), *grid, channels_last=1, constant=known, types=bytes_),
        case("QLinearSoftmax", codes(2, 3, 4), scale(0.05), byte(10), scale(1 / 256), byte(0), axis=1, opset=12,
             constant=known, types=bytes_),
        case("QLinearSoftmax", codes(2, 3, 4), scale(0.05), byte(10), scale(1 / 256), byte(0), axis=1, opset=13,
             constant=known, types=bytes_),
        case("MatMulInteger16", RNG.integers(-300, 300, (2, 3)).astype(np.int16),
             RNG.integers(-300, 300, (3, 4)).astype(np.int16), types={0: INT32}),
    ]  # fmt: skip
    check(given, compiled(given, 17), by_onnxruntime(given, 17))


def test_integers_agree_with_their_definitions() -> None:
    a, b, c = codes(2, 3), codes(3), signed(2, 3)
    data = codes(2, 5, 6, 3)
    product = (a.astype(np.int32) - 3) * (b.astype(np.int32) - 9)
    known = {"constant": (1, 2, 3, 4), "types": {0: UINT8}}
    mean = np.round(((data.astype(np.float32) - 10) * np.float32(0.1)).mean((1, 2)) / np.float32(0.25)) + 30
    pairs = [
        (case("MulInteger", a, byte(3), b, byte(9), types={0: INT32}), product),
        (case("ReduceSumInteger", c, axes=[1], keepdims=1, types={0: INT32}), c.sum(1, np.int32, keepdims=True)),
        (case("QLinearReduceMean", data, scale(0.1), byte(10), scale(0.25), byte(30), axes=[1, 2], keepdims=0,
              **known), np.clip(mean, 0, 255).astype(np.uint8)),
    ]  # fmt: skip
    given, wanted = zip(*pairs, strict=True)
    check(given, compiled(given, 17), [[array] for array in wanted])


def experts(*rows: int, activation: str, gates: int = 1, biases: bool = True, **given: Any) -> Case:
    """A mixture of 4 experts, of rows of 8 elements."""
    first, second = real(4, gates * 12, 8), real(4, 8, 12)
    bias = [real(4, gates * 12), real(4, 8)] if biases else [None, None]
    scores = real(int(np.prod(rows)), 4)
    return case("MoE", real(*rows, 8), scores, first, bias[0], second, bias[1], activation_type=activation, **given)


@SAMPLE_AND_ALL
def test_they_agree_with_onnxruntime(whole: bool) -> None:
    image, regions = real(2, 3, 6, 7), np.array([[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], [-0.2, 0.1, 0.5, 1.3]], np.float32)
    images, words = np.array([0, 1, 1], np.int32), np.array([[1, 2, 3, 1, 2, 4, 1, 2], [5] * 8])
    numbers = RNG.integers(0, 2**31, 5)
    gated = {"swiglu_fusion": 1, "swiglu_limit": 1.0, "activation_alpha": 1.702, "activation_beta": 1.0}
    given = [
        case("Inverse", real(2, 5, 5)),
        case("CDist", real(3, 4), real(5, 4), metric="euclidean"),
        case("CDist", real(3, 4), real(5, 4), metric="sqeuclidean"),
        case("Trilu", real(3, 4), np.array(1), constant=(1,)),
        case("Trilu", real(2, 3, 4), upper=0),
        case("ExpandDims", real(3, 4), np.array(-1, np.int32), constant=(1,)),
        case("Pad", real(3, 4), np.array([0, 2, 1, -1]), constant=(1,)),
        case("Pad", real(3, 4), np.array([1, 1, 1, 1]), scale(2.5), constant=(1, 2)),
        case("Pad", real(3, 4), np.array([1, 1, 1, 1]), mode="reflect", constant=(1,)),
        case("Range", scale(1), scale(5), scale(0.5), constant=(0, 1, 2)),
        case("Range", np.array(1), np.array(5), constant=(0, 1), types={0: INT64}),
        case("Unique", np.array([3, 1, 2, 1, 3, 5], np.float32), outputs=3, types={1: INT64, 2: INT64}),
        case("GatherND", real(3, 4), np.array([[0, 1], [2, 3]])),
        case("GridSample", real(1, 2, 4, 5), real(1, 3, 3, 2), mode="bicubic", padding_mode="border"),
        case("CropAndResize", image, regions, images, np.array([4, 5], np.int32), constant=(3,)),
        case("CropAndResize", image, regions, images, np.array([4, 1], np.int32), constant=(3,), mode="nearest",
             extrapolation_value=3.0),
        case("NGramRepeatBlock", words, real(2, 9), ngram_size=3),
        case("NGramRepeatBlock", words, real(2, 9), ngram_size=1),
        case("MurmurHash3", numbers.astype(np.int32), types={0: UINT32}),
        case("MurmurHash3", numbers.astype(np.int32), seed=7, positive=0, types={0: INT32}),
        case("MurmurHash3", numbers, types={0: UINT32}),
        case("MurmurHash3", real(5), types={0: UINT32}),
        experts(5, activation="relu", k=2),
        experts(5, activation="gelu", k=2, normalize_routing_weights=1),
        experts(1, 5, activation="silu", k=1, biases=False),
        experts(5, activation="swiglu", gates=2, k=2, normalize_routing_weights=1, **gated),
    ]  # fmt: skip
    given = [given[index] for index in sample(given, whole)]
    check(given, compiled(given, 17), by_onnxruntime(given, 17), tolerance=1e-4)


def test_those_for_other_processors_agree_with_their_definitions() -> None:
    a, b, signal = real(3, 2), real(3, 2), real(3, 8)
    one, other, spectrum = a[:, 0] + 1j * a[:, 1], b[:, 0] + 1j * b[:, 1], np.fft.rfft(signal)
    pairs = [
        (case("ComplexMul", a, b), of_complex(one * other)),
        (case("ComplexMulConj", a, b), of_complex(one * np.conj(other))),
        (case("Rfft", signal, signal_ndim=1), of_complex(spectrum)),
        (case("Irfft", of_complex(spectrum), signal_ndim=1), signal),
    ]
    given, wanted = zip(*pairs, strict=True)
    check(given, compiled(given, 17), [[array] for array in wanted])


def of_complex(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], -1).astype(np.float32)


def test_experiments_of_the_early_standard_agree_with_onnxruntime() -> None:
    given = [
        case("ImageScaler", real(1, 3, 4, 4), bias=[0.1, 0.2, 0.3], scale=2.0, domain=""),
        case("Affine", real(3, 4), alpha=2.0, beta=0.5, domain=""),
        case("ParametricSoftplus", real(3, 4), alpha=2.0, beta=0.5, domain=""),
        case("ScaledTanh", real(3, 4), alpha=2.0, beta=0.5, domain=""),
        case("Crop", real(1, 2, 6, 7), border=[1, 2, 1, 1], domain=""),
        case("Crop", real(1, 2, 6, 7), border=[1, 2, 0, 0], scale=[2, 3], domain=""),
        case("ThresholdedRelu", real(3, 4), alpha=0.5, domain=""),
    ]
    check(given, compiled(given, 8), by_onnxruntime(given, 8))
