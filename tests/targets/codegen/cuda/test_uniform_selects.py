"""Selections of vectors by one condition, which TVM's code generator declares with the type of the result."""

from __future__ import annotations

import numpy as np
import pytest
from contraction_cases import TARGET
from emulate import device_code, run_kernel
from tvm import tirx
from tvm.script import tirx as T

from nnefc.targets.codegen.cuda.compiler import compile_image


def appended(lanes: int) -> tirx.PrimFunc:
    """Rows of one matrix before a limit, which is read from memory, else rows of another one."""

    @T.prim_func(s_tir=True)
    def kernel(
        limit: T.Buffer((1,), "int64"),
        x: T.Buffer((32, lanes), "float32"),
        y: T.Buffer((32, lanes), "float32"),
        result: T.Buffer((32, lanes), "float32"),
    ) -> None:
        for i in T.thread_binding(32, "threadIdx.x"):
            for j in T.vectorized(lanes):
                with T.sblock("result"):
                    row, column = T.axis.remap("SS", [i, j])
                    result[row, column] = T.Select(T.Cast("int64", row) < limit[0], x[row, column], y[row, column])

    return kernel


@pytest.mark.parametrize("lanes", [2, 4])
def test_vectors_are_chosen_by_a_condition_that_is_read_from_memory(lanes: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 32, lanes), np.float32)
    found = np.zeros_like(x)
    run_kernel(appended(lanes), [np.array([5]), x, y, found], TARGET)
    np.testing.assert_array_equal(found, np.where(np.arange(32)[:, None] < 5, x, y))


def test_the_compiler_takes_them() -> None:
    source = device_code([appended(2)], TARGET).source
    assert "make_ushort2" not in source
    compile_image(source, (80,))
