"""Loops that select elements greedily, for CUDA: intervals of a line that do not overlap those of a higher score."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from emulate import device_code, run_kernel
from memory_bound_cases import RULE, TARGET
from tvm import tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda import CUDA_RULES
from nnefc.passes.schedule.gpu.loops import greedy_selection
from nnefc.passes.schedule.gpu.loops.greedy_loop import GreedyLoop
from nnefc.passes.schedule.gpu.loops.greedy_selection import GreedySelectionRule
from nnefc.passes.schedule.rule import scheduled
from nnefc.targets.codegen.cuda.compiler import compile_image

LOOP = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((T.int64(2 * SIZE * 2),), "float32"), scores: T.Buffer((T.int64(6 * SIZE),), "float32"),
         rows: T.Buffer((T.int64(6 * MAXIMUM * 3),), "int64"), total: T.Buffer((T.int64(1),), "int64"),
         left: T.Buffer((T.int64(SIZE),), "int64"), state: T.Buffer((T.int64(3),), "int64")):
    T.func_attr({"nnefc.scratch_results": SCRATCH})
    with T.sblock("selection"):
        T.reads()
        T.writes()
        total[T.int64(0)] = T.int64(FIRST)
        for k in range(T.int64(6 * MAXIMUM * 3)):
            rows[k] = T.int64(FILL)
        for i, c in T.grid(T.int64(2), T.int64(3)):
            state[T.int64(0)] = T.int64(0)
            state[T.int64(1)] = T.int64(0)
            for box in range(T.int64(SIZE)):
                if CANDIDATE:
                    left[state[T.int64(0)]] = box
                    state[T.int64(0)] = state[T.int64(0)] + T.int64(1)
            while state[T.int64(0)] > T.int64(0) and state[T.int64(1)] < T.int64(MAXIMUM):
                rows[total[T.int64(0)] * T.int64(3)] = COLUMN
                rows[total[T.int64(0)] * T.int64(3) + T.int64(1)] = c
                BEST = left[T.int64(0)]
                for k in range(state[T.int64(0)]):
                    if BETTER(scores[(i * T.int64(3) + c) * T.int64(SIZE) + left[k]],
                              scores[(i * T.int64(3) + c) * T.int64(SIZE) + BEST]):
                        BEST = left[k]
                state[T.int64(2)] = state[T.int64(0)]
                state[T.int64(0)] = T.int64(0)
                for k in range(state[T.int64(2)]):
                    if (left[k] != BEST and STAYS(
                            x[(i * T.int64(SIZE) + left[k]) * T.int64(2)],
                            x[(i * T.int64(SIZE) + left[k]) * T.int64(2) + T.int64(1)],
                            x[(i * T.int64(SIZE) + BEST) * T.int64(2)],
                            x[(i * T.int64(SIZE) + BEST) * T.int64(2) + T.int64(1)],
                    )):
                        left[state[T.int64(0)]] = LEFT
                        state[T.int64(0)] = state[T.int64(0)] + T.int64(1)
                total[T.int64(0)] = total[T.int64(0)] + T.int64(STEP)
                state[T.int64(1)] = state[T.int64(1)] + T.int64(1)
"""
PARTS = {
    "SIZE": "77", "MAXIMUM": "20", "SCRATCH": "2", "FIRST": "0", "FILL": "0", "COLUMN": "i", "LEFT": "left[k]",
    "CANDIDATE": "scores[(i * T.int64(3) + c) * T.int64(SIZE) + box] > T.float32(0.1)", "BETTER": "GT",
    "STAYS": "APART", "STEP": "1", "BEST": "rows[total[T.int64(0)] * T.int64(3) + T.int64(2)]",
}  # fmt: skip
FUNCTIONS = {
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "APART": lambda low, high, first, last: tirx.any(low > last, first > high),
}


