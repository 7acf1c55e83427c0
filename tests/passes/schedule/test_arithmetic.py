"""Counts of arithmetic, for profiles and reports."""

import pytest
from program_parser import parse_program

from nnefc.passes.schedule.arithmetic import arithmetic_of

PRODUCT = "A: float32[8, 5]\nB: float32[5, 6]\nC[i: 8, j: 6] = sum(A[i, k] * B[k, j] for k in 5)"
LIMITED = f"{PRODUCT}\nD[i: 8, j: 6] = max(C[i, j], 0.0)"
COPIED = "A: float32[8, 5]\nB[j: 5, i: 8] = A[i, j]"


@pytest.mark.parametrize(
    ("kernel", "operations"), [(PRODUCT, 2 * 8 * 6 * 5), (LIMITED, 2 * 8 * 6 * 5 + 48), (COPIED, 0)]
)
def test_operations_of_a_kernel_are_those_of_its_elements(kernel: str, operations: int) -> None:
    assert arithmetic_of(parse_program(kernel, {})) == operations
