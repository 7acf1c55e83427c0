"""Element-wise steps that read neighbours in a line which another step has laid out, as channels of one position.

for the positions, parallel:
    line = the first step, for one position                         # in the first cache, in vectors
    for the rest of the axes: out = f(line[a window], …)            # vectors that start anywhere
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorRegion
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.schedule.structure import (
    epilogue_into_one_block,
    is_reduction,
    root_blocks,
    schedule_of,
)
from nnefc.targets.machine.target import Target

__all__ = ["NeighboursRule"]


class NeighboursRule:
    """Two steps without reductions; the second reads windows along the last axis of what the first has made."""

    def apply(self, func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        blocks = root_blocks(sch)
        if any(is_reduction(sch, block) for block in blocks):
            return None
        pairs = [
            (line, reader)
            for line in blocks
            if len(readers := sch.get_consumers(line)) == 1
            for reader in readers
            if (read := _read_of(sch, reader, line)) is not None and len(read.region) and _extent(read.region[-1]) > 1
        ]
        if len(pairs) != 1:
            return None
        line, reader = pairs[0]
        positions = self._positions(sch, line, reader)
        lanes = target.lanes(str(sch.get(reader).writes[0].source.dtype))
        lengths = [int(sch.get(block).iter_vars[-1].dom.extent) for block in (line, reader)]
        if positions is None or any(length % lanes for length in lengths):
            return None
        return self._schedule(sch, line, reader, positions, target)

    def _positions(self, sch: s_tir.Schedule, line: SBlockRV, reader: SBlockRV) -> list[int] | None:
        """The axes of the reader that say which line it reads; the line has no others but its own."""
        axes = list(sch.get(reader).iter_vars)
        read = _read_of(sch, reader, line)
        assert read is not None
        found = []
        for place in read.region[:-1]:
            axis = next((i for i, a in enumerate(axes[:-1]) if a.var.same_as(place.min)), None)
            if axis is None or _extent(place) != 1:
                return None
            found.append(axis)
        return found if found == sorted(set(found)) and found else None

    def _schedule(
        self, sch: s_tir.Schedule, line: SBlockRV, reader: SBlockRV, positions: list[int], target: Target
    ) -> s_tir.Schedule:
        lanes = target.lanes(str(sch.get(reader).writes[0].source.dtype))
        last = epilogue_into_one_block(sch, reader)
        if last is None:
            last = reader
        else:
            sch.compute_inline(reader)
        loops = sch.get_loops(last)
        work = math.prod(int(sch.get(loop).extent) for loop in loops)
        outer = [loops[axis] for axis in positions]
        inner = [loop for axis, loop in enumerate(loops) if axis not in positions]
        sch.reorder(*outer, *inner)
        sch.compute_at(line, outer[-1])
        for block in (line, last):
            *_, vector = sch.get_loops(block)
            _, lane = sch.split(vector, [None, lanes])
            sch.vectorize(lane)
        if work >= target.parallel_grain and math.prod(int(sch.get(loop).extent) for loop in outer) > 1:
            sch.parallel(sch.fuse(*outer))
        return sch


def _extent(places: Range) -> int:
    """How many places are read; 0 where that depends on data."""
    return int(places.extent) if isinstance(places.extent, tirx.IntImm) else 0


def _read_of(sch: s_tir.Schedule, reader: SBlockRV, source: SBlockRV) -> TensorRegion | None:
    """What one block reads of another's result."""
    written = sch.get(source).writes[0].source
    return next((read for read in sch.get(reader).reads if read.source.same_as(written)), None)
