"""Two shifted remainders in one access, whose loops are fused: TVM drops the second shift unless it is hidden."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir.expr import TensorLoad
from tvm.sym import Analyzer

from nnefc.passes.tir.common.expressions import int64, substituted, variables_of
from nnefc.passes.tir.tvm_workarounds.shifted_remainders import split_shifted_modulo

_FLATTEN = (s_tir.transform.ConvertBlocksToOpaque(), s_tir.transform.LowerOpaqueBlock(), tirx.transform.FlattenBuffer())


def read(is_safe: bool) -> list[int]:
    """The elements that a kernel reads, which rolls 6 rows by 2 and 9 columns by 4."""
    x = te.placeholder((6, 9), "float32", "x")
    y = te.compute((6, 9), lambda i, j: x[(i + 2) % 6, (j + 4) % 9], "y")
    schedule = s_tir.Schedule(te.create_prim_func([x, y], "int64"))
    schedule.fuse(*schedule.get_loops(schedule.get_sblock("y")))
    func = schedule.mod["main"]
    module = tvm.IRModule({"main": split_shifted_modulo(func) if is_safe else func})
    for step in _FLATTEN:
        module = step(module)
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(module["main"].body, (TensorLoad, found.append))
    index, analyzer = found[0].indices[0], Analyzer()
    (var,) = variables_of([index])
    return [int(analyzer.simplify(substituted(index, {var: int64(k)}))) for k in range(54)]


ROLLED = [(k // 9 + 2) % 6 * 9 + (k % 9 + 4) % 9 for k in range(54)]


def test_elements_are_those_of_both_shifts() -> None:
    assert read(is_safe=True) == ROLLED


def test_tvm_drops_the_second_shift() -> None:
    assert read(is_safe=False) != ROLLED, "TVM does it right: shifted_remainders.py can go"
