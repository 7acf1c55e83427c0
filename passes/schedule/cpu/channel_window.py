"""Schedules element-wise blocks that read a window of channels from a line computed for one position.

for the positions, parallel:
    line = the first step, for one position                         # in the first cache, in vectors
    for the rest of the axes: out = f(line[a window], …)            # vectors that start anywhere
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.ir import Range

from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock
from nnefc.passes.schedule.schedules import epilogue_into_one_block, trip_count
from nnefc.passes.tir.common.shapes import Size, size_of
from nnefc.targets.machine.cpu.target import Target

__all__ = ["ChannelWindowRule"]


class ChannelWindowRule:
    """Schedules two element-wise steps, the second of which reads windows along the last axis of the first one's
    result.
    """

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        if kernel.reductions:
            return None
        pairs = [(line, reader) for line in kernel.steps if (reader := _window_reader(kernel, line)) is not None]
        if len(pairs) != 1:
            return None
        line, reader = pairs[0]
        positions = _position_axes(line, reader)
        lanes = target.lanes(reader.dtype)
        if positions is None or any(step.sizes[-1] % lanes for step in (line, reader)):
            return None
        return self._schedule(kernel.schedule(), line, reader, positions, target)

    def _schedule(
        self, sch: s_tir.Schedule, line: ScheduleBlock, reader: ScheduleBlock, positions: list[int], target: Target
    ) -> s_tir.Schedule:
        lanes = target.lanes(reader.dtype)
        line_block, reader_block = (sch.get_sblock(step.name) for step in (line, reader))
        last = epilogue_into_one_block(sch, reader_block)
        if last is None:
            last = reader_block
        else:
            sch.compute_inline(reader_block)
        loops = sch.get_loops(last)
        work = trip_count(sch, *loops)
        outer = [loops[axis] for axis in positions]
        inner = [loop for axis, loop in enumerate(loops) if axis not in positions]
        sch.reorder(*outer, *inner)
        sch.compute_at(line_block, outer[-1])
        for block in (line_block, last):
            *_, vector = sch.get_loops(block)
            _, lane = sch.split(vector, [None, lanes])
            sch.vectorize(lane)
        if work >= target.parallel_grain and trip_count(sch, *outer) > 1:
            sch.parallel(sch.fuse(*outer))
        return sch


def _window_reader(kernel: KernelAnalysis, line: ScheduleBlock) -> ScheduleBlock | None:
    """Returns the only step that reads the result of `line`, if it reads several neighbours along the last axis."""
    if len(line.consumers) != 1:
        return None
    reader = kernel.by_name[line.consumers[0]]
    read = reader.read_of(line.result)
    return reader if read is not None and len(read.region) and _length(read.region[-1]) > 1 else None


def _position_axes(line: ScheduleBlock, reader: ScheduleBlock) -> list[int] | None:
    """Returns the reader's axes that select the line it reads; the line has no others but its own."""
    read = reader.read_of(line.result)
    assert read is not None
    found = []
    for position in read.region[:-1]:
        axis = next((i for i, a in enumerate(reader.axes[:-1]) if a.var.same_as(position.min)), None)
        if axis is None or _length(position) != 1:
            return None
        found.append(axis)
    return found if found == sorted(set(found)) and found else None


def _length(positions: Range) -> Size:
    """Returns the number of positions that are read; 0 if it is data-dependent."""
    return size_of(positions.extent) if isinstance(positions.extent, tirx.IntImm) else 0
