"""Minima and maxima of 0 and what is never negative."""

from __future__ import annotations

import pytest
import tvm
import tvm.script
import tvm_ffi
from tir_programs import function
from tvm import s_tir, tirx

from nnefc.passes.tir.common.signs import decide_signs

INDICES = {
    "T.max(T.int64(0), i % (n * h) // h)": "i % (n * h) // h",
    "T.min(i // (n * h) * T.int64(2), T.int64(0))": "0",
    "T.max(T.int64(0), T.max(j, i) + n)": "T.max(j, i) + n",
    "T.max(T.int64(0), i - h)": "T.max(0, i - h)",
    "T.max(T.int64(0), j)": "T.max(0, j)",  # from -3 on
    "T.min(i + k, T.int64(0))": "T.min(i + k, 0)",  # of an element, which may be negative
}


@pytest.mark.parametrize("index", INDICES)
def test_what_is_never_negative_decides_them(index: str) -> None:
    func = function(f"""
        A: T.Buffer((T.int64(999),)), K: T.Buffer((T.int64(9),), "int64"), n: T.int64, h: T.int64
        for i in range(n * h * T.int64(15)):
            for j in range(T.int64(-3), T.int64(5)):
                k: T.let[T.int64] = K[T.int64(0)]
                A[{index}] = T.float32(k)
    """)
    found: list[tirx.Expr] = []
    tvm_ffi.structural_walk(decide_signs(func).body, (tirx.BufferStore, lambda stmt: found.append(stmt.indices[0])))
    assert str(found[0]).replace("T.int64(0)", "0") == INDICES[index]


TILE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((T.int64(9999),)), C: T.Buffer((T.int64(9999),)), n: T.int64, h: T.int64):
    for i in range(n * h * T.int64(15)):
        with T.sblock("tile"):
            T.reads(A[T.int64(0):T.int64(9999)])
            T.writes(C[T.int64(0):T.int64(9999)])
            c = T.sblock_alloc_buffer((n, T.int64(6)))
            for r in range(T.int64(6)):
                c[i % (n * h) // h, r] = A[i * T.int64(6) + r]
            for r in range(T.int64(6)):
                C[i * T.int64(6) + r] = c[i % (n * h) // h, r]
"""


def rows(func: tirx.PrimFunc) -> set[str]:
    """The first indices of the kernel's local tensor, simplified."""
    module = s_tir.transform.StmtSimplify()(tvm.IRModule({"main": func}))
    found: set[str] = set()

    def note(stmt: tirx.BufferStore) -> None:
        if len(stmt.indices) == 2:
            found.add(str(stmt.indices[0]))

    tvm_ffi.structural_walk(module["main"].body, (tirx.BufferStore, note))
    return found


def test_rows_of_a_local_tensor_are_constants_behind_quotients_by_products_of_sizes() -> None:
    """TVM leaves the smaller of such a quotient and 0 where a tile has one row."""
    func = tvm.script.from_source(TILE, extra_vars={"T": tvm.script.tirx})
    module = s_tir.transform.ConvertBlocksToOpaque()(tvm.IRModule({"main": func}))
    compact = s_tir.transform.CompactBufferAllocation()(module)["main"]
    (left,) = rows(compact)
    assert left.startswith("T.min(")
    assert rows(decide_signs(compact)) == {"T.int64(0)"}
