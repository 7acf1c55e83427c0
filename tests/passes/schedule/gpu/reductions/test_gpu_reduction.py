"""Sums, maxima and positions of maxima on GPUs: results on the emulator, by every schedule, and registers."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from memory_bound_cases import case, check, check_resources, real
from tvm import te, tirx, topi

from nnefc.passes.schedule.gpu.reductions import reduction

REDUCED = [
    ((7,), 0),
    ((40,), 0),
    ((1, 1), (0, 1)),
    ((3, 5), 0),
    ((5, 48), 1),
    ((300, 33), 1),
    ((2, 17, 3, 3), (2, 3)),
    ((2, 16, 4, 4), 1),
    ((2, 16, 4, 4), (0, 2)),
    ((4, 3, 131), 1),
    ((70, 8), 0),
    ((131, 7), 0),
    ((64, 96), 0),
    ((3, 2, 5, 2, 64), (1, 3)),
    ((1, 9, 1), 1),
    ((3, 4099), 1),
    ((1000, 3), (0, 1)),
]


def mean(x: te.Tensor, axis: int | tuple[int, ...]) -> te.Tensor:
    total = topi.sum(x, axis)
    count = math.prod(map(int, x.shape)) // max(1, math.prod(map(int, total.shape)))
    return topi.nn.relu(topi.multiply(total, tirx.const(1 / count, x.dtype)))


def largest(x: te.Tensor, axis: int) -> te.Tensor:
    """A maximum that starts from minus infinity and keeps NaN: none that TVM knows."""

    def better(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        return tirx.Select(tirx.any(a > b, tirx.isnan(a)), a, b)

    reducer = te.comm_reducer(better, lambda dtype: tirx.const(-math.inf, dtype), name="largest")
    k = te.reduce_axis((0, x.shape[axis]), "k")
    tail = [size for a, size in enumerate(x.shape) if a != axis]
    return te.compute(tail, lambda *i: reducer(x(*i[:axis], k, *i[axis:]), axis=k), name="largest")


def index_of_largest(x: te.Tensor, axis: int) -> te.Tensor:
    """The first position of NaN, or of the largest; the largest itself is unused."""

    def better(a: list[tirx.Expr], b: list[tirx.Expr]) -> tuple[tirx.Expr, tirx.Expr]:
        nan = tirx.isnan(a[1])
        same = tirx.any(a[1] == b[1], tirx.all(nan, tirx.isnan(b[1])))
        stays = tirx.any(a[1] > b[1], tirx.all(nan, tirx.Not(tirx.isnan(b[1]))), tirx.all(same, a[0] < b[0]))
        return tirx.Select(stays, a[0], b[0]), tirx.Select(stays, a[1], b[1])

    def first(position: str, value: str) -> tuple[tirx.Expr, tirx.Expr]:
        return tirx.const(1 << 62, position), tirx.const(-math.inf, value)

    reducer = te.comm_reducer(better, first, name="slot")
    k = te.reduce_axis((0, x.shape[axis]), "k")
    tail = [size for a, size in enumerate(x.shape) if a != axis]
    return te.compute(tail, lambda *i: reducer((k.var, x(*i[:axis], k, *i[axis:])), axis=k), name="slot")[0]


def with_nan(*shape: int) -> np.ndarray:
    array = real(*shape)
    array.reshape(-1)[:: max(3, array.size // 5)] = np.nan
    return array


REDUCTIONS = [
    *(
        case(
            f"{name} over {axis}", lambda x, f=f, axis=axis: f(x, axis), lambda x, g=g, axis=axis: g(x, axis), real(*s)
        )
        for name, f, g in [
            ("sum", topi.sum, lambda x, axis: x.astype(np.float64).sum(axis)),
            ("largest", topi.max, np.max),
            ("mean", mean, lambda x, axis: np.maximum(x.astype(np.float64).mean(axis), 0)),
        ]
        for s, axis in (REDUCED if f is topi.sum else REDUCED[1::4])
    ),
    *(
        case(f"sum over {axis}", lambda x, a=axis: topi.sum(x, a), lambda x, a=axis: x.sum(a), real(*s, dtype=dtype))
        for dtype, (s, axis) in itertools.product(["float64", "int64", "int32"], [((5, 70), 1), ((70, 8), 0)])
    ),
    case("sum", lambda x: topi.sum(x, 1), lambda x: x.sum(1, dtype=np.float64), real(4, 40, dtype="float16")),
    case("all", lambda x: topi.all(x, 1), lambda x: x.all(1), real(9, 40, dtype="bool") | True),
    case("any", lambda x: topi.any(x, 0), lambda x: x.any(0), real(40, 9, dtype="bool")),
    *(
        case(f"slot over {axis}", lambda x, f=f, a=axis: f(x, a), lambda x, g=g, a=axis: g(x, a), real(*s))
        for f, g in [(topi.argmax, np.argmax), (topi.argmin, np.argmin)]
        for s, axis in [((6, 200), 1), ((90, 8), 0), ((3, 5, 7), 1)]
    ),
    *(
        case(f"largest over {axis}", lambda x, a=axis: largest(x, a), lambda x, a=axis: x.max(a), x)
        for x, axis in [(with_nan(5, 100), 1), (with_nan(70, 8), 0), (with_nan(6, 4), 1), (real(5, 100), 1)]
    ),
    *(
        case(f"first largest over {axis}", lambda x, a=axis: index_of_largest(x, a), lambda x, a=axis: x.argmax(a), x)
        for x, axis in [(with_nan(5, 100), 1), (real(70, 8), 0), (with_nan(6, 4), 1), (np.ones((3, 65), np.float32), 1)]
    ),
    case(
        "sum of what is computed on the way",
        lambda x: topi.sum(topi.exp(x), 1),
        lambda x: np.exp(x.astype(np.float64)).sum(1),
        real(6, 300),
    ),
]


def test_reductions(tmp_path: Path) -> None:
    check(REDUCTIONS, tmp_path, taken="ReductionRule")


IN_PARTS = [
    case("sum", lambda x: topi.sum(x, 1), lambda x: x.sum(1, dtype=np.float64), real(2, 3000)),
    case("mean", lambda x: mean(x, 1), lambda x: np.maximum(x.mean(1, dtype=np.float64), 0), real(2, 3000)),
    case("sum", topi.sum, lambda x: x.sum(dtype=np.float64), real(7, 11, 31)),
    case("mean", lambda x: mean(x, (0, 1)), lambda x: np.maximum(x.mean(dtype=np.float64), 0), real(96, 31)),
    case("columns", lambda x: topi.sum(x, 0), lambda x: x.sum(0, dtype=np.float64), real(1024, 8)),
    case("columns", lambda x: topi.max(x, 0), lambda x: x.max(0), real(1008, 16)),
    case("slots", lambda x: topi.argmax(x, 1), lambda x: x.argmax(1), real(3, 2048)),
    case("largest", lambda x: largest(x, 1), lambda x: x.max(1), with_nan(3, 2048)),
]


def test_few_results_of_many_elements_take_two_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "_LONG", 1000)
    monkeypatch.setattr(reduction, "_PART", 100)
    code = check(IN_PARTS, tmp_path)
    counts = {c.name: len(function.launches) for c, function in zip(IN_PARTS, code.functions, strict=True)}
    assert {name for name, count in counts.items() if count != 2} <= {"mean of float32[96, 31]"}


@pytest.mark.slow
def test_kernels_need_few_registers_and_no_memory_of_their_own() -> None:
    check_resources(
        [
            case("rows", lambda x: topi.sum(x, 1), lambda x: x.sum(1), real(300, 3000)),
            case("columns", lambda x: topi.sum(x, 0), lambda x: x.sum(0), real(3000, 64)),
            case("all", topi.sum, np.sum, real(300, 300)),
            case("each", lambda x: topi.sum(x, 1), lambda x: x.sum(1), real(3000, 9)),
            case("slots", lambda x: topi.argmax(x, 1), lambda x: x.argmax(1), real(300, 3000)),
        ]
    )
