"""Products of a matrix and a few vectors on GPUs: results on the emulator, against NumPy."""

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
    ("left", "right"),
    [
        ((1, 512), (512, 100)),  # slices of the depth
        ((3, 333), (333, 53)),
        ((1, 64), (64, 9000)),  # vectors of columns
        ((5, 1, 140), (5, 140, 60)),
        ((5, 53, 40), (5, 40, 1)),  # a warp for each row
        ((2, 53, 41), (2, 41, 3)),
    ],
)
@pytest.mark.sample(2)
def test_few_vectors_by_a_matrix(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(left))
    a, b, c = random(rng, left), random(rng, right), random(rng, right[-1:])
    result, rules = execute(lambda a, b, c: op.add(op.matmul(a, b), c), [a, b], [c])
    close(result, a.astype(np.float64) @ b + c)
    assert rules == ["VectorProductRule"]


def test_a_convolution_of_one_pixel_is_such_a_product() -> None:
    rng = np.random.default_rng(0)
    x, w = random(rng, (2, 64, 1, 1)), random(rng, (33, 64, 1, 1))
    result, rules = execute(op.nn.conv2d, [x], [w])
    close(result, convolve(x, w, (1, 1), (0, 0, 0, 0), (1, 1), 1))
    assert rules == ["VectorProductRule"]
