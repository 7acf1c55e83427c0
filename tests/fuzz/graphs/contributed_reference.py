"""Steps of onnxruntime's own operators in NumPy, that :mod:`simpler` makes of these.

Source: onnxruntime's text of its operators, `docs/ContribOperators.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OF_ONNXRUNTIME", "unpacked"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]


def _products(given: Attributes, a: Array, b: Array) -> Array:
    a = a.swapaxes(-1, -2) if given.get("transA") else a
    b = b.swapaxes(-1, -2) if given.get("transB") else b
    return np.asarray(given.get("alpha", 1.0) * np.matmul(a, b))


def _with_bias(given: Attributes, x: Array, bias: Array, *operands: Array) -> Array:
    """One of several operands with its part of a bias for all of them."""
    starts = np.cumsum([0, *(operand.shape[-1] for operand in operands)])
    index = given["index"]
    return np.asarray(x + bias[starts[index] : starts[index + 1]])


def _real(x: Array, scale: Array, zero: Array | None, axis: int = 1) -> Array:
    """What integers stand for; of a scale for each location of an axis, of that axis."""
    shape = _along(x, axis) if np.ndim(scale) else ()
    middle = 0.0 if zero is None else zero.astype(np.float64).reshape(shape)
    return np.asarray((x.astype(np.float64) - middle) * scale.reshape(shape))


def _along(x: Array, axis: int) -> tuple[int, ...]:
    """The shape in which one number for each location of an axis is repeated to a tensor's."""
    return tuple(-1 if k == axis % x.ndim else 1 for k in range(x.ndim))


def _repeated(given: Attributes, x: Array, parameters: Array) -> Array:
    return parameters.reshape(_along(x, given.get("axis", 1)) if parameters.ndim else ())


def _scaled(given: Attributes, x: Array, scale: Array) -> Array:
    return np.asarray(x / _repeated(given, x, scale))


def _sum(_given: Attributes, a: Array, a_scale: Array, a_zero: Array, *tail: Array) -> Array:
    b, b_scale, b_zero, scale = tail
    return np.asarray((_real(a, a_scale, a_zero) + _real(b, b_scale, b_zero)) / scale)


def _product(_given: Attributes, a: Array, a_scale: Array, a_zero: Array, *tail: Array) -> Array:
    b, b_scale, b_zero, scale = tail
    return np.asarray(_real(a, a_scale, a_zero) * _real(b, b_scale, b_zero) / scale)


def _sigmoid(_given: Attributes, x: Array, x_scale: Array, x_zero: Array, scale: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-_real(x, x_scale, x_zero))) / scale)


def _leaky_relu(given: Attributes, x: Array, x_scale: Array, x_zero: Array, scale: Array) -> Array:
    real = _real(x, x_scale, x_zero)
    return np.asarray(np.where(real < 0, given.get("alpha", float(np.float32(0.01))) * real, real) / scale)


def _mean(_given: Attributes, x: Array, x_scale: Array, x_zero: Array, scale: Array) -> Array:
    return np.asarray(_real(x, x_scale, x_zero).mean(tuple(range(2, x.ndim)), keepdims=True) / scale)


def _softmax(given: Attributes, x: Array, x_scale: Array, x_zero: Array, scale: Array) -> Array:
    real = _real(x, x_scale, x_zero)
    powers = np.exp(real - real.max(given["axis"], keepdims=True))
    return np.asarray(powers / powers.sum(given["axis"], keepdims=True) / scale)


def _choice(_given: Attributes, condition: Array, *tail: Array) -> Array:
    *parts, scale = tail
    return np.asarray(np.where(condition, _real(*parts[:3]), _real(*parts[3:])) / scale)


def _concatenation(given: Attributes, *inputs: Array) -> Array:
    *parts, scale = inputs
    return np.concatenate([_real(*parts[k : k + 3]) for k in range(0, len(parts), 3)], given["axis"]) / scale


