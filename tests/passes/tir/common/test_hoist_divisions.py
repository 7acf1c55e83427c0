"""Quotients by dynamic sizes, of what is never negative."""

import pytest
import tvm
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.common.hoist_divisions import hoist_divisions

OPEN = """
    A: T.Buffer((T.int64(999),)), C: T.Buffer((T.int64(999),)), h: T.int64, w: T.int64
    for y in range(h):
        C[y] = A[y // w + T.max(y % w, T.int64(0))]
"""

BOUND = """
    A: T.Buffer((T.int64(999),)), C: T.Buffer((T.int64(999),)), h: T.int64, w: T.int64
    for y in range(h):
        i: T.let[T.int64] = T.Div(y, T.max(w, T.int64(1)))
        i_1: T.let[T.int64] = T.truncmod(y, T.max(w, T.int64(1)))
        C[y] = A[i + i_1]
"""

NAMED = """
    A: T.Buffer((T.int64(999),)), C: T.Buffer((T.int64(999),)), h: T.int64, w: T.int64
    for both in range(h):
        y: T.let[T.int64] = T.call_llvm_intrin("int64", "llvm.smin.i64", T.int64(9223372036854775807), T.Div(both, w))
        C[y] = A[T.max(y, T.int64(0))]
"""

NAMED_BOUND = NAMED.replace("T.max(y, T.int64(0))", "y")

OF_DATA = """
    A: T.Buffer((T.int64(999),)), B: T.Buffer((T.int64(9),), "int64"), C: T.Buffer((T.int64(999),)), h: T.int64
    for y in range(h):
        v: T.let[T.int64] = B[y]
        C[y] = A[T.max(v, T.int64(0))] + A[T.max(v // h, T.int64(0))]
"""

BELOW_ZERO = """
    A: T.Buffer((T.int64(999),)), C: T.Buffer((T.int64(999),)), h: T.int64, w: T.int64
    for y in range(h):
        v: T.let[T.int64] = y - T.int64(2)
        C[y] = A[T.max(v, T.int64(0))] + A[T.max(v // w, T.int64(0))]
"""


def changed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return tirx.PrimFunc(func.params, hoist_divisions(func.body), func.ret_type, func.attrs)


def test_quotients_of_loop_variables_are_computed_once() -> None:
    tvm.ir.assert_structural_equal(changed(function(OPEN)), function(BOUND))


def test_variables_that_are_named_once_are_as_what_they_stand_for() -> None:
    tvm.ir.assert_structural_equal(changed(function(NAMED)), function(NAMED_BOUND))


@pytest.mark.parametrize("source", [OF_DATA, BELOW_ZERO])
def test_what_may_be_negative_keeps_its_limit_and_its_division(source: str) -> None:
    tvm.ir.assert_structural_equal(changed(function(source)), function(source))
