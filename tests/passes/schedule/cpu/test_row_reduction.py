"""Schedules of rows: vectors that rows of bytes are multiples of."""

from __future__ import annotations

import pytest
import tvm_ffi
from relax_programs import target
from tvm import te, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu.row_reduction import RowReductionRule
from nnefc.passes.schedule.rule import scheduled


@pytest.mark.parametrize(("size", "lanes"), [(160, {32}), (144, {16}), (24, {8}), (150, set())])
def test_rows_of_bytes_are_vectors_that_divide_them(size: int, lanes: set[int]) -> None:
    data, along = te.placeholder((9, size), "float32", "x"), te.reduce_axis((0, size), "k")
    total = te.compute((9, 1), lambda i, _: te.sum(data(i, along), axis=[along]), "total")
    result = te.compute((9, size), lambda i, j: (data(i, j) - total(i, 0)).astype("int8"), "y")
    found: list[tirx.For] = []
    kernel = KernelAnalysis(te.create_prim_func([data, result]))
    func = scheduled(kernel, (RowReductionRule(),), target("llvm -mcpu=x86-64-v3"))
    tvm_ffi.structural_walk(func.body, (tirx.For, found.append))
    assert {int(loop.extent) for loop in found if loop.kind == tirx.ForKind.VECTORIZED} == lanes
