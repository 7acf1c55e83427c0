"""Delays updates of states behind the steps that read their old values, so that the plan can let them be in place.

ring' = write_to_ring(new, ring)                      y = attention(q, ring, new)
y = attention(q, ring, new)                     →     ring' = write_to_ring(new, ring)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tvm.ir import GlobalVar

from nnefc.passes.plan.program import Buffer, IfStep, LoopStep, MemoryKind, Program, Step
from nnefc.passes.schedule.in_place import InPlace

__all__ = ["with_late_updates"]

_Action = Step | IfStep | LoopStep


def with_late_updates(program: Program, in_place: Mapping[GlobalVar, InPlace]) -> Program:
    """Returns the program with each update of a state, whose result no other step reads, behind the state's readers."""
    reader = _Reader(program, in_place)
    delayed = reader.delayed()
    return replace(program, steps=tuple(_in_order(program.steps, delayed))) if delayed else program


class _Reader:
    """Finds the last reader of each buffer; the views of a buffer are that buffer."""

    def __init__(self, program: Program, in_place: Mapping[GlobalVar, InPlace]) -> None:
        self._program, self._in_place = program, in_place
        self._roots: dict[Buffer, Buffer] = {}
        self._last: dict[Buffer, int] = {}
        self._views: dict[Buffer, list[int]] = defaultdict(list)
        for time, step in enumerate(program.steps):
            if self._allowed(step).reshape:
                self._roots[step.writes[0]] = self._root(step.reads[0])
                self._views[self._root(step.reads[0])].append(time)
            else:
                self._last |= dict.fromkeys(map(self._root, step.reads), time)

    def _allowed(self, step: _Action) -> InPlace:
        return self._in_place.get(step.kernel, InPlace()) if isinstance(step, Step) else InPlace()

    def _root(self, buffer: Buffer) -> Buffer:
        return self._roots.get(buffer, buffer)

    def delayed(self) -> Mapping[int, int]:
        """Returns the steps that move, by their number, and the step behind which each comes."""
        program, found = self._program, dict[int, int]()
        new = dict(zip(program.states, map(self._root, program.new_states), strict=True))
        outputs = set(map(self._root, program.outputs))
        for time, step in enumerate(program.steps):
            updates = self._allowed(step).updates
            if updates is None:
                continue
            state, (result, *others) = self._root(step.reads[updates]), step.writes
            if state.kind is not MemoryKind.STATE or new[state] is not result or state in outputs:
                continue
            is_read = any(buffer in self._last or buffer in program.counts for buffer in step.writes)
            last = self._last[state]
            if last > time and not is_read and not outputs.intersection((result, *others)):
                found |= dict.fromkeys([time, *self._views[result]], last)
        return found


def _in_order(steps: Sequence[_Action], delayed: Mapping[int, int]) -> Iterator[_Action]:
    """Yields the steps, each delayed one behind the step that it waits for."""
    waiting: dict[int, list[int]] = defaultdict(list)
    for time, last in delayed.items():
        waiting[last].append(time)
    for first in range(len(steps)):
        ready = [] if first in delayed else [first]
        while ready:
            time = ready.pop(0)
            yield steps[time]
            ready += waiting[time]