def _linear_gemm(given: Attributes, *inputs: Array) -> Array:
    a, a_scale, a_zero, b, b_scale, b_zero, bias, scale = inputs
    product = _products({**given, "alpha": 1.0}, _real(a, a_scale, a_zero), _real(b, b_scale, b_zero))
    whole = product if bias is None else product + bias * (a_scale * b_scale)
    return np.asarray(given.get("alpha", 1.0) * whole / (1 if scale is None else scale))


def _complex(x: Array) -> Array:
    return np.asarray(x[..., 0] + 1j * x[..., 1])


def _complex_product(_given: Attributes, a: Array, b: Array) -> Array:
    product = _complex(a) * _complex(b)
    return np.stack([product.real, product.imag], -1)


def _conjugate_product(given: Attributes, a: Array, b: Array) -> Array:
    return _complex_product(given, a, b * [1, -1])


def _squared_distances(_given: Attributes, a: Array, b: Array) -> Array:
    return np.asarray(np.square(a[:, None] - b[None]).sum(-1))


def _integer_products(
    _given: Attributes, a: Array, b: Array, a_scale: Array, b_scale: Array, a_zero: Array | None, b_zero: Array | None
) -> Array:
    return np.asarray(np.matmul(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero)))


def _mean_of_axes(given: Attributes, x: Array, x_scale: Array, x_zero: Array, scale: Array) -> Array:
    axes, keeps = tuple(given["axes"]), bool(given["keepdims"])
    return np.asarray(_real(x, x_scale, x_zero).mean(axes, keepdims=keeps) / scale)


def _product_of_integers(_given: Attributes, a: Array, a_zero: Array | None, b: Array, b_zero: Array | None) -> Array:
    apart = (
        x.astype(np.int32) - (0 if zero is None else zero.astype(np.int32)) for x, zero in ((a, a_zero), (b, b_zero))
    )
    return np.asarray(np.multiply(*apart))


def _sum_of_integers(given: Attributes, x: Array) -> Array:
    wide = x.astype(np.uint32 if x.dtype == np.uint8 else np.int32)
    return np.asarray(wide.sum(tuple(given["axes"]), wide.dtype, keepdims=bool(given["keepdims"])))


def _wide_product(_given: Attributes, a: Array, b: Array) -> Array:
    return np.asarray(np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(np.int32))


_FOUR_BITS = (
    (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4, 0, -1 / 192, -2 / 3, -1, -1 / 3, -1 / 2, -1 / 6, -1 / 4),
    (
        -1, -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0,
        0.07958030, 0.16093020, 0.24611230, 0.33791524, 0.44070983, 0.56261700, 0.72295684, 1,
    ),
)  # fmt: skip
"""What codes of 4 bits stand for, as floats and as quantiles of normal numbers ("QLoRA", 2023, appendix E)."""


def _coded_weights(given: Attributes, packed: Array, largest: Array) -> Array:
    """`[K, N]`, of codes of a matrix `[N, K]`, the high bits first, and the largest number of each block."""
    k, n = given["K"], given["N"]
    codes = np.stack([packed >> 4, packed & 15], -1).reshape(-1)[: n * k]
    numbers = np.array(_FOUR_BITS[given["quant_type"]])[codes] * np.repeat(largest, given["block_size"])[: n * k]
    return np.ascontiguousarray(numbers.reshape(n, k).T)


def _block_numbers(given: Attributes, packed: Array, scales: Array, zeros: Array | None = None) -> Array:
    """What integers in blocks along an axis stand for, of which several may be in a byte, the lowest bits first."""
    axis, size, bits = given["quantize_axis"] % packed.ndim, given["block_size"], given["bits"]
    numbers = unpacked(packed, bits).astype(np.float64)
    middle = np.full(scales.shape, 1 << (bits - 1)) if zeros is None else unpacked(zeros, bits)
    each = (np.repeat(part, size, axis).take(range(numbers.shape[axis]), axis) for part in (middle, scales))
    return np.asarray((numbers - next(each)) * next(each))


def unpacked(packed: Array, bits: int) -> Array:
    """The integers of some bits in the bytes along the last axis, the lowest bits first."""
    numbers = (packed[..., None] >> np.arange(0, 8, bits)) & ((1 << bits) - 1)
    return np.asarray(numbers.reshape(*packed.shape[:-1], -1))


