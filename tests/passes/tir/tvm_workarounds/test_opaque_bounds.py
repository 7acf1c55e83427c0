"""Conditions about the ends of tiled axes: hidden while a kernel's own tensors get their sizes, and shown again."""

from __future__ import annotations

import tvm
import tvm.script
import tvm_ffi
from tir_programs import function
from tvm import s_tir, tirx

from nnefc.passes.tir.common.peel_tail_tiles import TiledAxis, tile_axis
from nnefc.passes.tir.tvm_workarounds.opaque import opaque
from nnefc.passes.tir.tvm_workarounds.opaque_bounds import hide_bounds, show_bounds

ROWS = """
    A: T.Buffer((T.int64(9999),)), C: T.Buffer((T.int64(9999),)), e: T.int64, q: T.int64, n: T.int64
    for i in range(q):
        for r in T.unroll(T.int64(14)):
            if i * T.int64(14) + r < e:
                C[i * T.int64(14) + r] = A[i * T.int64(14) + r]
            if i * T.int64(14) + r < n:
                C[i * T.int64(14) + r] = A[r]
"""


def conditions(func: tirx.PrimFunc) -> list[type]:
    """Of what kind they are, in order."""
    found: list[type] = []
    tvm_ffi.structural_walk(func.body, (tirx.IfThenElse, lambda stmt: found.append(type(stmt.condition))))
    return found


def test_only_ends_of_tiled_axes_are_hidden_and_all_are_shown_again() -> None:
    unchanged = function(ROWS)
    _, _, end, count, _ = unchanged.params
    func = tile_axis(unchanged, TiledAxis(end, count, 14, (1,)))
    hidden = hide_bounds(func)
    assert conditions(func) == [tirx.LT, tirx.LT]
    assert [kind is tirx.LT for kind in conditions(hidden)] == [False, True]
    assert tvm_ffi.structural_equal(show_bounds(hidden), func)


def test_kernels_without_tiled_axes_stay_as_they_are() -> None:
    func = function(ROWS)
    assert hide_bounds(func).same_as(func)
    assert show_bounds(func).same_as(func)


TILE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((T.int64(9999),)), C: T.Buffer((T.int64(9999),)), e: T.int64):
    for i in range(T.int64(100)):
        with T.sblock("tile"):
            T.reads(A[T.int64(0):T.int64(9999)])
            T.writes(C[T.int64(0):T.int64(9999)])
            c = T.sblock_alloc_buffer((T.int64(9999),))
            for r in range(T.int64(14)):
                if i * T.int64(14) + r < e:
                    c[i * T.int64(14) + r] = A[i * T.int64(14) + r]
            for r in range(T.int64(14)):
                if i * T.int64(14) + r < e:
                    C[i * T.int64(14) + r] = c[i * T.int64(14) + r]
"""


def elements(func: tirx.PrimFunc) -> int:
    """The elements of the kernel's own tensor when TVM has given it its size."""
    module = s_tir.transform.ConvertBlocksToOpaque()(tvm.IRModule({"main": func}))
    found: list[tirx.Var] = []
    body = s_tir.transform.CompactBufferAllocation()(module)["main"].body
    tvm_ffi.structural_walk(body, (s_tir.SBlock, lambda block: found.extend(block.alloc_buffers)))
    return int(found[0].shape[0])


def test_tvm_gives_a_tile_more_than_its_elements_where_it_sees_the_bound() -> None:
    func = tvm.script.from_source(TILE, extra_vars={"T": tvm.script.tirx})
    assert elements(func) > 14, "TVM sees that a tile has 14 elements: opaque_bounds.py can go"

    def hidden(stmt: tirx.IfThenElse) -> tirx.IfThenElse:
        return tirx.IfThenElse(opaque(stmt.condition), stmt.then_case, stmt.else_case)

    assert elements(tvm_ffi.structural_map(func, (tirx.IfThenElse, hidden))) == 14
