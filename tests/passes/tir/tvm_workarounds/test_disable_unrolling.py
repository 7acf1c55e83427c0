"""Loops of which LLVM is to make no copies: which these are."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tir_programs import function
from tvm import tirx

from nnefc.ir.attributes import DYNAMIC_SHAPES, TAIL_TILE
from nnefc.passes.tir.tvm_workarounds.disable_unrolling import MARK, MARK_TEXT, disable_unrolling

LOOPS = f"""
    A: T.Buffer((T.int64(9999),)), C: T.Buffer((T.int64(9999),)), n: T.int64
    for tile in range(n):
        for tap in range(T.int64(3)):
            for r in T.unroll(T.int64(4)):
                C[tile * T.int64(4) + r] = A[tile * T.int64(4) + r + tap]
        for long in range(T.int64(16)):
            for r in T.unroll(T.int64(4)):
                C[tile * T.int64(4) + r] = A[tile * T.int64(4) + r + long]
        for rest in T.serial(n, annotations={{"{TAIL_TILE}": True}}):
            for small in range(T.int64(3)):
                for r in T.unroll(T.int64(2)):
                    C[tile * T.int64(4) + r] = A[tile * T.int64(4) + r + small]
    for border in range(n):
        C[T.Ramp(border * T.int64(4), T.int64(1), 4)] = T.Broadcast(T.float32(0), 4)
    for vector in range(n):
        for lane in T.vectorized(T.int64(4)):
            C[vector * T.int64(4) + lane] = A[vector * T.int64(4) + lane]
    for scalar in range(n):
        C[scalar] = A[scalar] + A[scalar + T.int64(1)]
"""


def rolled(func: tirx.PrimFunc) -> set[str]:
    """The loops with a call of their own in each iteration."""
    loops: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, loops.append))
    bodies = {loop.loop_var.name: loop.body for loop in loops}
    return {
        name
        for name, body in bodies.items()
        if isinstance(body, tirx.SeqStmt) and isinstance(body.seq[0], tirx.Evaluate)
    }


def test_loops_of_smaller_tiles_and_borders_have_no_copies() -> None:
    func = function(LOOPS).with_attr(DYNAMIC_SHAPES, True)
    assert rolled(disable_unrolling(func)) == {"small", "border"}


def test_kernels_of_known_sizes_stay_as_they_are() -> None:
    assert disable_unrolling(function(LOOPS)).same_as(function(LOOPS))


def additions(func: tirx.PrimFunc) -> int:
    """The additions of floats in the code that LLVM makes of a kernel."""
    return str(tvm.compile(tvm.IRModule({"main": func}), target="llvm").mod.inspect_source("ll")).count("fadd")


def test_llvm_unrolls_loops_of_known_trip_counts_but_not_these() -> None:
    head = "A: T.Buffer((64,)), C: T.Buffer((64,))\n    for rest in T.serial(T.int64(16)):\n        "
    add = "C[rest * T.int64(3)] = C[rest * T.int64(3)] + A[rest]"
    assert additions(function(head + add)) > 1, "LLVM unrolls no such loop: disable_unrolling.py can go"
    marked = function(f'{head}T.call_extern("void", "{MARK}")\n        {add}')
    body = tirx.AttrStmt("default", "pragma_import_llvm", MARK_TEXT, marked.body)
    assert additions(tirx.PrimFunc(marked.params, body, marked.ret_type, marked.attrs)) == 1