def _half(given: Attributes, x: Array) -> Array:
    return np.split(x, 2, -1)[given["index"]]


def _third(given: Attributes, x: Array) -> Array:
    return np.split(x, 3, -1)[given["index"]]


def _positions(_given: Attributes, words: Array) -> Array:
    return np.arange(words.shape[1])[None]


def _one_counts(_given: Attributes, words: Array, mask: Array | None) -> Array:
    return np.asarray(np.zeros(len(words)) if mask is None else (mask == 1).sum(1)).astype(np.int32)


def _padding_mask(_given: Attributes, mask: Array, x: Array) -> Array:
    """Which keys are there, by a number for each; or how many there are at the front of each element of a batch."""
    return (mask != 0 if mask.ndim == 2 else np.arange(x.shape[1]) < mask[:, None])[:, None, None]


def _padded(_given: Attributes, x: Array, offsets: Array) -> Array:
    """Elements of sequences that lie one after the other, each at its location in a batch; zeros elsewhere."""
    found = np.zeros((offsets.size, x.shape[1]))
    found[offsets.reshape(-1)[: len(x)]] = x
    return found.reshape(*offsets.shape, -1)


def _unpadded(_given: Attributes, x: Array, offsets: Array, elements: Array) -> Array:
    return np.asarray(x.reshape(offsets.size, -1)[offsets.reshape(-1)[: len(elements)]])


def _known_keys(_given: Attributes, offsets: Array, starts: Array) -> Array:
    return np.asarray(np.arange(offsets.shape[1]) < np.diff(starts)[:, None])[:, None, None]


def _position_counts(_given: Attributes, x: Array, positions: Array) -> Array:
    """Of all elements, from the first one's on where that alone is given."""
    if positions.ndim == 2:
        return positions
    return np.broadcast_to(positions + np.arange(x.shape[-2]), (len(x), x.shape[-2]))


def _expert_shares(given: Attributes, scores: Array) -> Array:
    """Of each row the softmax, of its largest alone."""
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    parts = parts / parts.sum(-1, keepdims=True)
    minimum = np.sort(parts, -1)[:, -given.get("k", 1), None]
    kept = np.where(parts >= minimum, parts, 0)
    return np.asarray(kept / kept.sum(-1, keepdims=True) if given.get("normalize_routing_weights") else kept)


def _expert_products(_given: Attributes, x: Array, weights: Array, bias: Array | None) -> Array:
    """`[E, rows, N]` of weights `[E, N, K]`, of rows `[rows, K]` or of each expert's own."""
    return np.asarray(np.matmul(x, weights.swapaxes(1, 2)) + (0 if bias is None else bias[:, None]))


def _expert_sums(_given: Attributes, shares: Array, results: Array, x: Array) -> Array:
    return np.asarray((shares.T[..., None] * results).sum(0).reshape(x.shape))


def _transform(_given: Attributes, x: Array) -> Array:
    found = np.fft.rfft(x)
    return np.stack([found.real, found.imag], -1)


def _transform_back(_given: Attributes, x: Array) -> Array:
    return np.asarray(np.fft.irfft(_complex(x)))


def _crop(given: Attributes, x: Array) -> Array:
    left, top, right, bottom = given["border"]
    height, width = given.get("scale") or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    return np.asarray(x[:, :, top : top + height, left : left + width])


def _crop_and_resize(given: Attributes, x: Array, regions: Array, images: Array, size: Array) -> Array:
    """The corners of a region are those of its result; outside of an image is one number."""
    found = np.full((len(regions), x.shape[1], *size), given.get("extrapolation_value", 0.0))
    limits = np.array(x.shape[2:]) - 1
    for region, (box, image) in enumerate(zip(regions, images, strict=True)):
        low, high = box[:2] * limits, box[2:] * limits
        lines = [
            np.array([(low[k] + high[k]) / 2]) if size[k] == 1 else np.linspace(low[k], high[k], size[k])
            for k in range(2)
        ]
        for index in np.ndindex(*size):
            y, x_ = (lines[k][index[k]] for k in range(2))
            if 0 <= y <= limits[0] and 0 <= x_ <= limits[1]:
                found[region, :, *index] = _read(given, x[image], y, x_)
    return found


