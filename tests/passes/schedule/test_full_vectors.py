"""Rows that are not full vectors: computed in vectors as far as these go, and right to the last element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from pass_runs import lower, lower_kernel
from relax_programs import Case, build, check, target
from tvm import te, tirx

from nnefc.backends import backend_of
from nnefc.ir.attributes import RULE
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu.row_reduction import RowReductionRule
from nnefc.passes.tir.common.peel_tail_tiles import tiled_axes
from nnefc.symbolic.dims import Range, ranges

SIZES = [1, 2, 7, 13, 16, 17, 31, 33, 41, 53, 61, 97, 197]


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def product(rows: int, depth: int, columns: int) -> list[Case]:
    """With a constant and with a computed right factor."""
    right = values(depth, columns)
    name = f"{rows} × {depth} × {columns}"
    return [
        Case([values(2, rows, depth)], lambda g, x: g.unary("relu", g.matmul(x, g.constant(right))), 1e-5, name),
        Case([values(2, rows, depth), values(2, depth, columns)], lambda g, x, y: g.matmul(x, y), 1e-5, name),
    ]


FEW = ((61, 41, 97), (1, 53, 53), (97, 1, 33), (17, 97, 2))
MANY = [tuple(map(int, sizes)) for sizes in np.random.default_rng(0).choice(SIZES, (24, 3))]


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("llvm -mcpu=x86-64-v3", FEW[::2]),
        pytest.param("llvm -mcpu=x86-64-v3", FEW, marks=pytest.mark.slow),
        pytest.param("llvm -mcpu=x86-64-v3", MANY[1::2], marks=pytest.mark.slow),
        pytest.param("llvm", MANY[::2], marks=pytest.mark.slow),
    ],
    ids=["two", "few", "many", "many here"],
)
def test_products_of_any_sizes_are_right(name: str, shapes: Sequence[tuple[int, int, int]]) -> None:
    check([case for shape in shapes for case in product(*shape)], name)


@pytest.mark.parametrize("name", ["llvm", pytest.param("llvm -mcpu=x86-64-v3", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_rows_of_any_length_are_right(name: str) -> None:
    cases = [Case([values(3, length)], lambda g, x: g.softmax(x, 1), 1e-5, f"softmax of {length}") for length in SIZES]
    for operation in ("sum", "max", "min", "mean"):
        cases += [
            Case([values(3, length)], lambda g, x, o=operation: g.reduce(o, x, [1]), 1e-5, f"{operation} of {length}")
            for length in SIZES
        ]
    cases += [
        Case([values(3, 5, n)], lambda g, x: g.reduce("sum", x, [1, 2]), 1e-5, f"of 5 × {n}") for n in (17, 16, 3)
    ]
    check(cases, name)


def loops(stmt: tirx.Stmt) -> list[tirx.For]:
    match stmt:
        case tirx.For():
            return [stmt, *loops(stmt.body)]
        case tirx.SeqStmt():
            return [loop for part in stmt.seq for loop in loops(part)]
        case tirx.AttrStmt():
            return loops(stmt.body)
        case tirx.IfThenElse():
            return loops(stmt.then_case) + ([] if stmt.else_case is None else loops(stmt.else_case))
    return []


def test_no_vectorized_loop_has_a_condition_on_its_lanes() -> None:
    seen = {}
    lower(build(product(22, 24, 197)).network, backend_of(target("llvm -mcpu=x86-64-v4")), seen.__setitem__)
    kernels = [f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule"]
    assert len(kernels) == 2
    for kernel in kernels:
        vectorized = [s for s in loops(lower_kernel(kernel).func.body) if s.kind == tirx.ForKind.VECTORIZED]
        assert vectorized
        assert not [loop for loop in vectorized if isinstance(loop.body, tirx.IfThenElse)]


@pytest.mark.parametrize(("tail", "tiled"), [(0, 0), (3, 1)])
def test_open_rows_of_full_vectors_alone_are_reduced_without_a_look_at_their_end(tail: int, tiled: int) -> None:
    n = tirx.Var("n", "int64")
    x = te.placeholder((1, n * 64 + tail), name="x")
    k = te.reduce_axis((0, n * 64 + tail), "k")
    greatest = te.compute((1, 1), lambda row, _: te.max(x[row, k], axis=k), name="greatest")
    with ranges({n: Range(1, 512, 128)}):
        kernel = KernelAnalysis(te.create_prim_func([x, greatest], "int64"))
        made = RowReductionRule().apply(kernel, target("llvm"))
    assert made is not None
    assert len(tiled_axes(made.mod["main"])) == tiled
