"""Accesses of a vector some of whose lanes are beyond the end."""

import numpy as np
import pytest
import tvm
from tir_programs import function
from tvm import tirx

from nnefc.targets.codegen.cpu.masks import lower_masks


def vectorized(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """As the code generator does, before there are masks."""
    func = func.with_attr("target", tvm.target.Target("llvm"))
    return tirx.transform.VectorizeLoop(True)(tvm.IRModule({"main": func}))["main"].without_attr("target")


def masked(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return lower_masks(vectorized(func))


DENSE = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    with T.attr(T.int64(0), "nnefc.mask", left):
        for lane in T.vectorized(4):
            Y[7 + lane] = X[5 + lane]
"""


DENSE_MASKED = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    T.call_llvm_intrin(
        "void",
        "llvm.masked.store",
        T.call_llvm_intrin(
            "float32x4",
            "llvm.masked.load",
            T.address_of(X[5]),
            T.Ramp(0, 1, 4)
            < T.Broadcast(T.call_llvm_intrin("int32", "llvm.smin.i32", 2147483647, T.Cast("int32", left)), 4),
            T.Broadcast(T.float32(0), 4),
        ),
        T.address_of(Y[7]),
        T.Ramp(0, 1, 4) < T.Broadcast(T.Cast("int32", left), 4),
    )
"""


def test_dense_vectors_are_read_and_written_by_masked_instructions() -> None:
    tvm.ir.assert_structural_equal(masked(function(DENSE)), function(DENSE_MASKED))


ONE_VALUE = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    with T.attr(T.int64(0), "nnefc.mask", left):
        for lane in T.vectorized(4):
            Y[lane] = X[3]
"""


ONE_VALUE_MASKED = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    T.call_llvm_intrin(
        "void",
        "llvm.masked.store",
        T.Broadcast(X[3], 4),
        T.address_of(Y[0]),
        T.Ramp(0, 1, 4) < T.Broadcast(T.Cast("int32", left), 4),
    )
"""


def test_what_is_the_same_for_all_lanes_is_read_as_it_was() -> None:
    tvm.ir.assert_structural_equal(masked(function(ONE_VALUE)), function(ONE_VALUE_MASKED))


STRIDED = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    with T.attr(T.int64(0), "nnefc.mask", left):
        for lane in T.vectorized(4):
            Y[lane] = X[9 + lane * 5]
"""


STRIDED_MASKED = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    T.call_llvm_intrin(
        "void",
        "llvm.masked.store",
        X[
            T.Select(
                T.Ramp(0, 1, 4)
                < T.Broadcast(T.call_llvm_intrin("int32", "llvm.smin.i32", 2147483647, T.Cast("int32", left)), 4),
                T.Ramp(9, 5, 4),
                T.Broadcast(9, 4),
            )
        ],
        T.address_of(Y[0]),
        T.Ramp(0, 1, 4) < T.Broadcast(T.Cast("int32", left), 4),
    )
"""


def test_lanes_beyond_the_end_read_apart_what_the_first_one_reads() -> None:
    tvm.ir.assert_structural_equal(masked(function(STRIDED)), function(STRIDED_MASKED))


REGISTERS = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    m = T.alloc_local((4,))
    with T.attr(T.int64(0), "nnefc.mask", left):
        for lane in T.vectorized(4):
            m[lane] = m[lane] + X[lane]
    for lane in T.vectorized(4):
        Y[lane] = m[lane]
"""


REGISTERS_MASKED = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    m = T.alloc_local((4,))
    m[0:4] = T.Select(
        T.Ramp(0, 1, 4) < T.Broadcast(T.Cast("int32", left), 4),
        m[T.Ramp(0, 1, 4)]
        + T.call_llvm_intrin(
            "float32x4",
            "llvm.masked.load",
            T.address_of(X[0]),
            T.Ramp(0, 1, 4)
            < T.Broadcast(T.call_llvm_intrin("int32", "llvm.smin.i32", 2147483647, T.Cast("int32", left)), 4),
            T.Broadcast(T.float32(0), 4),
        ),
        m[T.Ramp(0, 1, 4)],
    )
    Y[0:4] = m[T.Ramp(0, 1, 4)]
"""


def test_registers_are_written_as_a_whole_and_keep_what_they_held_beyond_the_end() -> None:
    tvm.ir.assert_structural_equal(masked(function(REGISTERS)), function(REGISTERS_MASKED))


def test_what_is_selected_by_lanes_reads_these_alone_when_it_is_simplified() -> None:
    module = tvm.IRModule({"main": masked(function(REGISTERS))})
    text = tirx.transform.StmtSimplify()(module)["main"].script()
    assert "llvm.masked.load" in text
    assert "T.Broadcast(T.bool(True), 4)" not in text


STILL_A_LOOP = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    with T.attr(T.int64(0), "nnefc.mask", left):
        for lane in range(4):
            Y[lane] = X[lane]
"""


STILL_A_LOOP_MASKED = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    for lane in range(4):
        if lane < T.Cast("int32", left):
            Y[lane] = X[lane]
"""


def test_a_loop_that_became_no_vector_leaves_out_its_last_iterations() -> None:
    tvm.ir.assert_structural_equal(lower_masks(function(STILL_A_LOOP)), function(STILL_A_LOOP_MASKED))


NOT_MASKED = """
    X: T.Buffer((99,)), Y: T.Buffer((99,)), left: T.int64
    for lane in T.vectorized(4):
        Y[7 + lane] = X[5 + lane]
"""


def test_vectors_without_a_mask_are_left_alone() -> None:
    func = vectorized(function(NOT_MASKED))
    assert lower_masks(func).same_as(func)


@pytest.mark.parametrize(
    ("text", "positions", "values"),
    [
        (DENSE, slice(7, 11), slice(5, 9)),
        (ONE_VALUE, slice(4), [3, 3, 3, 3]),
        (STRIDED, slice(4), slice(9, 29, 5)),
        (STILL_A_LOOP, slice(4), slice(4)),
    ],
    ids=["dense", "one value", "strided", "a loop"],
)
def test_lanes_up_to_the_end_are_computed_and_no_others_are_written(
    text: str, positions: slice, values: slice | list[int]
) -> None:
    run = tvm.compile(masked(function(text)), "llvm")["main"]
    x, y = np.arange(1, 100, dtype=np.float32), np.zeros(99, np.float32)
    for left in range(5):
        found, expected = tvm.runtime.tensor(y), y.copy()
        run(tvm.runtime.tensor(x), found, left)
        expected[positions][:left] = x[values][:left]
        assert np.array_equal(found.numpy(), expected)
