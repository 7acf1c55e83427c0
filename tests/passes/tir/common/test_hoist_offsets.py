"""Where unrolled loops begin in their tensors: computed once."""

import tvm
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.common.hoist_offsets import hoist_offsets

OPEN = """
    A: T.Buffer((T.int64(999),)), C: T.Buffer((T.int64(999),)), h: T.int64, w: T.int64
    for y in range(h):
        for r in T.unroll(T.int64(4)):
            for lane in T.vectorized(T.int64(8)):
                C[y * w + r * T.int64(8) + lane] = A[y * w + r * (w * T.int64(2)) + lane] + A[y] + A[r]
"""

BOUND = """
    A: T.Buffer((T.int64(999),)), C: T.Buffer((T.int64(999),)), h: T.int64, w: T.int64
    for y in range(h):
        a: T.let[T.int64] = T.call_llvm_intrin("int64", "llvm.smin.i64", T.int64(9223372036854775807), y * w)
        b: T.let[T.int64] = T.call_llvm_intrin("int64", "llvm.smin.i64", T.int64(9223372036854775807), w * T.int64(2))
        for r in T.unroll(T.int64(4)):
            for lane in T.vectorized(T.int64(8)):
                C[a + lane + r * T.int64(8)] = A[a + lane + r * b] + A[y] + A[r]
"""

COMPARED = """
    A: T.Buffer((T.int64(999),)), C: T.Buffer((T.int64(999),)), h: T.int64, w: T.int64
    for y in range(h):
        for r in T.unroll(T.int64(4)):
            if y * w + r < w * T.int64(2):
                C[r] = A[r]
"""

COMPARED_BOUND = """
    A: T.Buffer((T.int64(999),)), C: T.Buffer((T.int64(999),)), h: T.int64, w: T.int64
    for y in range(h):
        a: T.let[T.int64] = T.call_llvm_intrin("int64", "llvm.smin.i64", T.int64(9223372036854775807), y * w)
        b: T.let[T.int64] = T.call_llvm_intrin("int64", "llvm.smin.i64", T.int64(9223372036854775807), w * T.int64(2))
        for r in T.unroll(T.int64(4)):
            if a + r < b:
                C[r] = A[r]
"""

DIVIDED = """
    A: T.Buffer((T.int64(999),)), C: T.Buffer((T.int64(999),)), h: T.int64, w: T.int64
    for y in range(h):
        for r in T.unroll(T.int64(4)):
            if w > T.int64(0):
                C[y * T.int64(4) // w + r] = A[r]
"""


def changed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return tirx.PrimFunc(func.params, hoist_offsets(func.body), func.ret_type, func.attrs)


def test_products_of_dynamic_sizes_are_computed_before_the_loop() -> None:
    tvm.ir.assert_structural_equal(changed(function(OPEN)), function(BOUND))


def test_products_in_comparisons_too() -> None:
    tvm.ir.assert_structural_equal(changed(function(COMPARED)), function(COMPARED_BOUND))


def test_what_might_divide_by_zero_stays_behind_its_condition() -> None:
    tvm.ir.assert_structural_equal(changed(function(DIVIDED)), function(DIVIDED))
