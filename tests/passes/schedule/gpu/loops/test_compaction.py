"""Loops that append what a condition selects, for GPUs: one block counts, and keeps the order of the loop."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from emulate import run_kernel
from memory_bound_cases import RULE, TARGET
from tvm import tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda import CUDA_RULES
from nnefc.passes.schedule.gpu.loops.compaction import CompactionRule
from nnefc.passes.schedule.rule import scheduled

LOOP = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((T.int64(SIZE),), "float32"), found: T.Buffer((T.int64(SIZE),), "int64"),
         count: T.Buffer((T.int64(1),), "int64")):
    with T.sblock("selection"):
        T.reads()
        T.writes()
        count[0] = T.int64(FIRST)
        for i in range(T.int64(SIZE)):
            if CONDITION:
                found[POSITION] = VALUE
                count[0] = count[0] + T.int64(STEP)
"""
PARTS = {
    "SIZE": "2500", "FIRST": "0", "CONDITION": "x[i] > T.float32(0)", "POSITION": "count[0]", "VALUE": "i * T.int64(3)",
    "STEP": "1",
}  # fmt: skip


def loop(**changes: str) -> tirx.PrimFunc:
    """The loop, with parts of it changed."""
    text = LOOP
    for name, part in (PARTS | changes).items():
        text = text.replace(name, part)
    return tvm.script.from_source(text)


@pytest.mark.parametrize(("size", "part"), [(2500, 0.4), (1024, 1.0), (7, 0.5), (1500, 0.0)])
@pytest.mark.sample(2)
def test_what_is_selected_is_in_the_order_of_the_loop(size: int, part: float) -> None:
    func = scheduled(KernelAnalysis(loop(SIZE=str(size))), CUDA_RULES, TARGET)
    assert str(func.attrs[RULE]) == "CompactionRule"
    rng = np.random.default_rng(size)
    x = np.where(rng.random(size) < part, 1, -1).astype(np.float32)
    found, count = np.full(size, -7), np.full(1, -7)
    run_kernel(func, (x, found, count), TARGET)
    wanted = np.flatnonzero(x > 0) * 3
    assert count[0] == len(wanted)
    np.testing.assert_array_equal(found, np.concatenate([wanted, np.full(size - len(wanted), -7)]))


@pytest.mark.parametrize(
    "changes",
    [
        {"FIRST": "1"},
        {"STEP": "2"},
        {"POSITION": "i"},
        {"VALUE": "count[0]"},
        {"CONDITION": "found[i] > T.int64(0)"},
        {"CONDITION": "count[0] < T.int64(5)"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_loops_keep_their_order(changes: dict[str, str]) -> None:
    assert CompactionRule().apply(KernelAnalysis(loop(**changes)), TARGET) is None
