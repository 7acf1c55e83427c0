"""Loops of which LLVM is to make no copies: which these are."""

from __future__ import annotations

import tvm
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.tvm_workarounds.disable_unrolling import MARK, MARK_TEXT


def additions(func: tirx.PrimFunc) -> int:
    """The additions of floats in the code that LLVM makes of a kernel."""
    return str(tvm.compile(tvm.IRModule({"main": func}), target="llvm").mod.inspect_source("ll")).count("fadd")


def test_llvm_unrolls_loops_of_known_trip_counts_but_not_these() -> None:
    head = "A: T.Buffer((64,)), C: T.Buffer((64,))\n    for remainder in T.serial(T.int64(16)):\n        "
    add = "C[remainder * T.int64(3)] = C[remainder * T.int64(3)] + A[remainder]"
    assert additions(function(head + add)) > 1, "LLVM unrolls no such loop: disable_unrolling.py can go"
    marked = function(f'{head}T.call_extern("void", "{MARK}")\n        {add}')
    body = tirx.AttrStmt("default", "pragma_import_llvm", MARK_TEXT, marked.body)
    assert additions(tirx.PrimFunc(marked.params, body, marked.ret_type, marked.attrs)) == 1
