"""Initializes reductions before their loops where dynamic dimensions may leave nothing to reduce.

for k in s: if k == 0: C = 0; C += A[k]     →     C = 0; for k in s: C += A[k]              with s of 0 or more
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from nnefc.passes.tir.common.expressions import variables_of
from nnefc.symbolic.dims import bounds, dimension, is_known

__all__ = ["write_first_values"]


def write_first_values(sch: s_tir.Schedule) -> None:
    """Initializes the reductions of a complete schedule whose loops may have a trip count of 0."""
    found: list[tuple[str, list[tirx.Expr]]] = []

    def note(realize: s_tir.SBlockRealize) -> None:
        if realize.block.init is None:
            return
        positions = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        reduced = [
            (dimension(axis.dom.extent), value) for axis, value in positions if axis.iter_type == axis.CommReduce
        ]
        if any(not is_known(size) and bounds(size)[0] < 1 for size, _ in reduced):
            found.append((realize.block.name_hint, [value for _, value in reduced]))

    tvm_ffi.structural_walk(sch.mod["main"].body, (s_tir.SBlockRealize, note))
    for name, values in found:
        block, along = sch.get_sblock(name), variables_of(values)
        loops = [loop for loop in sch.get_loops(block) if sch.get(loop).loop_var in along]
        shared = any(sch.get(loop).thread_binding is not None for loop in loops)  # each thread begins its own sum
        if loops and not shared:
            sch.decompose_reduction(block, loops[0])
