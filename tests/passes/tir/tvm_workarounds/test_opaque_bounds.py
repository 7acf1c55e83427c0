"""Conditions about the ends of tiled axes: hidden while a kernel's own tensors get their sizes, and shown again."""

from __future__ import annotations

import tvm_ffi
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.remainders import TiledAxis, with_tiled_axis
from nnefc.passes.tir.tvm_workarounds.opaque_bounds import with_ends_shown, without_ends

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
    plain = function(ROWS)
    _, _, end, count, _ = plain.params
    func = with_tiled_axis(plain, TiledAxis(end, count, 14, (1,)))
    hidden = without_ends(func)
    assert conditions(func) == [tirx.LT, tirx.LT]
    assert [kind is tirx.LT for kind in conditions(hidden)] == [False, True]
    assert tvm_ffi.structural_equal(with_ends_shown(hidden), func)


def test_kernels_without_tiled_axes_stay_as_they_are() -> None:
    func = function(ROWS)
    assert without_ends(func).same_as(func)
    assert with_ends_shown(func).same_as(func)