def loop(**changes: str) -> tirx.PrimFunc:
    """The loop, with parts of it changed."""
    text = LOOP
    for name in ("CANDIDATE", *PARTS):
        text = text.replace(name, (PARTS | changes)[name])
    return tvm.script.from_source(text, extra_vars={**vars(tvm.script.tirx), "T": tvm.script.tirx, **FUNCTIONS})


def selected(x: np.ndarray, scores: np.ndarray, maximum: int) -> list[tuple[int, int, int]]:
    """What the loop selects, one after the other."""
    rows = []
    for i, c in np.ndindex(scores.shape[:2]):
        left, kept = [box for box in range(scores.shape[2]) if scores[i, c, box] > np.float32(0.1)], list[int]()
        while left and len(kept) < maximum:
            best = max(left, key=lambda box: scores[i, c, box])  # the first of several
            kept.append(best)
            left = [
                box for box in left if box != best and (x[i, box, 0] > x[i, best, 1] or x[i, best, 0] > x[i, box, 1])
            ]
        rows += [(i, c, box) for box in kept]
    return rows


@pytest.mark.parametrize(
    ("size", "maximum", "threads"),
    [(77, 20, 64), (1, 1, 64), (64, 64, 64), pytest.param(1100, 40, 512, marks=pytest.mark.slow)],
)
@pytest.mark.sample(1)
def test_what_is_selected_is_what_the_loop_selects(
    size: int, maximum: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of scores with ties and NaN, and of intervals that are empty, NaN, or alike."""
    monkeypatch.setattr(greedy_selection, "_MIN_THREADS", threads)
    func = scheduled(KernelAnalysis(loop(SIZE=str(size), MAXIMUM=str(maximum))), CUDA_RULES, TARGET)
    assert str(func.attrs[RULE]) == "GreedySelectionRule"
    rng = np.random.default_rng(size)
    x = np.sort(rng.random((2, size, 1)) + rng.choice([0, 0, 0.01, 0.2], (2, size, 2)), 2).astype(np.float32)
    x[:, ::11] = np.nan
    scores = np.round(rng.random((2, 3, size)), 1).astype(np.float32)
    scores[0, 1, ::3] = np.nan
    scores[1, 2] = 0
    rows, total = np.full(6 * maximum * 3, -7), np.full(1, -7)
    scratch = np.zeros(size, np.int64), np.zeros(3, np.int64)
    launched = run_kernel(func, (x.reshape(-1), scores.reshape(-1), rows, total, *scratch), TARGET)
    assert [launch.block[0] for launch in launched.launches] == [threads, 32]
    wanted = np.array(selected(x, scores, maximum), np.int64).reshape(-1, 3)
    assert total[0] == len(wanted)
    np.testing.assert_array_equal(rows.reshape(-1, 3)[: len(wanted)], wanted)
    assert not rows.reshape(-1, 3)[len(wanted) :].any()


@pytest.mark.parametrize(
    "changes",
    [
        {"SCRATCH": "0"},
        {"FIRST": "1"},
        {"FILL": "1"},
        {"COLUMN": "left[T.int64(0)]"},
        {"LEFT": "k"},
        {"STEP": "2"},
        {"CANDIDATE": "x[box] > T.float32(0)"},
        {"CANDIDATE": "scores[(i * T.int64(3) + c) * T.int64(SIZE) + box] < T.float32(0)"},
        {"BETTER": "GE"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_loops_keep_their_order(changes: dict[str, str]) -> None:
    assert GreedySelectionRule().apply(KernelAnalysis(loop(**changes)), TARGET) is None


def test_the_parts_of_a_loop_are_found() -> None:
    found = GreedyLoop.of(loop())
    assert found is not None
    assert (len(found.nest), len(found.columns), found.is_filled) == (2, 2, True)


def test_nothing_spills() -> None:
    func = scheduled(KernelAnalysis(loop(SIZE="5000", MAXIMUM="200")), CUDA_RULES, TARGET)
    usage = compile_image(device_code([func], TARGET).source, (80, 100)).usage
    assert len(usage) == 4
    assert not any(kernel.spill_stores or kernel.spill_loads for kernel in usage)