def _read(given: Attributes, image: Array, y: float, x: float) -> Array:
    if given.get("mode", "bilinear") == "nearest":
        return np.asarray(image[:, math.floor(y + 0.5), math.floor(x + 0.5)])
    upper, lower = (
        image[:, row, math.floor(x)] * (1 - x % 1) + image[:, row, math.ceil(x)] * (x % 1)
        for row in (math.floor(y), math.ceil(y))
    )
    return np.asarray(upper * (1 - y % 1) + lower * (y % 1))


def _hash(given: Attributes, x: Array) -> Array:
    """MurmurHash3 of 32 bits (A. Appleby) of each number's bytes."""

    def rotated(word: int, count: int) -> int:
        return (word << count | word >> (32 - count)) & 0xFFFFFFFF

    def of(element: np.generic) -> int:
        data, made = element.tobytes(), given.get("seed", 0) & 0xFFFFFFFF
        for word in np.frombuffer(data, "<u4").tolist():
            made ^= rotated(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
            made = (rotated(made, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
        made ^= len(data)
        made = (made ^ made >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        made = (made ^ made >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        return made ^ made >> 16

    found = np.array([of(element) for element in x.reshape(-1)], np.uint32).reshape(x.shape)
    return found if given.get("positive", 1) else found.view(np.int32)


OF_ONNXRUNTIME: Mapping[str, Callable[..., Array]] = {
    "Along": _repeated,
    "BlockNumbers": _block_numbers,
    "ChannelsFirst": lambda _, x: np.moveaxis(x, -1, 1),
    "ChannelsLast": lambda _, x: np.moveaxis(x, 1, -1),
    "CodedWeights": _coded_weights,
    "ComplexMul": _complex_product,
    "ComplexMulConj": _conjugate_product,
    "OneCounts": _one_counts,
    "PositionCounts": _position_counts,
    "Crop": _crop,
    "CropAndResize": _crop_and_resize,
    "ExpandDims": lambda _, x, axis: np.expand_dims(x, int(axis)),
    "ExpertProducts": _expert_products,
    "ExpertShares": _expert_shares,
    "ExpertSums": _expert_sums,
    "FusedProducts": _products,
    "Half": _half,
    "IntegerProducts": _integer_products,
    "Inverse": lambda _, x: np.linalg.inv(x),
    "Irfft": _transform_back,
    "KnownKeys": _known_keys,
    "MatMulInteger16": _wide_product,
    "MulInteger": _product_of_integers,
    "MurmurHash3": _hash,
    "Padded": _padded,
    "PaddingMask": _padding_mask,
    "Positions": _positions,
    "Real": lambda given, *parts: _real(*parts, *([None] * (3 - len(parts))), given.get("axis", 1)),
    "RealQGemm": _linear_gemm,
    "RealQLinearAdd": _sum,
    "RealQLinearConcat": _concatenation,
    "RealQLinearGlobalAveragePool": _mean,
    "RealQLinearLeakyRelu": _leaky_relu,
    "RealQLinearMul": _product,
    "RealQLinearReduceMean": _mean_of_axes,
    "RealQLinearSigmoid": _sigmoid,
    "RealQLinearSoftmax": _softmax,
    "RealQLinearWhere": _choice,
    "ReduceSumInteger": _sum_of_integers,
    "Rfft": _transform,
    "Root": lambda _, x: np.sqrt(np.maximum(x, 0)),
    "Rows": lambda _, x: x.reshape(-1, x.shape[-1]),
    "Scaled": _scaled,
    "SquaredDistances": _squared_distances,
    "Third": _third,
    "Unpadded": _unpadded,
    "WithBias": _with_bias,
}
"""By the names that :mod:`simpler` gives them, and their own."""
