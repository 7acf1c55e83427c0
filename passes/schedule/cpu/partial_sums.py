"""Splits long sums into partial sums, so that rounding errors grow with a part's length, not with the whole sum's.

    for k in 3072: C += A[k] B[k]     →     for part in 8:
                                                P = 0
                                                for k in 384: P += A[384 part + k] B[384 part + k]
                                                C += P

The error of a sum of n terms of any sign, one after the other, grows with the root of n / 2 times that of the sum
itself; in parts of m terms with the root of (m + n / m) / 2 (Higham, Accuracy and Stability of Numerical Algorithms,
2002, section 4.2; Castaldo, Whaley and Chronopoulos, 2008).
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from nnefc.ir.attributes import ALIGNED_FRAME, LONGEST_PART
from nnefc.passes.compute.dot.dot_product import is_float16_product, of_float16
from nnefc.passes.schedule.analysis import step_of
from nnefc.passes.schedule.schedules import trip_count
from nnefc.passes.tir.common.shapes import Size
from nnefc.passes.tir.dot.dot_instructions import FLOAT16_PART, FLOAT16_SUM
from nnefc.symbolic.dims import is_known
from nnefc.targets.machine.cpu.target import Target

__all__ = ["keep_totals_aligned", "part_of_sum", "sum_in_parts"]

_LONGEST = 400  # terms of a part: below that, adding the parts up takes a hundredth of the time and more
_LONGEST_SPILLED = 2048  # where it takes a tenth, for the sums of a part are spilled with the totals
_SHORTEST = 64


def part_of_sum(sizes: list[Size], longest: int = _LONGEST, shortest: int = _SHORTEST) -> tuple[int, int] | None:
    """Chooses where to split a sum over axes of these sizes, the last one varying fastest.

    Returns:
        An axis and how much of it belongs to one part, with the whole of the axes after it; None for no cut, as of
        sums whose length is known at run time.
    """
    if not is_known(*sizes) or math.prod(sizes) <= longest:
        return None
    cuts: dict[int, tuple[int, int]] = {}  # by the number of terms in a part
    inner = 1
    for axis in reversed(range(len(sizes))):
        cuts |= {inner * size: (axis, size) for size in range(1, sizes[axis] + 1) if sizes[axis] % size == 0}
        inner *= sizes[axis]
    del cuts[inner]
    short = max((length for length in cuts if length <= longest), default=1)
    if short >= shortest:
        return cuts[short]
    long = min((length for length in cuts if length > longest), default=None)
    return None if long is None else cuts[long]


def sum_in_parts(sch: s_tir.Schedule, block: SBlockRV, target: Target) -> SBlockRV | None:
    """Splits a block's sum into partial sums, if it has many terms of floats.

    Returns:
        The computation of the parts, which has the number of the part as an axis before all others; `block` is then
        the sum of the parts, with one reduced axis. None if the block is left as it was.
    """
    step = step_of(sch, block)
    if not step.dtype.startswith("float"):
        return None  # integers are exact
    loops = sch.get_loops(block)[-len(step.reduced) :]
    sizes = [trip_count(sch, loop) for loop in loops]
    product = step.value.b if isinstance(step.value, tirx.Add) else None
    if of_float16(product):
        cut = part_of_sum(sizes, FLOAT16_SUM, FLOAT16_SUM // 4)
    elif is_float16_product(product):
        cut = part_of_sum(sizes, FLOAT16_PART, FLOAT16_PART // 4)
    else:
        longest = _LONGEST_SPILLED if target.quirks.spills_totals else _LONGEST
        cut = part_of_sum(sizes, int(step.node.annotations.get(LONGEST_PART, longest)))
    if cut is None:
        return None
    axis, size = cut
    outer, _ = sch.split(loops[axis], [None, size])
    return sch.rfactor(sch.fuse(*loops[:axis], outer) if axis else outer, 0)


def keep_totals_aligned(sch: s_tir.Schedule, loop: LoopRV, target: Target) -> None:
    """Annotates the parallel loop around a tile whose accumulators are spilled to the stack while a part is
    computed.
    """
    if target.lanes("float32") * 4 > 16:
        sch.annotate(loop, ALIGNED_FRAME, True)
