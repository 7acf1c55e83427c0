"""Quotients by numbers that are known: no division is left, and not a bit is different."""

from __future__ import annotations

import numpy as np
import pytest
from relax_programs import network_of, program, target

from nnefc.driver.compile import compile_network

DIVISORS = (6.0, -3.0, 7.0, 0.1, 1.2247449159622192, 8.0, 1e-5, 60000.0)


def values(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(4)
    made = (rng.standard_normal(20011) * 2.0 ** rng.uniform(-80, 100, 20011)).astype(dtype)
    made[:7] = 0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max, -np.finfo(dtype).max
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_by_numbers_are_those_of_a_division(dtype: str) -> None:
    results = [f"y{number}" for number in range(len(DIVISORS))]
    lines = [f'{y} = R.divide(x, R.const({d!r}, "{dtype}"))' for y, d in zip(results, DIVISORS, strict=True)]
    text = "\n".join([f"x: {dtype}[20011] -> {', '.join(results)}", *lines])
    x = values(dtype)
    made = compile_network(network_of(program(text)), target("llvm -mcpu=x86-64-v3")).load()(x)
    for divisor, quotient in zip(DIVISORS, made, strict=True):
        with np.errstate(over="ignore"):
            expected = x / x.dtype.type(divisor)
        np.testing.assert_array_equal(quotient, expected)
        np.testing.assert_array_equal(np.signbit(quotient[:4]), np.signbit(expected[:4]))


def test_a_quotient_of_a_quotient_becomes_vectors() -> None:
    text = """x: float32[16, 61] -> y
    a = R.divide(x, R.const(6.0, "float32"))
    b = R.round(a)
    y = R.divide(b, R.const(0.3, "float32"))"""
    x = np.random.default_rng(3).standard_normal((16, 61)).astype(np.float32) * 100
    y = compile_network(network_of(program(text)), target("llvm -mcpu=x86-64-v3")).load()(x)
    np.testing.assert_array_equal(y, np.rint(x / np.float32(6)) / np.float32(0.3))
