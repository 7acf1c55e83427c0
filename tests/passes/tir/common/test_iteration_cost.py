"""How long an iteration of a loop takes, roughly."""

from __future__ import annotations

import pytest
import tvm_ffi
from tir_programs import function
from tvm import tirx
from tvm.sym import Analyzer

from nnefc.passes.tir.common.expressions import int64
from nnefc.passes.tir.common.iteration_cost import UNKNOWN, cycles_of_iteration
from nnefc.targets.machine.cpu.parsing import parse_target

TARGET = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")  # 64 bytes, 46 a cycle, 2 multiply-adds
PRODUCT = """
    A: T.Buffer((T.int64(99999),)), B: T.Buffer((T.int64(99999),)), C: T.Buffer((T.int64(99999),)), n: T.int64
    for i in T.parallel(T.int64(8)):
        C_1 = T.alloc_buffer((ROWS * 64,))
        for y in range(TILES):
            a: T.let[T.int64] = T.call_llvm_intrin("int64", "llvm.smin.i64", T.max_value("int64"), y * T.int64(256))
            for k in range(256):
                for r in T.unroll(ROWS):
                    for c in T.unroll(4):
                        for l in T.vectorized(16):
                            t: T.let[T.int64] = T.int64(c * 16 + l)
                            C_1[r * 64 + t] = C_1[r * 64 + t] + A[a + T.int64(k + r)] * B[k * 64 + t]
"""


def cycles(text: str, n: int = 0) -> int:
    """Those of an iteration of the parallel loop in a program, with a size."""
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(function(text), (tirx.For, loops.append))
    (loop,) = (loop for loop in loops if loop.kind == tirx.ForKind.PARALLEL)
    found = cycles_of_iteration(loop, TARGET)
    return int(Analyzer().simplify(tvm_ffi.structural_map(found, (tirx.Var, lambda _: int64(n)))))


def product(rows: int, tiles: str) -> str:
    return PRODUCT.replace("ROWS", str(rows)).replace("TILES", tiles)


def test_the_longer_of_arithmetic_and_memory_counts() -> None:
    assert cycles(product(1, "1")) == pytest.approx(256 * 4 * 64 / 46, rel=0.02)
    assert cycles(product(14, "1")) == pytest.approx(256 * 4 * 14 / 2, rel=0.02)


def test_loops_of_dynamic_size_multiply_at_run_time() -> None:
    one = cycles(product(14, "1"))
    assert cycles(product(14, "n"), 1) == pytest.approx(one, abs=2)
    assert cycles(product(14, "n"), 7) == pytest.approx(7 * one, rel=0.01)
    assert cycles(product(14, "n // T.int64(3) + T.int64(1)"), 9) == pytest.approx(4 * one, rel=0.01)


def test_memory_counts_once_for_loops_that_stay_in_place() -> None:
    """All tiles of one row read the same 256 KiB."""
    assert cycles(product(1, "n"), 2) < 1.1 * cycles(product(1, "n"), 1)


def test_full_tiles_count_and_not_what_is_left_for_smaller_ones() -> None:
    text = """
    A: T.Buffer((T.int64(9999),)), n: T.int64
    for i in T.parallel(n):
        if i * T.int64(8) < n:
            for k in range(80):
                A[T.int64(k)] = A[T.int64(k)] * T.float32(2) - T.float32(1)
        else:
            for k in range(n):
                A[k] = T.exp(A[k])
"""
    assert cycles(text, 5000) == 80


def test_both_branches_count_that_are_no_tiles() -> None:
    text = """
    A: T.Buffer((T.int64(9999),)), n: T.int64
    for i in T.parallel(n):
        if i < n - T.int64(1):
            A[i] = T.float32(1)
        else:
            for k in range(80):
                A[T.int64(k)] = A[T.int64(k)] * T.float32(2) - T.float32(1)
"""
    assert cycles(text, 5000) >= 80


def test_unknown_costs_are_unknown() -> None:
    for body in (
        'T.evaluate(T.call_extern("int32", "anything"))',
        "for k in range(N[i]):\n            A[k] = T.float32(1)",
        "while A[0] < T.float32(9):\n            A[0] = A[0] + T.float32(1)",
    ):
        text = f"""
    A: T.Buffer((T.int64(9999),)), N: T.Buffer((T.int64(9),), "int64"), n: T.int64
    for i in T.parallel(n):
        {body}
"""
        assert cycles(text, 5000) == UNKNOWN
