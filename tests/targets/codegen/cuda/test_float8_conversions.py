"""Conversions to and from floats of 8 bits, by the instructions of devices."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from contraction_cases import TARGET, execute
from tvm.relax import op

from nnefc.operators.math.casting import cast_array
from nnefc.support.element_types import FLOAT8

ADA = replace(TARGET, architectures=(89,))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_numbers_are_rounded_to_even_and_saturated_and_nan_stays(dtype: str) -> None:
    every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.unique(every[np.isfinite(every)])
    between = (finite[1:] + finite[:-1]) / 2
    near = np.nextafter(np.tile(between, 2), np.repeat([-np.inf, np.inf], between.size).astype(np.float32))
    special = np.array([np.nan, np.inf, -np.inf, 1e9, -1e9, 1e-9, -0.0], np.float32)
    numbers = np.concatenate([every, between, near, special]).astype(np.float32)
    numbers = numbers[: numbers.size // 4 * 4]
    found, _ = execute(lambda x: op.astype(x, dtype), [numbers], target=ADA)
    wanted = cast_array(numbers, dtype)
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("count", [256, 255], ids=["vectors", "elements"])
def test_every_code_has_its_number(dtype: str, count: int) -> None:
    codes = np.arange(count, dtype=np.uint8).view(getattr(ml_dtypes, dtype))
    found, _ = execute(lambda x: op.astype(x, "float32"), [codes], target=ADA)
    np.testing.assert_array_equal(found, codes.astype(np.float32))
