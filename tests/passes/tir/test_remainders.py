"""Tiles along an axis of open size: whole ones inside, smaller ones for what is left."""

from functools import reduce

import numpy as np
import pytest
import tvm
import tvm_ffi
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.remainders import TiledAxis, tiled_axes, with_remainders, with_tiled_axis

CLAMPED = """
    A: T.Buffer((T.int64(99),)), C: T.Buffer((T.int64(99),)), e: T.int64, q: T.int64
    for i in range(q):
        c = T.alloc_local((T.int64(4),))
        for z in T.unroll(T.int64(4)):
            c[z] = T.float32(1)
        for r in T.unroll(T.int64(4)):
            c[r] = c[r] + A[T.min(i * T.int64(4) + r, e - T.int64(1))]
        for s in T.unroll(T.int64(4)):
            if i * T.int64(4) + s < e:
                C[i * T.int64(4) + s] = c[s]
"""


IN_TILES = """
    A: T.Buffer((T.int64(99),)), C: T.Buffer((T.int64(99),)), e: T.int64, q: T.int64
    for i in range(q):
        if i * T.int64(4) + T.int64(4) <= e:
            c = T.alloc_local((T.int64(4),))
            for z in T.unroll(T.int64(4)):
                c[z] = T.float32(1)
            for r in T.unroll(T.int64(4)):
                c[r] = c[r] + A[i * T.int64(4) + r]
            for s in T.unroll(T.int64(4)):
                C[i * T.int64(4) + s] = c[s]
        else:
            # three left: two, then one
            twos: T.let[T.int64] = (T.max(e - i * T.int64(4) - T.int64(1), T.int64(0)) + T.int64(1)) // T.int64(2)
            for n in range(twos):
                c = T.alloc_local((T.int64(4),))
                for z in T.unroll(T.int64(2)):
                    c[z] = T.float32(1)
                for r in T.unroll(T.int64(2)):
                    c[r] = c[r] + A[T.min(i * T.int64(4) + (n * T.int64(2) + r), e - T.int64(1))]
                for s in T.unroll(T.int64(2)):
                    if i * T.int64(4) + (n * T.int64(2) + s) < e:
                        C[i * T.int64(4) + (n * T.int64(2) + s)] = c[s]
            ones: T.let[T.int64] = T.max(e - i * T.int64(4) - twos * T.int64(2), T.int64(0))
            for n in range(ones):
                c = T.alloc_local((T.int64(4),))
                for z in T.unroll(T.int64(1)):
                    c[z] = T.float32(1)
                for r in T.unroll(T.int64(1)):
                    c[r] = c[r] + A[T.min(i * T.int64(4) + (twos * T.int64(2) + n + r), e - T.int64(1))]
                for s in T.unroll(T.int64(1)):
                    if i * T.int64(4) + (twos * T.int64(2) + n + s) < e:
                        C[i * T.int64(4) + (twos * T.int64(2) + n + s)] = c[s]
"""


def axis_of(func: tirx.PrimFunc, tile: int, *remainders: int, alone: bool = False) -> TiledAxis:
    """Of a function whose last parameters are the end and the number of tiles."""
    end, count = func.params[-2:]
    return TiledAxis(end, count, tile, remainders, alone)


def changed(func: tirx.PrimFunc, *axes: TiledAxis) -> tirx.PrimFunc:
    return tirx.PrimFunc(func.params, with_remainders(func.body, axes), func.ret_type, func.attrs)


def test_whole_tiles_say_nothing_of_the_end_and_smaller_ones_follow() -> None:
    tvm.ir.assert_structural_equal(changed(function(CLAMPED), axis_of(function(CLAMPED), 4, 2, 1)), function(IN_TILES))


def test_an_item_that_is_all_there_is_has_a_tile_of_its_own() -> None:
    clamped = function(CLAMPED)
    without, func = (changed(clamped, axis_of(clamped, 4, 2, alone=alone)) for alone in (False, True))
    (loop,), (other,) = ([node for node in loops_of(f) if node.loop_var.name == "i"] for f in (func, without))
    choice = loop.body.else_case
    assert str(choice.condition) == "e <= T.int64(1)"
    assert [int(inner.extent) for inner in loops_of(choice.then_case)] == [1, 1, 1]
    assert str(choice.else_case) == str(other.body.else_case)


def loops_of(node: tirx.PrimFunc | tirx.Stmt) -> list[tirx.For]:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(node, (tirx.For, found.append))
    return found


def test_without_smaller_tiles_nothing_changes() -> None:
    tvm.ir.assert_structural_equal(changed(function(CLAMPED), axis_of(function(CLAMPED), 4)), function(CLAMPED))


@pytest.mark.parametrize(("remainders", "alone"), [((2, 1), False), ((3, 1), False), ((1,), False), ((2,), True)])
def test_every_item_is_computed_and_none_beyond_the_end(remainders: tuple[int, ...], alone: bool) -> None:
    """Run as it is; smaller tiles that do not divide what is left compute the last item again."""
    func = changed(function(CLAMPED), axis_of(function(CLAMPED), 4, *remainders, alone=alone))
    run = tvm.compile(func, "llvm")["main"]
    x = np.arange(99, dtype=np.float32)
    for end in range(1, 14):
        y = tvm.runtime.tensor(np.zeros(99, np.float32))
        run(tvm.runtime.tensor(x), y, end, -(-end // 4))
        assert np.array_equal(y.numpy(), np.where(x < end, x + 1, 0))


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


def test_kernels_keep_their_tiled_axes() -> None:
    clamped = function(CLAMPED)
    axes = axis_of(clamped, 4, 2, 1), axis_of(clamped, 16), axis_of(clamped, 8, 4, alone=True)
    func = reduce(with_tiled_axis, axes, clamped)
    assert tiled_axes(func) == axes
    assert tiled_axes(function(CLAMPED)) == ()
