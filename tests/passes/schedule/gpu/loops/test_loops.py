"""Loops written as statements, for GPUs: which iterations are independent, and that threads keep their order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from memory_bound_cases import TARGET, Case, check, real, rules_of
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.loops.independence import independent_loops
from nnefc.passes.schedule.gpu.loops.loops import LoopsRule


def nest_of(sizes: tuple[int, ...], write: Callable[..., None]) -> list[tirx.For]:
    """Nested loops around what `write(a, b, *variables)` writes; a and b are flat tensors."""
    a, b = (
        tirx.decl_buffer((tirx.IntImm("int64", 1000),), dtype, name)
        for dtype, name in [("float32", "a"), ("int64", "b")]
    )

    def loops(left: tuple[int, ...], variables: list[tirx.Var]) -> None:
        if not left:
            write(T.buffer_proxy(a), T.buffer_proxy(b), *variables)
            return
        with T.serial(0, tirx.IntImm("int64", left[0])) as var:
            loops(left[1:], [*variables, var])

    with IRBuilder() as builder:
        with T.seq_scope():
            loops(sizes, [])
        stmt = builder.get()
    nest = []
    while isinstance(stmt, tirx.AttrStmt | tirx.For):
        if isinstance(stmt, tirx.For):
            nest.append(stmt)
        stmt = stmt.body
    return nest


def copied(a, b, i, j):
    a[i * 5 + j] = 1.0


def overlapping(a, b, i, j):
    a[i * 4 + j] = 1.0


def read_of_the_neighbour(a, b, i, j):
    a[i * 5 + j] = a[i * 5 + j + 1] + 1.0


def summed(a, b, i, j):
    a[i] = a[i] + 1.0


def scattered(a, b, i, j):
    position = b[j]
    with T.If(tirx.all(position >= 0, position < 7)), T.Then():
        a[i * 7 + position] = 1.0


def scattered_anywhere(a, b, i, j):
    a[i * 7 + b[j]] = 1.0


def scattered_in_columns(a, b, i, j):
    a[b[j] * 3 + i] = 1.0


def digits(a, b, i, j):
    a[i % 3 * 5 + i // 3 * 20 + j] = 1.0


def digits_that_do_not_tell(a, b, i, j):
    a[i % 3 * 5 + j] = 1.0


def kept_for_all(a, b, i, j):
    b[0] = i
    a[i * 5 + j] = 1.0


@pytest.mark.parametrize(
    ("write", "sizes", "independent"),
    [
        (copied, (6, 5), [0, 1]),
        (overlapping, (6, 5), []),
        (read_of_the_neighbour, (6, 5), []),
        (summed, (6, 5), [0]),
        (scattered, (6, 5), [0]),
        (scattered_anywhere, (6, 5), []),
        (scattered_in_columns, (3, 5), [0]),
        (scattered_in_columns, (4, 5), []),
        (digits, (6, 5), [0, 1]),
        (digits_that_do_not_tell, (6, 5), [1]),
        (kept_for_all, (6, 5), []),
    ],
)
def test_iterations_are_independent_if_positions_distinguish_them(
    write: Callable[..., None], sizes: tuple[int, ...], independent: list[int]
) -> None:
    nest = nest_of(sizes, write)
    found = independent_loops(nest)
    assert [
        position for position, loop in enumerate(nest) if any(loop.same_as(other) for other in found)
    ] == independent


SCATTER = """
@T.prim_func(s_tir=True)
def main(data: T.Buffer((T.int64(60),), "float32"), index: T.Buffer((T.int64(24),), "int64"),
         update: T.Buffer((T.int64(24),), "float32"), out: T.Buffer((T.int64(60),), "float32")):
    with T.sblock("scatter"):
        T.reads()
        T.writes()
        for v, w in T.grid(T.int64(6), T.int64(10)):
            out[v * T.int64(10) + w] = data[v * T.int64(10) + w]
        for v, w in T.grid(T.int64(6), T.int64(4)):
            if index[v * T.int64(4) + w] >= T.int64(0) and index[v * T.int64(4) + w] < T.int64(10):
                out[v * T.int64(10) + index[v * T.int64(4) + w]] = UPDATE
"""


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.sample(1)
def test_updates_of_an_element_come_in_order(tmp_path: Path, adds: bool) -> None:
    update = "update[v * T.int64(4) + w]"
    position = "out[v * T.int64(10) + index[v * T.int64(4) + w]]"
    func = tvm.script.from_source(SCATTER.replace("UPDATE", f"{position} + {update}" if adds else update))
    data, updates = real(60), real(24)
    index = np.random.default_rng(5).integers(0, 3, (6, 4))
    expected = data.reshape(6, 10).copy()
    for line, column in np.ndindex(6, 4):
        before = expected[line, index[line, column]] if adds else 0
        expected[line, index[line, column]] = before + updates.reshape(6, 4)[line, column]
    scatter = Case("scatter", func, [data, index.reshape(-1), updates], [expected.reshape(-1)])
    code = check([scatter], tmp_path)
    assert rules_of([scatter]) == ["LoopsRule"]
    assert [launch.threads for launch in code.launches] == [64, 6]


def test_what_is_all_one_chain_is_left_to_other_rules() -> None:
    text = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((T.int64(60),), "float32"), y: T.Buffer((T.int64(1),), "float32")):
    with T.sblock("chain"):
        T.reads()
        T.writes()
        y[0] = T.float32(0)
        for v in range(T.int64(60)):
            y[0] = y[0] * T.float32(0.5) + x[v]
"""
    assert LoopsRule().apply(KernelAnalysis(tvm.script.from_source(text)), TARGET) is None


def test_few_threads_with_much_work_are_left_to_other_rules() -> None:
    text = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((T.int64(200000),), "float32"), y: T.Buffer((T.int64(2),), "float32")):
    with T.sblock("chains"):
        T.reads()
        T.writes()
        for v in range(T.int64(2)):
            for w in range(T.int64(COUNT)):
                y[v] = y[v] * T.float32(0.5) + x[v * T.int64(100000) + w]
"""
    few, many = (tvm.script.from_source(text.replace("COUNT", count)) for count in ("100", "100000"))
    assert LoopsRule().apply(KernelAnalysis(few), TARGET) is not None
    assert LoopsRule().apply(KernelAnalysis(many), TARGET) is None
