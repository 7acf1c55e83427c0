"""Loads of every second element are two contiguous ones, and read nothing beyond the last of these."""

from __future__ import annotations

import pytest
import tvm
import tvm_ffi
from tir_programs import function
from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.targets.codegen.cpu.strided_loads import shuffle_strided_loads


def loaded(index: str) -> tirx.Expr:
    """Returns what is stored by a loop over eight lanes that loads elements at an index."""
    made = function(f"""
    X: T.Buffer((99,)), Y: T.Buffer((99,)), n: T.int32
    for lane in T.vectorized(8):
        Y[lane] = X[{index}]
    """).with_attr("target", tvm.target.Target("llvm"))
    made = shuffle_strided_loads(tirx.transform.VectorizeLoop(True)(tvm.IRModule({"main": made}))["main"])
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(made.body, (tirx.BufferStore, stores.append))
    return stores[0].value


def test_every_second_element_comes_from_two_vectors() -> None:
    value = loaded("2 * lane + n")
    assert isinstance(value, tirx.Shuffle)
    elements = []  # positions behind `n`, in the order of the shuffle's operands
    for vector in value.vectors:
        first = tvm.sym.Analyzer().simplify(vector.indices[0].base - vector_start(value))
        elements += [int(first) + lane for lane in range(8)]
    assert [elements[int(lane)] for lane in value.indices] == list(range(0, 16, 2))
    assert max(elements) == 14


def vector_start(value: tirx.Shuffle) -> tirx.Expr:
    return value.vectors[0].indices[0].base


@pytest.mark.parametrize("index", ["lane + n", "3 * lane + n", "n"])
def test_others_stay(index: str) -> None:
    value = loaded(index)
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(value, (TensorLoad, loads.append))
    assert len(loads) == 1 and not isinstance(value, tirx.Shuffle)
