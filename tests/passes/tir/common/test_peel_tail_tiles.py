"""Tiles along an axis of dynamic size: whole ones inside, smaller ones for what is left."""

from functools import reduce

import numpy as np
import pytest
import tvm
import tvm_ffi
from tir_programs import function
from tvm import tirx

from nnefc.ir.attributes import TAIL_TILE
from nnefc.passes.tir.common.peel_tail_tiles import TiledAxis, peel_tails, tile_axis, tiled_axes

TO_THE_END = """
    A: T.Buffer((T.int64(99),)), C: T.Buffer((T.int64(99),)), e: T.int64, q: T.int64
    for i in range(q):
        c = T.alloc_local((T.int64(4),))
        for z in T.unroll(T.int64(4)):
            c[z] = T.float32(1)
        for r in T.unroll(T.int64(4)):
            c[r] = c[r] + A[i * T.int64(4) + r]
        for s in T.unroll(T.int64(4)):
            if i * T.int64(4) + s < e:
                C[i * T.int64(4) + s] = c[s]
"""


NAMED = f'T.call_llvm_intrin("int64", "llvm.smin.i64", T.int64({(1 << 63) - 1}), '
"""A value that TVM is not to write wherever it is used."""

IN_TILES = """
    A: T.Buffer((T.int64(99),)), C: T.Buffer((T.int64(99),)), e: T.int64, q: T.int64
    for i in range(q):
        if T.int64(4) <= e and e - i * T.int64(4) > T.int64(2):
            # three left: the last one before them is computed again
            four: T.let[T.int64] = NAMED(T.min(T.int64(0), e - T.int64(4) - i * T.int64(4)))
            c = T.alloc_local((T.int64(4),))
            for z in T.unroll(T.int64(4)):
                c[z] = T.float32(1)
            for r in T.unroll(T.int64(4)):
                c[r] = c[r] + A[i * T.int64(4) + (four + r)]
            for s in T.unroll(T.int64(4)):
                C[i * T.int64(4) + (four + s)] = c[s]
        else:
            twos: T.let[T.int64] = NAMED(T.Select(
                e >= T.int64(2),
                (T.max(e - i * T.int64(4) - T.int64(1), T.int64(0)) + T.int64(1)) // T.int64(2),
                T.int64(0),
            ))
            for n in T.serial(twos, annotations=SMALLER):
                two: T.let[T.int64] = NAMED(T.min(n * T.int64(2), e - T.int64(2) - i * T.int64(4)))
                c = T.alloc_local((T.int64(4),))
                for z in T.unroll(T.int64(2)):
                    c[z] = T.float32(1)
                for r in T.unroll(T.int64(2)):
                    c[r] = c[r] + A[i * T.int64(4) + (two + r)]
                for s in T.unroll(T.int64(2)):
                    C[i * T.int64(4) + (two + s)] = c[s]
            ones: T.let[T.int64] = NAMED(T.max(e - i * T.int64(4) - twos * T.int64(2), T.int64(0)))
            for n in T.serial(ones, annotations=SMALLER):
                c = T.alloc_local((T.int64(4),))
                for z in T.unroll(T.int64(1)):
                    c[z] = T.float32(1)
                for r in T.unroll(T.int64(1)):
                    c[r] = c[r] + A[i * T.int64(4) + (twos * T.int64(2) + n + r)]
                for s in T.unroll(T.int64(1)):
                    C[i * T.int64(4) + (twos * T.int64(2) + n + s)] = c[s]
"""


def axis_of(func: tirx.PrimFunc, tile: int, *remainders: int) -> TiledAxis:
    """Of a function whose last parameters are the end and the number of tiles."""
    end, count = func.params[-2:]
    return TiledAxis(end, count, tile, remainders)


def changed(func: tirx.PrimFunc, *axes: TiledAxis, once: bool = False) -> tirx.PrimFunc:
    return tirx.PrimFunc(func.params, peel_tails(func.body, axes, once), func.ret_type, func.attrs)


def test_tiles_say_nothing_of_the_end_and_smaller_ones_follow() -> None:
    func = function(TO_THE_END)
    text = IN_TILES.replace("NAMED(", NAMED).replace("=SMALLER", f'={{"{TAIL_TILE}": True}}')
    tvm.ir.assert_structural_equal(changed(func, axis_of(func, 4, 2, 1)), function(text))


def test_without_smaller_tiles_nothing_changes() -> None:
    func = function(TO_THE_END)
    tvm.ir.assert_structural_equal(changed(func, axis_of(func, 4)), func)


@pytest.mark.parametrize("remainders", [(2, 1), (3, 1), (3, 2, 1), (1,)])
def test_every_element_is_computed_and_none_beyond_the_end(remainders: tuple[int, ...]) -> None:
    """Run as it is; tiles that would reach beyond the end compute some elements again."""
    func = changed(function(TO_THE_END), axis_of(function(TO_THE_END), 4, *remainders))
    run = tvm.compile(func, "llvm")["main"]
    x = np.arange(99, dtype=np.float32)
    for end in range(1, 14):
        y = tvm.runtime.tensor(np.zeros(99, np.float32))
        run(tvm.runtime.tensor(x), y, end, -(-end // 4))
        assert np.array_equal(y.numpy(), np.where(x < end, x + 1, 0))


@pytest.mark.parametrize("remainders", [(2, 1), (3, 1), (3, 2, 1), (1,)])
def test_what_is_written_over_an_operand_is_written_once(remainders: tuple[int, ...]) -> None:
    func = function(TO_THE_END.replace("= c[s]", "= C[i * T.int64(4) + s] + c[s]"))
    run = tvm.compile(changed(func, axis_of(func, 4, *remainders), once=True), "llvm")["main"]
    x = np.arange(99, dtype=np.float32)
    for end in range(1, 14):
        y = tvm.runtime.tensor(np.ones(99, np.float32))
        run(tvm.runtime.tensor(x), y, end, -(-end // 4))
        assert np.array_equal(y.numpy(), np.where(x < end, x + 2, 1))


UNDER_A_CONDITION = """
    C: T.Buffer((T.int64(99),)), e: T.int64, q: T.int64
    for i in range(q):
        for lane in T.vectorized(T.int64(8)):
            if i < e:
                C[i * T.int64(8) + lane] = T.float32(0)
"""


CONDITION_OUTSIDE = """
    C: T.Buffer((T.int64(99),)), e: T.int64, q: T.int64
    for i in range(q):
        if i < e:
            for lane in T.vectorized(T.int64(8)):
                C[i * T.int64(8) + lane] = T.float32(0)
"""


def test_a_condition_that_is_the_same_for_all_lanes_is_outside_of_the_vector() -> None:
    tvm.ir.assert_structural_equal(
        changed(function(UNDER_A_CONDITION), axis_of(function(UNDER_A_CONDITION), 1)), function(CONDITION_OUTSIDE)
    )


def test_a_vector_of_one_element_is_none() -> None:
    func = function(TO_THE_END.replace("for s in T.unroll", "for s in T.vectorized"))
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(changed(func, axis_of(func, 4, 2, 1)).body, (tirx.For, found.append))
    vectors = [int(loop.extent) for loop in found if loop.kind == tirx.ForKind.VECTORIZED]
    assert sorted(vectors) == [2, 4]


def test_kernels_keep_their_tiled_axes() -> None:
    whole = function(TO_THE_END)
    axes = axis_of(whole, 4, 2, 1), axis_of(whole, 16), axis_of(whole, 8, 4, 1)
    func = reduce(tile_axis, axes, whole)
    assert tiled_axes(func) == axes
    assert tiled_axes(function(TO_THE_END)) == ()
