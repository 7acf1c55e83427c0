"""Vectors of booleans, which TVM cannot bound, where code for CPUs is made."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.targets.codegen.cpu.boolean_vectors import keep_boolean_vectors


def test_named_and_cast_vectors_of_booleans_choose_between_numbers() -> None:
    ramp = tirx.Ramp(tirx.IntImm("int64", 0), tirx.IntImm("int64", 1), 8)
    condition = tirx.EQ(ramp, tirx.Broadcast(tirx.IntImm("int64", 3), 8))
    named = tirx.Var("named", condition.expr_ty())
    twos = tirx.Broadcast(tirx.const(2.0, "float32"), 8)
    value = tirx.Select(named, named.astype("float32x8"), twos)
    store = tirx.BufferStore(tirx.decl_buffer((8,), "float32", "y"), value, [ramp])
    func = keep_boolean_vectors(tirx.PrimFunc([], tirx.SeqStmt([tirx.Bind(named, condition), store])))
    bound: list[tirx.Bind] = []
    casts: list[tirx.Cast] = []
    tvm_ffi.structural_walk(func, [(tirx.Bind, bound.append), (tirx.Cast, casts.append)])
    assert [str(stmt.value.expr_ty().dtype) for stmt in bound] == ["int8x8"]
    assert not casts
    assert "named !=" in str(func)
