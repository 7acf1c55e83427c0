"""Products of few rows, whose number is known at run time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from relax_programs import network_of, opened, program, target
from tvm import te, tirx

from nnefc.backends import cpu_steps
from nnefc.driver.compile import compile_network
from nnefc.ir.attributes import DYNAMIC_DIMENSIONS
from nnefc.passes.compute.matmul import multiply_packed
from nnefc.passes.compute.tile_sizes import FEW_ROWS, choose_few_rows
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu.specialize_row_count import of_few_rows
from nnefc.symbolic.dims import Range, Size, ranges
from nnefc.targets.machine.cpu.target import Target


def machine(l2_bytes: int, name: str = "llvm") -> Target:
    found = target(name)
    return replace(found, costs=replace(found.costs, l2_bytes=l2_bytes))


@pytest.mark.parametrize(("columns", "many"), [(16 * 12, 3), (16 * 8, 2), (16 * 7, 1)])
def test_each_number_of_few_rows_has_a_tile_of_its_own(columns: int, many: int) -> None:
    tile, smaller = choose_few_rows(columns // 16, target("llvm -mcpu=x86-64-v4"))
    assert (tile.rows, *smaller) == tuple(reversed(FEW_ROWS))
    assert tile.columns == many


@pytest.mark.parametrize(
    ("minimum", "l2_bytes", "found"), [(1, 40 * 320 * 4 - 1, True), (1, 40 * 320 * 4, False), (8, 1, False)]
)
def test_few_rows_of_what_the_second_cache_does_not_hold_have_code_of_their_own(
    minimum: int, l2_bytes: int, found: bool
) -> None:
    n = tirx.Var("n", "int64")
    with ranges({n: Range(minimum, 1 << 20, 1)}):
        left, packed = te.placeholder((n, 40)), te.placeholder((20, 40, 16))
        func = te.create_prim_func([left, packed, multiply_packed(left, packed, 320, Size(n))])
        kernel = KernelAnalysis(func.with_attr(DYNAMIC_DIMENSIONS, [n]))
        assert (of_few_rows(kernel, machine(l2_bytes)) is not None) == found


def test_any_number_of_rows_is_multiplied_right(monkeypatch: pytest.MonkeyPatch) -> None:
    versions: list[object] = []
    monkeypatch.setattr(cpu_steps, "of_few_rows", lambda *args: versions.append(of_few_rows(*args)) or versions[-1])
    rng = np.random.default_rng(0)
    w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((45, 101), (101,)))
    text = 'x["n", 45] -> y\nz = R.matmul(x, w)\ny = R.nn.relu(R.add(z, b))'
    artifact = compile_network(opened(network_of(program(text, w=w, b=b))), machine(1))
    assert any(versions)
    with artifact.load(threads=2) as model:
        for rows in (*range(1, 19), 40):
            x = rng.standard_normal((rows, 45)).astype(np.float32)
            (found,) = model.run({model.inputs[0].name: x}).values()
            np.testing.assert_allclose(found, np.maximum(x.astype(np.float64) @ w + b, 0), atol=2e-5)
