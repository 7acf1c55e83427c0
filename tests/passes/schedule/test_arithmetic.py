"""Counts of arithmetic, for profiles and reports."""

import pytest
from program_parser import parse_program
from tvm import tirx

from nnefc.ir.attributes import DYNAMIC_DIMENSIONS
from nnefc.passes.schedule.arithmetic import arithmetic_formula, arithmetic_of
from nnefc.symbolic.dims import ranges

PRODUCT = "A: float32[8, 5]\nB: float32[5, 6]\nC[i: 8, j: 6] = sum(A[i, k] * B[k, j] for k in 5)"
LIMITED = f"{PRODUCT}\nD[i: 8, j: 6] = max(C[i, j], 0.0)"
COPIED = "A: float32[8, 5]\nB[j: 5, i: 8] = A[i, j]"


@pytest.mark.parametrize(
    ("kernel", "operations"), [(PRODUCT, 2 * 8 * 6 * 5), (LIMITED, 2 * 8 * 6 * 5 + 48), (COPIED, 0)]
)
def test_operations_of_a_kernel_are_those_of_its_elements(kernel: str, operations: int) -> None:
    assert arithmetic_of(parse_program(kernel, {})) == operations


@pytest.mark.parametrize(
    ("kernel", "formula"),
    [
        ("A: float32[n, 5]\nB: float32[5, 6]\nC[i: n, j: 6] = sum(A[i, k] * B[k, j] for k in 5)", "60 * (n)"),
        ("A: float32[n, m]\nB[i: n, j: m] = A[i, j] + A[i, j] * 2.0", "2 * (m) * (n)"),
        ("A: float32[n, m]\nB[j: m, i: n] = A[i, j]", ""),
    ],
)
def test_operations_with_dynamic_dimensions_are_a_formula(kernel: str, formula: str) -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    func = parse_program(kernel, {"n": n, "m": m}).with_attr(DYNAMIC_DIMENSIONS, [n, m])
    with ranges({}):
        assert arithmetic_formula(func) == formula


def test_known_operations_are_no_formula() -> None:
    assert arithmetic_formula(parse_program(PRODUCT, {})) == ""
