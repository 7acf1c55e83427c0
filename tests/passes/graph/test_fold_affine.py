"""Scales and shifts after convolutions: before and after, and the numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from relax_programs import Case, Graph, Value, build, check, program, summary
from tvm.ir import assert_structural_equal

from nnefc.passes.graph.fold_affine import _product, fold_affine

# Powers of two, so that products are exact.
W = np.arange(1, 3 * 2 * 1 * 1 + 1, dtype=np.float32).reshape(3, 2, 1, 1)
S = np.array([2, 4, 0.5], np.float32).reshape(1, 3, 1, 1)
T = np.array([1, -2, 3], np.float32).reshape(1, 3, 1, 1)
HALF, ONE = np.float32(0.5), np.float32(1)

FOLDED = {
    "a scale goes into the filter": (
        """x[1, 2, 4, 4] -> b
        a = R.nn.conv2d(x, W)
        b = R.multiply(a, S)""",
        """x[1, 2, 4, 4] -> b
        b = R.nn.conv2d(x, WS)""",
    ),
    "a scale on the left too": (
        """x[1, 2, 4, 4] -> b
        a = R.nn.conv2d(x, W)
        b = R.multiply(S, a)""",
        """x[1, 2, 4, 4] -> b
        b = R.nn.conv2d(x, WS)""",
    ),
    "a division by constants is a scale": (
        """x[1, 2, 4, 4] -> b
        a = R.nn.conv2d(x, W)
        b = R.divide(a, S)""",
        """x[1, 2, 4, 4] -> b
        b = R.nn.conv2d(x, W_S)""",
    ),
    "one scale for all channels": (
        """x[1, 2, 4, 4] -> b
        a = R.nn.conv2d(x, W)
        b = R.multiply(a, HALF)""",
        """x[1, 2, 4, 4] -> b
        b = R.nn.conv2d(x, W2)""",
    ),
    "a scale passes a bias": (
        """x[1, 2, 4, 4] -> c
        a = R.nn.conv2d(x, W)
        b = R.add(a, T)
        c = R.multiply(b, S)""",
        """x[1, 2, 4, 4] -> c
        a = R.nn.conv2d(x, WS)
        c = R.add(a, TS)""",
    ),
    "shifts are joined": (
        """x[1, 2, 4, 4] -> d
        a = R.nn.conv2d(x, W)
        b = R.add(a, T)
        c = R.subtract(b, S)
        d = R.add(ONE, c)""",
        """x[1, 2, 4, 4] -> d
        a = R.nn.conv2d(x, W)
        d = R.add(a, T_S1)""",
    ),
    "one multiplication and one addition are left of several": (
        """x[1, 3, 4, 4] -> d
        a = R.multiply(x, S)
        b = R.add(a, T)
        c = R.multiply(S, b)
        d = R.add(c, ONE)""",
        """x[1, 3, 4, 4] -> d
        c = R.multiply(x, SS)
        d = R.add(c, TS1)""",
    ),
    "a divisor that is the same for all is a number": (
        """x[1, 2, 4, 4] -> b
        a = R.nn.relu(x)
        b = R.divide(a, SIX)""",
        """x[1, 2, 4, 4] -> b
        a = R.nn.relu(x)
        b = R.divide(a, R.const(6.0, "float32"))""",
    ),
    "batch normalization disappears": (
        """x[1, 2, 4, 4] -> e
        a = R.nn.conv2d(x, W)
        b = R.subtract(a, T)
        c = R.multiply(b, S)
        d = R.add(c, ONE)
        e = R.nn.relu(d)""",
        """x[1, 2, 4, 4] -> e
        a = R.nn.conv2d(x, WS)
        d = R.add(a, N)
        e = R.nn.relu(d)""",
    ),
}
KEPT = {
    "the convolution is used twice": """x[1, 2, 4, 4] -> b, c
        a = R.nn.conv2d(x, W)
        b = R.multiply(a, S)
        c = R.nn.relu(a)""",
    "the convolution is a result": """x[1, 2, 4, 4] -> a, b
        a = R.nn.conv2d(x, W)
        b = R.multiply(a, S)""",
    "the bias is used twice": """x[1, 2, 4, 4] -> c, d
        a = R.nn.conv2d(x, W)
        b = R.add(a, T)
        c = R.multiply(b, S)
        d = R.nn.relu(b)""",
    "a scale along another dimension": """x[1, 2, 4, 4] -> b
        a = R.nn.conv2d(x, W)
        b = R.multiply(a, ROW)""",
    "a scale that makes the result larger": """x[1, 2, 1, 1] -> b
        a = R.nn.conv2d(x, W)
        b = R.multiply(a, ROW)""",
    "two scales with a larger product": """x[1, 3, 4, 4] -> b
        a = R.multiply(x, S)
        b = R.multiply(a, ROW)""",
    "two shifts with a larger sum": """x[1, 3, 4, 4] -> b
        a = R.add(x, S)
        b = R.add(a, ROW)""",
    "two scales whose product is too large": """x[1, 3, 4, 4] -> b
        a = R.multiply(x, HUGE)
        b = R.multiply(a, HUGE)""",
    "a constant divided by the result": """x[1, 2, 4, 4] -> b
        a = R.nn.conv2d(x, W)
        b = R.divide(S, a)""",
    "a constant minus the result": """x[1, 2, 4, 4] -> b
        a = R.nn.conv2d(x, W)
        b = R.subtract(S, a)""",
    "something between": """x[1, 2, 4, 4] -> c
        a = R.nn.conv2d(x, W)
        b = R.nn.relu(a)
        c = R.multiply(b, S)""",
    "a division by zero": """x[1, 2, 4, 4] -> b
        b = R.divide(x, NONE)""",
    "a large constant that rounds": """x[1, 2, 4, 4] -> b
        a = R.add(x, MAGIC)
        b = R.subtract(a, MAGIC)""",
    "a scale behind it, and a zero point": """x[1, 2, 4, 4] -> d
        a = R.multiply(x, SIX)
        b = R.add(a, MAGIC)
        c = R.add(b, LESS)
        d = R.multiply(c, HALF)""",
    "two shifts whose sum is too large": """x[1, 2, 4, 4] -> b
        a = R.add(x, HUGEST)
        b = R.add(a, HUGEST)""",
    "a filter that is no constant": """x[1, 2, 4, 4]; w[3, 2, 1, 1] -> b
        a = R.nn.conv2d(x, w)
        b = R.multiply(a, S)""",
    "integers": """x: int32[4] -> b
        a = R.add(x, I)
        b = R.multiply(a, I)""",
}
VALUES = {
    "W": W,
    "S": S,
    "T": T,
    "HALF": HALF,
    "ONE": ONE,
    "SIX": np.array([6], np.float32),
    "NONE": np.array([0], np.float32),
    "ROW": np.array([1, 2, 3, 4], np.float32),
    "I": np.array([1, 2, 3, 4], np.int32),
    "WS": W * S.reshape(3, 1, 1, 1),
    "W_S": W / S.reshape(3, 1, 1, 1),
    "W2": W * HALF,
    "TS": T * S,
    "SS": S * S,
    "TS1": T * S + ONE,
    "HUGE": np.float32(1e30),
    "HUGEST": np.float32(3e38),
    "MAGIC": np.float32(1.5 * 2**23),
    "LESS": np.float32(128 - 1.5 * 2**23),
    "T_S1": T - S + ONE,
    "N": -T * S + ONE,
}


@pytest.mark.parametrize(("before", "after"), FOLDED.values(), ids=FOLDED)
def test_scales_and_shifts_are_folded(before: str, after: str) -> None:
    folded = fold_affine(program(before, **VALUES))
    assert_structural_equal(folded, program(after, **VALUES))


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_what_means_something_else_is_kept(text: str) -> None:
    module = program(text, **VALUES)
    assert summary(fold_affine(module)) == summary(module)


def normalized(rank: int, groups: int) -> Case:
    rng = np.random.default_rng(rank)
    shape = (1, 6, *(1,) * rank)
    weights = rng.standard_normal((6, 6 // groups, *(3,) * rank)).astype(np.float32)
    scale, shift, mean = (rng.uniform(0.5, 2, shape).astype(np.float32) for _ in range(3))

    def make(graph: Graph, x: Value) -> Value:
        centred = graph.binary("subtract", graph.convolve(x, weights, groups=groups), graph.constant(mean))
        scaled = graph.binary("divide", graph.binary("multiply", centred, graph.constant(scale)), graph.constant(mean))
        return graph.unary("relu", graph.binary("add", graph.constant(shift), scaled))

    return Case([rng.standard_normal((2, 6, *(5,) * rank)).astype(np.float32)], make, 1e-5, f"{rank} {groups}")


NORMALIZED = [normalized(rank, groups) for rank in (1, 2, 3) for groups in (1, 2, 6)]


@pytest.mark.parametrize("case", NORMALIZED, ids=[case.name for case in NORMALIZED])
def test_normalized_convolutions_of_every_kind_fold_to_one_addition(case: Case) -> None:
    module: tvm.IRModule = fold_affine(build([case]).network.module)
    operations = [line.split(" = ")[1].split("(")[0] for line in summary(module).splitlines()[:-1]]
    assert operations == [f"nn.conv{case.name[0]}d", "add", "nn.relu"]


def test_normalized_convolutions_have_the_same_values() -> None:
    check(NORMALIZED)


_TYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}


@pytest.mark.parametrize("dtype", _TYPES)
def test_factors_of_float16_are_joined(dtype: str) -> None:
    scales = {"A": np.array(0.5).astype(_TYPES[dtype]), "B": np.array(3).astype(_TYPES[dtype])}
    text = f"x: {dtype}[4] -> b\na = R.multiply(x, A)\nb = R.multiply(a, B)"
    folded = fold_affine(program(text, **scales))
    after = f"x: {dtype}[4] -> b\nb = R.multiply(x, AB)"
    assert_structural_equal(folded, program(after, AB=np.array(1.5).astype(_TYPES[dtype])))


@pytest.mark.parametrize("stays", [True, False])
def test_weights_that_are_stored_in_float16_are_scaled_where_they_become_float32(stays: bool) -> None:
    stored, scale = np.ones((2, 2, 1, 1), np.float16), np.array([3, 5], np.float32).reshape(1, 2, 1, 1)
    text = 'x: float32[1, 2, 4, 4] -> b\nw = R.astype(H, "float32")\na = R.nn.conv2d(x, w)\nb = R.multiply(a, S)'
    found = summary(fold_affine(program(text, H=stored, S=scale), lambda dtype: stays or dtype != "float16"))
    assert ("multiply" in found, "astype" in found) == (stays, stays)


def test_products_of_float32_are_rounded_once() -> None:
    """The same as by way of float64, also where they are subnormal or too large."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 2.0 ** rng.integers(-80, 80, shape)).astype(np.float32)

    weights, factors = drawn(64, 8, 3, 3), drawn(64, 1, 1, 1)
    with np.errstate(over="ignore"):
        found, expected = _product(weights, factors), (weights.astype(np.float64) * factors).astype(np.float32)
    assert np.isinf(found).any() and ((np.abs(found) < 1e-38) & (found != 0)).any()
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))
