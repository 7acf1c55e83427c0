"""Fixed point: high words of products, and forms of two bytes, with the bits of products that are rounded twice."""

import numpy as np
import pytest
from tvm import tirx

from nnefc.operators.nn.byte_sum import ByteSum
from nnefc.operators.nn.fixed_point import _HighProduct, fixed_point_of, scaled_integers, table_of
from nnefc.operators.nn.fixed_point_quotients import quotients_of_bytes

FUNCTIONS = {tirx.Add: np.add, tirx.Mul: np.multiply, tirx.RShift: np.right_shift, tirx.LShift: np.left_shift}


def value(x: tirx.Expr, at: np.ndarray) -> np.ndarray:
    """An expression of integers, computed in int64; what is int32 in it fits 32 bits."""
    match x:
        case tirx.IntImm():
            return np.full(at.shape, int(x.value))
        case tirx.Var():
            return at
        case tirx.Cast():
            made = value(x.value, at)
        case _:
            made = FUNCTIONS[type(x)](value(x.a, at), value(x.b, at))
    assert str(x.ty) == "int64" or np.abs(made).max() < 1 << 31
    return made


def around(limit: int, seed: int) -> np.ndarray:
    """Integers below a limit in size: small ones, large ones and others."""
    some = np.random.default_rng(seed).integers(-limit, limit, 400)
    return np.concatenate([np.arange(-200, 200), some, some >> 9, limit - 1 - np.arange(9), np.arange(9) + 1 - limit])


@pytest.mark.parametrize("low", [None, -128, 7])
@pytest.mark.parametrize("left", [0, 20])
def test_high_products_are_rounded_twice(left: int, low: int | None) -> None:
    at, rng = around((1 << 29) >> left, left), np.random.default_rng(left)
    multipliers = [1 << 30, (1 << 31) - 1, (1 << 30) + 1, *map(int, rng.integers(1 << 30, 1 << 31, 9))]
    for multiplier, shift in ((m, s) for m in multipliers for s in (0, -1, -2, -7, -20)):
        product = _HighProduct.of(np.array(shift, np.int32), 7, low, False)
        constants = [tirx.const(int(c), "int32") for c in (multiplier, product.added, product.right)]
        made = value(product.scaled(tirx.Var("x", "int32"), left, *constants), at)
        wanted = scaled_integers(at << left, multiplier, shift) + 7
        assert np.array_equal(*(np.maximum(each, -1 << 40 if low is None else low) for each in (made, wanted)))


@pytest.mark.parametrize("shift", [0, -1, -20])
def test_high_products_are_rounded_once(shift: int) -> None:
    at = around(1 << 29, 3)
    product = _HighProduct.of(np.array(shift, np.int32), -9, None, True)
    for multiplier in (1 << 30, (1 << 31) - 1, 1234567891):
        constants = [tirx.const(int(c), "int32") for c in (multiplier, product.added, product.right)]
        made = value(product.scaled(tirx.Var("x", "int32"), 0, *constants), at)
        assert np.array_equal(made, ((at * multiplier + (1 << 30 - shift)) >> 31 - shift) - 9)


def test_products_that_do_not_fit_are_left() -> None:
    shifts = np.array([-3, -4], np.int32)
    assert _HighProduct.of(shifts, 0, None, False) is not None
    assert _HighProduct.of(shifts + 4, 0, None, False) is None  # to the left
    assert _HighProduct.of(shifts - 20, 0, None, False) is None
    assert _HighProduct.of(shifts, 300, None, False) is None
    assert _HighProduct.of(shifts + 3, 0, None, False) is None  # rounded once and twice
    assert _HighProduct.of(shifts + 3, 0, 0, False) is not None  # as no negative product is left


def sums(scales: tuple[float, float, float], zeros: tuple[int, int, int], low: int = -128) -> np.ndarray:
    """The sums of all pairs of int8 as LiteRT computes them."""
    wide = 2 * max(scales[:2])
    x, y = (
        table_of("int8", lambda x, s=s, z=z: scaled_integers((x - z) << 20, *fixed_point_of(s / wide)))
        for s, z in zip(scales[:2], zeros[:2], strict=True)
    )
    total = x[:, None] + y[None, :]
    return np.clip(scaled_integers(total, *fixed_point_of(wide / ((1 << 20) * scales[2]))) + zeros[2], low, 127)


def test_sums_of_bytes_have_a_form_with_the_same_bits() -> None:
    rng, found = np.random.default_rng(5), 0
    x = np.arange(-128, 128)
    for _ in range(12):
        scales, zeros = tuple(rng.uniform(0.01, 0.05, 3)), tuple(map(int, rng.integers(-128, 128, 3)))
        wanted, (a, b) = sums(scales, zeros), (scale / scales[2] for scale in scales[:2])
        form = ByteSum.of(wanted, "int8", (a, b, zeros[2] - a * zeros[0] - b * zeros[1]), -128, 127)
        if form is not None:
            found += 1
            made = np.clip((form.a * x[:, None] + form.b * x[None, :] + form.c) >> form.right, -128, 127)
            assert np.array_equal(made, wanted)
    assert found >= 9


def test_sums_that_are_ties_have_a_form_too() -> None:
    form = ByteSum.of(sums((0.5, 0.5, 1.0), (0, 0, 0)), "int8", (0.5, 0.5, 0.0), -128, 127)
    assert form is not None
    assert [(form.a * x + form.c) >> form.right for x in (-3, -1, 1, 3)] == [-2, -1, 1, 2]


def test_quotients_of_bytes_are_those_of_reals() -> None:
    zeros, scales = (120, 131, 9), (0.02, 0.05, 0.011)
    table = quotients_of_bytes("uint8", zeros, fixed_point_of(scales[0] / (scales[1] * scales[2])), (0, 255))
    x = np.arange(256.0)
    with np.errstate(all="ignore"):
        real = (x[:, None] - zeros[0]) / (x[None, :] - zeros[1]) * scales[0] / (scales[1] * scales[2])
    error = np.abs(np.clip(np.nan_to_num(real, nan=0.0) + zeros[2], 0, 255) - table)
    is_small = (np.abs(x[:, None] - zeros[0]) <= 1) & (np.abs(x[None, :] - zeros[1]) >= 128)
    assert (error[~is_small] <= 0.5001).all(), "quotients that are shifted by at most 31 bits"
