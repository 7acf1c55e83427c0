"""Operations of networks in NumPy, written from their definitions; every sum runs in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["average_pool", "convolve", "erf", "max_pool", "pool_sizes", "softmax"]


def convolve(
    data: np.ndarray,
    weights: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """`[N, C, *spatial]` with filters `[O, C / groups, *kernel]`; `padding` holds all beginnings, then all ends."""
    rank = weights.ndim - 2
    widths = [(0, 0), (0, 0), *zip(padding[:rank], padding[rank:], strict=True)]
    padded = np.pad(data.astype(np.float64), widths)
    filters = weights.astype(np.float64).reshape(groups, -1, *weights.shape[1:])
    reach = [(k - 1) * d + 1 for k, d in zip(weights.shape[2:], dilation, strict=True)]
    sizes = [(e - r) // s + 1 for e, r, s in zip(padded.shape[2:], reach, strides, strict=True)]
    grouped = padded.reshape(padded.shape[0], groups, -1, *padded.shape[2:])
    result = np.zeros((data.shape[0], groups, filters.shape[1], *sizes))
    for tap in itertools.product(*map(range, weights.shape[2:])):
        window = tuple(
            slice(t * d, t * d + (e - 1) * s + 1, s) for t, d, e, s in zip(tap, dilation, sizes, strides, strict=True)
        )
        result += np.einsum("ngc...,goc->ngo...", grouped[(..., *window)], filters[(..., *tap)])
    return result.reshape(data.shape[0], -1, *sizes)


def pool_sizes(
    sizes: Sequence[int],
    size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[int]:
    """Sizes of the result of a pooling."""
    rank = len(size)
    found = []
    for axis, (length, k, stride, step) in enumerate(zip(sizes, size, strides, dilation, strict=True)):
        room = length + padding[axis] + padding[rank + axis] - ((k - 1) * step + 1)
        steps = -(-room // stride) if ceil_mode else room // stride
        if ceil_mode and steps * stride >= length + padding[axis]:  # it would see nothing but what lies after the end
            steps -= 1
        found.append(steps + 1)
    return found


def _windows(
    data: np.ndarray, size: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    sizes: Sequence[int], outside: float,
) -> np.ndarray:  # fmt: skip
    """The values under each window in the last axis; `outside` where the window leaves the input."""
    rank = len(size)
    ends = [
        max(0, (o - 1) * s + (k - 1) * d + 1 - e - b)
        for o, s, k, d, e, b in zip(sizes, strides, size, dilation, data.shape[2:], padding, strict=False)
    ]
    widths = [(0, 0), (0, 0), *zip(padding[:rank], ends, strict=True)]
    padded = np.pad(data, widths, constant_values=outside)
    parts = []
    for tap in itertools.product(*map(range, size)):
        window = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilation, sizes, strides, strict=True)
        )
        parts.append(padded[(..., *window)])
    return np.stack(parts, axis=-1)


def max_pool(
    data: np.ndarray, size: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    ceil_mode: bool,
) -> np.ndarray:  # fmt: skip
    """The largest value under each window; padding never wins."""
    sizes = pool_sizes(data.shape[2:], size, strides, padding, dilation, ceil_mode)
    minimum = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    return _windows(data, size, strides, padding, dilation, sizes, minimum).max(axis=-1)


def average_pool(
    data: np.ndarray, size: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    ceil_mode: bool, count_include_pad: bool,
) -> np.ndarray:  # fmt: skip
    """The mean of the values under each window; what ceiling mode adds beyond the padding never counts."""
    rank = len(size)
    sizes = pool_sizes(data.shape[2:], size, strides, padding, dilation, ceil_mode)
    total = _windows(data.astype(np.float64), size, strides, padding, dilation, sizes, 0).sum(axis=-1)
    ones = np.ones((1, 1, *data.shape[2:]))
    if count_include_pad:
        ones = np.pad(ones, [(0, 0), (0, 0), *zip(padding[:rank], padding[rank:], strict=True)], constant_values=1)
        count = _windows(ones, size, strides, [0] * 2 * rank, dilation, sizes, 0).sum(axis=-1)
    else:
        count = _windows(ones, size, strides, padding, dilation, sizes, 0).sum(axis=-1)
    return total / np.maximum(count, 1)


def softmax(data: np.ndarray, axis: int) -> np.ndarray:
    """Powers of e, scaled to the sum 1 along `axis`."""
    powers = np.exp(data - data.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def erf(data: np.ndarray) -> np.ndarray:
    """The error function."""
    import math

    function: Callable[[np.ndarray], np.ndarray] = np.vectorize(math.erf, otypes=[np.float64])
    return function(data)
