"""Operators in NumPy that ONNX's reference evaluates otherwise than the standard's text says, or slowly.

Each function takes a node's attributes and its inputs, None for those that are left out, and gives its result in the
type of the first input, for whole arrays at once.

Source: ONNX's text of the operators, of operator set 21.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from attention_reference import OF_ATTENTION
from contributed_reference import OF_ONNXRUNTIME, unpacked
from images_reference import OF_IMAGES, Window
from recurrent_reference import OF_RECURRENCES

__all__ = ["OWN", "Attributes"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]

_ALPHA, _EPSILON = (float(np.float32(value)) for value in (1e-4, 1e-5))
"""Attributes of operators are float32, also those that are left out."""


_ADDED: Mapping[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _scattered(given: Attributes, x: Array, indices: tuple[Array, ...], updates: Array) -> Array:
    found = x.copy()
    reduction = given.get("reduction", "none")
    if reduction == "none":
        found[indices] = updates
    else:
        _ADDED[reduction].at(found, indices, updates)
    return found


def _gather_elements(given: Attributes, x: Array, indices: Array) -> Array:
    found: Array = x[_positions(given, indices)]
    return found


def _one_hot(given: Attributes, indices: Array, depth: Array, values: Array) -> Array:
    size, axis = int(depth.reshape(())), given.get("axis", -1) % (indices.ndim + 1)
    hot = np.expand_dims(np.trunc(indices), axis)
    own = np.arange(size).reshape(-1, *[1] * (indices.ndim - axis))
    return np.where((hot == own) | (hot == own - size), values[1], values[0])


def _reversed_sequences(given: Attributes, x: Array, lengths: Array) -> Array:
    """The first elements of each sequence in reverse. Time and batch elements are the first two dimensions.

    Raises:
        ValueError: a length is beyond the end.
    """
    time = given.get("time_axis", 0)
    if lengths.max() > x.shape[time]:
        raise ValueError(f"the lengths {lengths.tolist()} of sequences of {x.shape[time]} elements")
    steps = np.arange(x.shape[time])[:, np.newaxis]
    source = np.where(steps < lengths, lengths - 1 - steps, steps)
    source = source if time == 0 else source.T
    return np.take_along_axis(x, source.reshape(*source.shape, *[1] * (x.ndim - 2)), time)


def _scatter_elements(given: Attributes, x: Array, indices: Array, updates: Array) -> Array:
    return _scattered(given, x, _positions(given, indices), updates)


def _positions(given: Attributes, indices: Array) -> tuple[Array, ...]:
    """Where elements are of which one index is given, along an axis; the others are their own."""
    positions = [*np.indices(indices.shape)]
    positions[given.get("axis", 0)] = indices
    return tuple(positions)


def _scatter_nd(given: Attributes, x: Array, indices: Array, updates: Array) -> Array:
    return _scattered(given, x, tuple(np.moveaxis(indices, -1, 0)), updates)


def _lrn(given: Attributes, x: Array) -> Array:
    size = given["size"]
    before = (size - 1) // 2
    squares = np.pad(x * x, [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    sums = sum(squares[:, k : k + x.shape[1]] for k in range(size))
    found: Array = x / (given.get("bias", 1.0) + given.get("alpha", _ALPHA) / size * sums) ** given.get("beta", 0.75)
    return found


def _lp_normalization(given: Attributes, x: Array) -> Array:
    found: Array = x / np.linalg.norm(x, given.get("p", 2), given.get("axis", -1), keepdims=True)
    return found


def _group_normalization(given: Attributes, x: Array, scale: Array, bias: Array) -> Array:
    parts = x.reshape(x.shape[0], given["num_groups"], -1)
    apart = parts - parts.mean(-1, keepdims=True)
    normal = apart / np.sqrt(parts.var(-1, keepdims=True) + given.get("epsilon", _EPSILON))
    channels = (-1, *[1] * (x.ndim - 2))
    found: Array = normal.reshape(x.shape) * scale.reshape(channels) + bias.reshape(channels)
    return found


def _mean_variance_normalization(given: Attributes, x: Array) -> Array:
    axes = tuple(given.get("axes", (0, 2, 3)))
    found: Array = (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1e-9)
    return found


def _rms_normalization(given: Attributes, x: Array, scale: Array) -> Array:
    axes = tuple(range(given.get("axis", -1) % x.ndim, x.ndim))
    return np.asarray(x / np.sqrt((x * x).mean(axes, keepdims=True) + given.get("epsilon", _EPSILON)) * scale)


def _prelu(_given: Attributes, x: Array, slope: Array) -> Array:
    return np.where(x >= 0, x, x * slope)


def _swish(given: Attributes, x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-given.get("alpha", 1.0) * x)))


def _erf(_given: Attributes, x: Array) -> Array:
    found: Array = np.vectorize(math.erf, otypes=[x.dtype])(x)  # ONNX's reference rounds it to float32
    return found


def _gelu(given: Attributes, x: Array) -> Array:
    if given.get("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(given, x / np.sqrt(2)))


def _hard_swish(_given: Attributes, x: Array) -> Array:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def _mish(_given: Attributes, x: Array) -> Array:
    return x * np.tanh(np.logaddexp(0, x))


def _convolution_sums(
    given: Attributes, x: Array, x_scale: Array, x_zero: Array, weight: Array, *tail: Array | None
) -> Array:
    """What the sums of a convolution of integers stand for, over the scale of the result."""
    scale, zero, y_scale, _, *bias = tail
    channels = (-1, *[1] * (weight.ndim - 1))
    x, weight = _apart(x, x_zero), _apart(weight, zero.reshape(channels) if zero.ndim else zero)  # type: ignore[union-attr]
    kernel = {"kernel_shape": weight.shape[2:]} | dict(given)
    window = Window.of(kernel, x.shape[2:])
    groups = given.get("group", 1)
    elements = window.over(x, 0).reshape(x.shape[0], groups, -1, *window.results, *window.kernel)
    weights = weight.reshape(groups, -1, *weight.shape[1:])
    spatial = list(range(3, 3 + x.ndim - 2))
    under = list(range(20, 20 + x.ndim - 2))
    sums = np.einsum(elements, [0, 1, 2, *spatial, *under], weights, [1, 10, 2, *under], [0, 1, 10, *spatial])
    sums = sums.reshape(x.shape[0], -1, *window.results)
    shape = channels[:-1]
    if bias and bias[0] is not None:
        sums = sums + bias[0].reshape(shape)
    return sums * (x_scale * scale / y_scale).reshape(shape if np.ndim(scale) else ())  # type: ignore[operator]


def _product_sums(_given: Attributes, a: Array, a_scale: Array, a_zero: Array, *tail: Array) -> Array:
    b, b_scale, b_zero, y_scale, _ = tail
    sums: Array = np.matmul(_apart(a, a_zero), _apart(b, b_zero)) * (a_scale * b_scale / y_scale)
    return sums


def _apart(x: Array, zero: Array) -> Array:
    return x.astype(np.float64) - zero.astype(np.float64)


def _requantized(_given: Attributes, real: Array, zero: Array) -> Array:
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(real) + zero.astype(np.float64), limits.min, limits.max).astype(zero.dtype)


def _block_weights(given: Attributes, packed: Array, scales: Array, zeros: Array | None = None) -> Array:
    """Weights [K, N] of integers of some bits in blocks, two or more in a byte, the lowest bits first."""
    bits, size, count, width = (given[name] for name in ("bits", "block_size", "K", "N"))
    blocks = -(-count // size)
    numbers = unpacked(packed.reshape(width, blocks, -1), bits)
    middle = np.full((width, blocks), 1 << (bits - 1))
    if zeros is not None:
        middle = unpacked(zeros.reshape(width, -1), bits)[:, :blocks]
    real = (numbers.astype(np.float64) - middle[..., None]) * scales.reshape(width, blocks, 1)
    return np.ascontiguousarray(real.reshape(width, -1)[:, :count].T)


def _block_product(_given: Attributes, x: Array, weights: Array) -> Array:
    return np.matmul(x, weights)


def _part(given: Attributes, x: Array) -> Array:
    return np.take(x, given["index"], given["axis"])


def _stack(_given: Attributes, *parts: Array) -> Array:
    return np.stack(parts)


def _reduce_log_sum_exp(given: Attributes, x: Array, axes: Array | None = None) -> Array:
    """The logarithm of a sum of exponentials, which is inf where an element is, and none is no number."""
    declared = given.get("axes", ()) if axes is None else axes.tolist()
    if not len(declared) and given.get("noop_with_empty_axes"):
        return x
    found: Array = np.logaddexp.reduce(x, tuple(declared) or None, keepdims=bool(given.get("keepdims", 1)))
    return found


def _normalized(given: Attributes, x: Array) -> Array:
    match given.get("norm", "MAX"):
        case "MAX":
            divisor = x.max(1, keepdims=True)
        case "L1":
            divisor = np.abs(x).sum(1, keepdims=True)
        case _:
            divisor = np.sqrt(np.square(x).sum(1, keepdims=True))
    found: Array = x / np.where(divisor == 0, 1, divisor)
    return found


def _word_counts(given: Attributes, x: Array) -> Array:
    """How often sequences of a pool occur in each row, whose words may have equally many others between them."""
    pool, starts = given["pool_int64s"], [*given["ngram_counts"], len(given["pool_int64s"])]
    columns, found = iter(given["ngram_indexes"]), np.zeros((*x.shape[:-1], max(given["ngram_indexes"]) + 1))
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        for first in range(start, end, length):
            column, words = next(columns), pool[first : first + length]
            if given["min_gram_length"] <= length <= given["max_gram_length"]:
                for skipped in range(given["max_skip_count"] + 1 if length > 1 else 1):
                    count = x.shape[-1] - (length - 1) * (skipped + 1)
                    same = [x[..., k * (skipped + 1) :][..., : max(0, count)] == word for k, word in enumerate(words)]
                    found[..., column] += np.logical_and.reduce(same).sum(-1)
    weights = np.ones(found.shape[-1])
    if "weights" in given:
        weights[given["ngram_indexes"]] = given["weights"]
    match given["mode"]:
        case "TF":
            return found
        case "IDF":
            return (found > 0) * weights
        case _:
            return found * weights


OWN: Mapping[str, Callable[..., Any]] = {
    "BlockProduct": _block_product,
    "BlockWeights": _block_weights,
    "ConvolutionSums": _convolution_sums,
    "Erf": _erf,
    "GatherElements": _gather_elements,
    "Gelu": _gelu,
    "GroupNormalization": _group_normalization,
    "HardSwish": _hard_swish,
    "LRN": _lrn,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "Mish": _mish,
    "Normalizer": _normalized,
    "OneHot": _one_hot,
    "PRelu": _prelu,
    "Part": _part,
    "ProductSums": _product_sums,
    "RMSNormalization": _rms_normalization,
    "ReduceLogSumExp": _reduce_log_sum_exp,
    "Requantized": _requantized,
    "ReverseSequence": _reversed_sequences,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Stack": _stack,
    "Swish": _swish,
    "TfIdfVectorizer": _word_counts,
    **OF_ATTENTION,
    **OF_ONNXRUNTIME,
    **OF_IMAGES,
    **OF_RECURRENCES,
}
"""By the operators' names; those that are none of ONNX are what loops do to tensors, and of :mod:`simpler`."""
