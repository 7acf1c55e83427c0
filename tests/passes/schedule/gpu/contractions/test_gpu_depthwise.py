"""Depthwise convolutions on GPUs: results on the emulator, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from contraction_cases import execute, random
from numpy_reference import convolve
from tvm.relax import op


def close(result: np.ndarray, expected: np.ndarray) -> None:
    """Whether each element differs by no more than a part of the largest."""
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("data", "kernel", "stride"),
    [((1, 8, 14, 14), 3, 1), ((3, 7, 33, 31), 5, 2), ((1, 3, 25, 27), 7, 1)],
)
@pytest.mark.sample(1)
def test_a_depthwise_convolution(data: tuple[int, ...], kernel: int, stride: int) -> None:
    rng = np.random.default_rng(kernel)
    channels, pad = data[1], kernel // 2
    x, w, b = random(rng, data), random(rng, (channels, 1, kernel, kernel)), random(rng, (1, channels, 1, 1))
    result, rules = execute(
        lambda x, w, b: op.nn.relu(
            op.add(op.nn.conv2d(x, w, strides=(stride, stride), padding=(pad, pad), groups=channels), b)
        ),
        [x],
        [w, b],
    )
    close(result, np.maximum(convolve(x, w, (stride, stride), (pad,) * 4, (1, 1), channels) + b, 0))
    assert rules == ["DepthwiseRule"]
