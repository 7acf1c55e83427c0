"""Kernels that look at every element that they read or write, and at every divisor: what becomes of their
statements."""

from __future__ import annotations

import pytest
import tvm
from tir_programs import function
from tvm import tirx

from nnefc.targets.codegen.cpu.checks import Checks, collected_checks, insert_checks

TARGET = tvm.target.Target("llvm")


def checked(text: str) -> tuple[tirx.PrimFunc, Checks]:
    """A kernel as it becomes code, with checks, and how many it has."""
    func = function(text).with_attrs({"target": TARGET, "global_symbol": "nnefc_kernel_k"})
    vectors = tirx.transform.VectorizeLoop(True)(tvm.IRModule({"main": func}))["main"]
    with collected_checks() as counts:
        made = insert_checks(vectors)
    return made.without_attr("target").without_attr("global_symbol"), counts


def assert_same(func: tirx.PrimFunc, expected: str) -> None:
    wanted = tvm.IRModule({"main": function(expected).without_attr("global_symbol")})
    simplify = tvm.transform.Sequential([tirx.transform.StmtSimplify(), tirx.transform.ConvertSSA()])
    tvm.ir.assert_structural_equal(simplify(tvm.IRModule({"main": func})), simplify(wanted))


WHOLE = """
    A: T.Buffer((T.int64(48),)), B: T.Buffer((T.int64(48),)), C: T.Buffer((T.int64(48),)), m: T.int64
    for i in range(T.int64(3)):
        for lane in T.vectorized(T.int64(16)):
            B[i * T.int64(16) + lane] = A[i * T.int64(16) + lane] + T.float32(3)
    for i in range(m):
        if i < T.int64(48):
            C[i] = B[T.min(i, T.int64(7))]
"""


def test_what_follows_from_ranges_and_conditions_is_not_checked() -> None:
    assert checked(WHOLE)[1] == Checks(proved=4, checked=0)


LONG = """
    A: T.Buffer((T.int64(40),)), B: T.Buffer((T.int64(48),))
    for i in range(T.int64(3)):
        for lane in T.vectorized(T.int64(16)):
            B[i * T.int64(16) + lane] = A[i * T.int64(16) + lane]
"""


LONG_CHECKED = """
    A: T.Buffer((T.int64(40),)), B: T.Buffer((T.int64(48),))
    for i in range(T.int64(3)):
        B[T.Ramp(i * T.int64(16), T.int64(1), 16)] = T.if_then_else(
            i * T.int64(16) >= T.int64(0) and i * T.int64(16) < T.int64(40)
            and (i * T.int64(16) + T.int64(15) >= T.int64(0) and i * T.int64(16) + T.int64(15) < T.int64(40)),
            A[T.Ramp(i * T.int64(16), T.int64(1), 16)],
            T.Broadcast(
                T.Cast("float32", T.call_extern("int32", "nnefc_check_failed", "k", "reads A", T.Select(
                    i * T.int64(16) >= T.int64(0) and i * T.int64(16) < T.int64(40),
                    i * T.int64(16) + T.int64(15),
                    i * T.int64(16),
                ), T.int64(40))),
                16,
            ),
        )
"""


def test_of_a_vector_the_first_and_the_last_lane_are_looked_at() -> None:
    func, counts = checked(LONG)
    assert counts == Checks(proved=1, checked=1)
    assert_same(func, LONG_CHECKED)


WRITTEN = """
    A: T.Buffer((T.int64(9),), "int32"), B: T.Buffer((T.int64(9),), "int32"), m: T.int64
    for i in range(T.int64(10)):
        B[i] = 7
"""


WRITTEN_CHECKED = """
    A: T.Buffer((T.int64(9),), "int32"), B: T.Buffer((T.int64(9),), "int32"), m: T.int64
    for i in range(T.int64(10)):
        if i >= T.int64(0) and i < T.int64(9):
            B[i] = 7
        else:
            T.call_extern("int32", "nnefc_check_failed", "k", "writes B", i, T.int64(9))
"""


def test_nothing_is_written_outside_a_tensor() -> None:
    assert_same(checked(WRITTEN)[0], WRITTEN_CHECKED)


def text_of(text: str) -> str:
    return " ".join(str(checked(text)[0].script()).split())


def test_divisors_that_may_be_zero_are_checked() -> None:
    text = """
    A: T.Buffer((9,), "int32"), B: T.Buffer((9,), "int32"), n: T.int32
    for i in range(9):
        if n > 2:
            B[i] = A[i] // n
        B[i] = B[i] % A[i]
"""
    func, counts = checked(text)
    assert counts == Checks(proved=6, checked=1)  # five accesses and n
    assert str(func.script()).count("divides by zero") == 1


def test_positions_that_data_tell_are_computed_once() -> None:
    text = """
    A: T.Buffer((9,)), P: T.Buffer((4,), "int32"), B: T.Buffer((4,))
    for i in T.vectorized(4):
        B[i] = A[P[i]]
"""
    func, counts = checked(text)
    assert counts == Checks(proved=2, checked=1)
    assert str(func.script()).count("P[") == 1


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_that_may_overflow_are_computed_in_a_wider_type(dtype: str) -> None:
    text = f"""
    A: T.Buffer((T.{dtype}(9),)), B: T.Buffer((T.{dtype}(9),)), n: T.{dtype}
    for i in range(T.{dtype}(9)):
        B[i] = A[n * n + i]
"""
    func, counts = checked(text)
    assert counts == Checks(proved=1, checked=1)
    wide = "int64" if dtype == "int32" else "float64"
    assert f'T.Cast("{wide}", n) * T.Cast("{wide}", n)' in str(func.script())


def test_views_that_begin_at_an_element_of_a_tensor_end_with_it() -> None:
    text = """
    A: T.Buffer((T.int64(64),)), B: T.Buffer((T.int64(8),)), n: T.int64
    p: T.let[T.handle("float32")] = T.address_of(A[n])
    P = T.decl_buffer((T.int64(1099511627776),), data=p)
    for i in range(T.int64(8)):
        B[i] = P[i]
"""
    assert '"reads P", n + i, T.int64(64)' in text_of(text) or '"reads P", i + n, T.int64(64)' in text_of(text)


def test_loops_that_may_not_end_ask_whether_something_has_failed() -> None:
    text = """
    A: T.Buffer((T.int64(9),), "int64"), B: T.Buffer((T.int64(9),), "int64")
    while A[0] > T.int64(0):
        A[0] = A[0] - T.int64(1)
    for i in range(A[1]):
        B[0] = i
"""
    assert text_of(text).count("nnefc_run_failed") == 2
