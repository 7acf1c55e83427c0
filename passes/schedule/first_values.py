"""Write the first values of reductions before their loops where open sizes may leave nothing to reduce.

for k in s: if k == 0: C = 0; C += A[k]     →     C = 0; for k in s: C += A[k]              with s of 0 or more
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir

from nnefc.passes.schedule.analysis import step_of
from nnefc.passes.tir.expressions import variables_of
from nnefc.sizes import bounds, is_known

__all__ = ["write_first_values"]


def write_first_values(sch: s_tir.Schedule) -> None:
    """Give reductions of a schedule, which has all its loops, results where open sizes leave them no rounds."""
    found: list[s_tir.SBlockRealize] = []

    def note(realize: s_tir.SBlockRealize) -> None:
        if realize.block.init is not None:
            found.append(realize)

    tvm_ffi.structural_walk(sch.mod["main"].body, (s_tir.SBlockRealize, note))
    for realize in found:
        block = sch.get_sblock(realize.block.name_hint)
        places = zip(step_of(sch, block).axes, realize.iter_values, strict=True)
        reduced = [(axis.size, value) for axis, value in places if axis.is_reduced]
        if any(not is_known(size) and bounds(size)[0] < 1 for size, _ in reduced):
            along = variables_of([value for _, value in reduced])
            loops = [loop for loop in sch.get_loops(block) if sch.get(loop).loop_var in along]
            shared = any(sch.get(loop).thread_binding is not None for loop in loops)  # each thread begins its own sum
            if loops and not shared:
                sch.decompose_reduction(block, loops[0])
