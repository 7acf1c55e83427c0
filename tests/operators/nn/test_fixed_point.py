"""Bytes scaled in fixed point, in products of 32 bits: the bits of one product of 64."""

import numpy as np
import pytest
from tvm import tirx

from nnefc.operators.nn.fixed_point import _scaled_byte, divided_by_power


def value(x: tirx.Expr, at: np.ndarray) -> np.ndarray:
    """An expression of int32, computed without wrapping, which int64 would show."""
    match x:
        case tirx.IntImm():
            return np.full(at.shape, int(x.value))
        case tirx.Var():
            return at
    function = {tirx.Add: np.add, tirx.Mul: np.multiply, tirx.RShift: np.right_shift}[type(x)]
    made: np.ndarray = function(value(x.a, at), value(x.b, at))
    assert np.abs(made).max() < 1 << 31
    return made


@pytest.mark.parametrize("left", [10, 15, 20])
def test_products_in_two_parts_are_those_of_64_bits(left: int) -> None:
    at, rng = np.arange(-511, 512), np.random.default_rng(left)
    multipliers = [1 << 30, (1 << 31) - 1, (1 << 30) + 1, *map(int, rng.integers(1 << 30, 1 << 31, 20))]
    for multiplier in multipliers:
        high = ((at << left) * multiplier + (1 << 30)) >> 31
        for shift in (0, -1, -5, -30):
            made = value(_scaled_byte(tirx.Var("x", "int32"), left, multiplier, shift), at)
            assert np.array_equal(made, divided_by_power(high, -shift))
