"""Sizes of elements, by every name of a type that the formats, NumPy and TVM have."""

import numpy as np
import pytest
from tvm import te

from nnefc.support.element_types import bits_of, element_bytes


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64"])
def test_elements_take_what_they_take_in_numpy(name: str) -> None:
    assert (element_bytes(name), bits_of(name)) == (np.dtype(name).itemsize, 8 * np.dtype(name).itemsize)


@pytest.mark.parametrize(("name", "bits"), [("bfloat16", 16), ("int4", 4), ("uint1", 1), ("float8_e4m3fn", 8)])
def test_types_that_numpy_has_not(name: str, bits: int) -> None:
    assert (bits_of(name), element_bytes(name)) == (bits, max(1, bits // 8))


def test_the_types_of_tensors_in_te_are_names_too() -> None:
    assert bits_of(te.placeholder((1,), "uint8").dtype) == 8


def test_what_is_no_type_is_refused() -> None:
    with pytest.raises(ValueError, match="handle"):
        bits_of("handle")
