"""Dimensions that are the number of a product's rows are found, and others are not."""

from __future__ import annotations

import pytest
from program_parser import parse_program
from tvm import tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.single_row import sizes_of_one_row
from nnefc.targets.machine.cuda.target import parse_cuda_target


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("A: float32[n, 64]\nB: float32[64, 96]\nC[i: n, j: 96] = sum(A[i, k] * B[k, j] for k in 64)", {"n"}),
        ("A: float32[n, k]\nB: float32[k, 96]\nC[i: n, j: 96] = sum(A[i, x] * B[x, j] for x in k)", {"n"}),
        # never one row
        ("A: float32[n * 4, 64]\nB: float32[64, 96]\nC[i: n * 4, j: 96] = sum(A[i, k] * B[k, j] for k in 64)", set()),
        ("A: float32[8, 64]\nB: float32[64, n]\nC[i: 8, j: n] = sum(A[i, k] * B[k, j] for k in 64)", set()),
        ("A: float32[n, 64]\nC[i: n, j: 64] = A[i, j] + float32(1)", set()),
    ],
    ids=["rows", "rows and depth", "four times as many rows", "columns", "no product"],
)
def test_the_number_of_rows_is_found(program: str, found: set[str]) -> None:
    sizes = {name: tirx.Var(name, "int64") for name in ("n", "k")}
    func = parse_program(program, sizes)
    assert isinstance(func, tirx.PrimFunc)
    target = parse_cuda_target("cuda -arch=sm_80")
    ones = sizes_of_one_row(KernelAnalysis(func), [*sizes.values()], target)
    assert ones == {sizes[name]: 1 for name in found}
