"""Tiles along one axis, distributed among threads."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.common.parallelize_tiles import parallelize_tiles
from nnefc.passes.tir.common.peel_tail_tiles import TiledAxis

AROUND = """
    C: T.Buffer((T.int64(9999),)), n: T.int64, e: T.int64, q: T.int64
    for o in T.parallel(n):
        for i in range(q):
            C[o * q + i] = C[o * q + i] + T.float32(1)
"""

ALONE = """
    C: T.Buffer((T.int64(9999),)), e: T.int64, q: T.int64
    for i in range(q):
        C[i] = C[i] + T.float32(1)
"""


def changed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    axis = TiledAxis(*func.params[-2:], 4, (2, 1))
    return tirx.PrimFunc(func.params, parallelize_tiles(func.body, [axis]), func.ret_type, func.attrs)


def parallel(func: tirx.PrimFunc) -> list[tirx.For]:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(func, (tirx.For, found.append))
    return [loop for loop in found if loop.kind == tirx.ForKind.PARALLEL]


@pytest.mark.parametrize("trip_count", [0, 1, 3, 70])
def test_each_tile_is_computed_once(trip_count: int) -> None:
    run = tvm.compile(changed(function(AROUND)), "llvm")["main"]
    for tiles in (0, 1, 7, 64, 100):
        made = tvm.runtime.tensor(np.zeros(9999, np.float32))
        run(made, trip_count, 4 * tiles, tiles)
        assert np.array_equal(made.numpy(), np.arange(9999) < trip_count * tiles)


def test_parts_of_images_come_in_groups_that_a_cache_holds() -> None:
    several = AROUND.replace(
        "T.parallel(n)", 'T.parallel(n * T.int64(70), annotations={"nnefc.grouped_lines": [70, 4]})'
    )
    func = changed(function(several))
    (loop,) = parallel(func)
    assert not loop.annotations
    run = tvm.compile(func, "llvm")["main"]
    for tiles in (0, 1, 7, 13):
        made = tvm.runtime.tensor(np.zeros(9999, np.float32))
        run(made, 2, 4 * tiles, tiles)
        assert np.array_equal(made.numpy(), np.arange(9999) < 140 * tiles)


def test_tiles_that_nothing_is_around_are_parallel_themselves() -> None:
    (loop,) = parallel(changed(function(ALONE)))
    assert loop.extent.same_as(function(ALONE).params[-1])


def test_loops_with_enough_iterations_stay_as_they_are() -> None:
    many = function(AROUND.replace("T.parallel(n)", "T.parallel(T.int64(64))"))
    tvm.ir.assert_structural_equal(changed(many), many)
