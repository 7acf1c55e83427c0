"""Convolutions and matrix products for GPUs agree with NumPy on awkward shapes, each access to memory checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import TARGET, execute, random
from numpy_reference import convolve
from tvm import relax
from tvm.relax import op

CONVOLUTIONS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
DECONVOLUTIONS = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


def close(result: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    """Whether each element differs by no more than a part of the largest."""
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def deconvolve(
    data: np.ndarray, filters: np.ndarray, strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    beyond: Sequence[int], groups: int,
) -> np.ndarray:  # fmt: skip
    """What each element of `[N, C, *spatial]` is spread to by filters `[C, O / groups, *kernel]`, added up."""
    rank, of_group = filters.ndim - 2, filters.shape[1]
    kernel, sizes = filters.shape[2:], data.shape[2:]
    whole = [
        (e - 1) * s + (k - 1) * d + 1 + b
        for e, s, k, d, b in zip(sizes, strides, kernel, dilation, beyond, strict=True)
    ]
    result = np.zeros((data.shape[0], groups, of_group, *whole))
    grouped = data.astype(np.float64).reshape(data.shape[0], groups, -1, *sizes)
    weights = filters.astype(np.float64).reshape(groups, -1, *filters.shape[1:])
    for tap in np.ndindex(*kernel):
        position = tuple(
            slice(t * d, t * d + (e - 1) * s + 1, s) for t, d, e, s in zip(tap, dilation, sizes, strides, strict=True)
        )
        part = weights[(slice(None), slice(None), slice(None), *tap)]
        result[(..., *position)] += np.einsum("ngc...,gco->ngo...", grouped, part)
    cut = tuple(slice(padding[a], w - padding[rank + a]) for a, w in enumerate(whole))
    return result.reshape(data.shape[0], -1, *whole)[(..., *cut)]


@pytest.mark.parametrize(
    ("data", "filters", "strides", "padding", "dilation", "groups"),
    [
        ((1, 8, 13, 11), (19, 8, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
        ((2, 6, 13, 12), (10, 3, 3, 2), (2, 3), (0, 1, 2, 3), (1, 1), 2),
        ((2, 64, 4, 4), (32, 64, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
        ((1, 3, 17, 19), (16, 3, 7, 7), (2, 2), (3, 3, 3, 3), (1, 1), 1),
        ((1, 5, 9, 9), (7, 5, 3, 3), (1, 1), (2, 2, 2, 2), (2, 3), 1),
        ((1, 300, 5, 5), (40, 300, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 1),
        ((2, 5, 31), (7, 5, 4), (2,), (2, 0), (1,), 1),
        ((1, 4, 5, 6, 7), (9, 4, 3, 2, 3), (1, 1, 1), (1, 0, 1, 1, 1, 1), (1, 1, 1), 1),
    ],
    ids=["same", "groups", "pointwise", "few-channels", "dilated", "slices", "1d", "3d"],
)
@pytest.mark.sample(4)
def test_a_convolution_is_a_product_of_tiles(
    data: tuple[int, ...],
    filters: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> None:
    rng = np.random.default_rng(len(padding))
    x, w, b = random(rng, data), random(rng, filters), random(rng, (1, filters[0], *(1,) * (len(data) - 2)))
    expected = np.maximum(convolve(x, w, strides, padding, dilation, groups) + b, 0)
    residual = random(rng, expected.shape)

    def block(x: relax.Expr, r: relax.Expr, w: relax.Expr, b: relax.Expr) -> relax.Expr:
        convolution = CONVOLUTIONS[len(strides)]
        sums = convolution(x, w, strides=strides, padding=padding, dilation=dilation, groups=groups)
        return op.add(op.nn.relu(op.add(sums, b)), r)

    result, rules = execute(block, [x, residual], [w, b])
    close(result, expected + residual)
    assert rules == ["ContractionRule"]


def test_a_filter_may_be_known_at_run_time_only() -> None:
    rng = np.random.default_rng(0)
    x, w = random(rng, (1, 6, 7, 9)), random(rng, (9, 6, 3, 3))
    result, rules = execute(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1)), [x, w])
    close(result, convolve(x, w, (1, 1), (1, 1, 1, 1), (1, 1), 1))
    assert rules[-1] == "ContractionRule"


@pytest.mark.parametrize(
    ("data", "filters", "strides", "padding", "dilation", "beyond", "groups"),
    [
        ((1, 8, 5, 6), (8, 6, 4, 4), (2, 2), (1, 1, 1, 1), (1, 1), (0, 0), 1),
        ((2, 4, 5, 6), (4, 6, 3, 3), (2, 3), (1, 0, 1, 0), (1, 1), (1, 0), 1),
        ((1, 4, 7), (4, 3, 3), (3,), (1, 1), (2,), (0,), 2),
    ],
    ids=["phases", "uneven", "gathered"],
)
@pytest.mark.sample(1)
def test_a_transposed_convolution_is_a_product_too(
    data: tuple[int, ...],
    filters: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    beyond: tuple[int, ...],
    groups: int,
) -> None:
    rng = np.random.default_rng(1)
    x, w = random(rng, data), random(rng, filters)
    settings = {"strides": strides, "padding": padding, "dilation": dilation, "output_padding": beyond}
    result, rules = execute(lambda x, w: DECONVOLUTIONS[len(strides)](x, w, groups=groups, **settings), [x], [w])
    close(result, deconvolve(x, w, strides, padding, dilation, beyond, groups))
    assert rules[0] == "ContractionRule"


@pytest.mark.parametrize(
    ("left", "right"),
    [((37, 300), (300, 53)), ((3, 17, 20), (2, 1, 20, 24)), ((64, 40), (40, 52)), ((5, 1, 200), (5, 200, 7))],
    ids=["primes", "batches", "aligned", "no-rows"],
)
@pytest.mark.sample(2)
def test_a_matrix_product_of_any_shape(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    a, b, c = random(rng, left), random(rng, right), random(rng, right[-1:])
    result, rules = execute(lambda a, b, c: op.add(op.matmul(a, b), c), [a, b], [c])
    close(result, a.astype(np.float64) @ b + c)
    assert rules == ["ContractionRule"]


def test_operands_may_begin_anywhere() -> None:
    rng = np.random.default_rng(5)
    a, b = random(rng, (24, 40)), random(rng, (40, 52))
    result, rules = execute(op.matmul, [a, b], target=replace(TARGET, load_bytes=1), offset=4)
    close(result, a.astype(np.float64) @ b)
    assert rules == ["ContractionRule"]


def test_a_product_of_narrow_integers_is_exact() -> None:
    rng = np.random.default_rng(3)
    a, b = random(rng, (9, 44), "int8"), random(rng, (44, 20), "int8")
    result, rules = execute(lambda a, b: op.matmul(a, b, out_dtype="int32"), [a, b])
    np.testing.assert_array_equal(result, a.astype(np.int32) @ b.astype(np.int32))
    assert rules == ["ContractionRule"]


def test_a_convolution_of_narrow_integers_is_exact() -> None:
    rng = np.random.default_rng(4)
    x, w = random(rng, (1, 8, 6, 8), "int8"), random(rng, (12, 8, 3, 3), "int8")
    result, rules = execute(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), out_dtype="int32"), [x], [w])
    np.testing.assert_array_equal(result, convolve(x, w, (1, 1), (1, 1, 1, 1), (1, 1), 1))
    assert rules == ["ContractionRule"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(1)
def test_convolutions_of_random_shapes(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    groups = int(rng.choice([1, 1, 2, 3]))
    inputs, outputs = groups * int(rng.integers(2, 9)), groups * int(rng.integers(2, 23))
    kernel = tuple(int(k) for k in rng.integers(1, 5, 2))
    strides, dilation = (tuple(int(s) for s in rng.integers(1, 4, 2)) for _ in range(2))
    padding = tuple(int(p) for p in rng.integers(0, 3, 4))
    sizes = [(k - 1) * d + 1 + int(rng.integers(3, 12)) for k, d in zip(kernel, dilation, strict=True)]
    x = random(rng, (int(rng.integers(1, 4)), inputs, *sizes))
    w = random(rng, (outputs, inputs // groups, *kernel))
    settings = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    result, _ = execute(lambda x, w: op.nn.conv2d(x, w, **settings), [x], [w])
    close(result, convolve(x, w, strides, padding, dilation, groups))
