"""Products of few rows with a matrix that is quantized in blocks: results on the emulator, and bytes loaded at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import TARGET, assert_nearly_equal, execute, generated, machine_code
from packed_matrix import Matrix


def few_rows(sizes: Sequence[int], bits: int, kind: str, dtype: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The product of few rows with a matrix; what it is in float64; and the rules."""
    rows, columns, depth = sizes
    matrix = Matrix(depth, columns, bits, kind)
    given = matrix.operands(rows, dtype)
    target = replace(TARGET, precision={"float32": "fp32", "float16": "fp16"}[dtype])
    result, rules = execute(matrix.product(dtype), given[:1], given[1:], target)
    return result, given[0].astype(np.float64) @ matrix.elements, rules


@pytest.mark.parametrize(
    ("sizes", "bits", "kind", "dtype"),
    [
        ((1, 41, 1056), 4, "scales", "float32"),
        ((3, 40, 416), 8, "zeros", "float32"),
        ((2, 36, 2112), 2, "scales", "float16"),
        ((4, 24, 2048), 4, "offsets", "float16"),
        ((1, 67, 256), 8, "floats", "float32"),
    ],
    ids=str,
)
@pytest.mark.sample(2)
def test_few_rows_by_a_packed_matrix(sizes: tuple[int, int, int], bits: int, kind: str, dtype: str) -> None:
    result, wanted, rules = few_rows(sizes, bits, kind, dtype)
    assert_nearly_equal(result, wanted)
    assert rules == ["VectorProductRule"]


@pytest.mark.parametrize(("bits", "dtype"), [(4, "float32"), (8, "float16")])
@pytest.mark.sample(1)
def test_few_rows_load_16_bytes_at_once(bits: int, dtype: str) -> None:
    matrix = Matrix(4096, 4096, bits, "scales")
    target = replace(TARGET, architectures=(90,), precision={"float32": "fp32", "float16": "fp16"}[dtype])
    usage, code = machine_code(generated(matrix.product(dtype), matrix.operands(1, dtype), target, data=1), 90)
    assert usage.registers <= 128
    assert not re.search(rb"ld\.global\S*\.u8\s", code), "bytes one by one"
    assert len(re.findall(rb"ld\.global\S*\.v4\.[ub]32\s", code)) >= 8
