"""Locates the operands and results of the entry's calls: offsets into views of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import PointerType, PrimType

from nnefc.passes.plan.entry_sizes import output_parts
from nnefc.passes.plan.locations import NEW_STATE, OUTPUT, MemoryLocation
from nnefc.passes.plan.loop_states import moving_states
from nnefc.passes.plan.memory import MemoryPlan
from nnefc.passes.plan.program import Buffer, LoopStep, Program
from nnefc.passes.tir.common.expressions import int64
from nnefc.symbolic.dims import Dimension, Size, expression

__all__ = [
    "BYTE_POINTER",
    "EITHER",
    "SPAN",
    "AnyArea",
    "Area",
    "Areas",
    "EitherArea",
    "LoopAreas",
    "Parts",
    "Table",
    "area_of",
    "byte_pointer",
    "workspace_of",
]

BYTE_POINTER = PointerType(PrimType("uint8"))
SPAN = 1 << 40  # extent of the byte views; addresses lie within the plan, so it is never checked
EITHER = "nnefc_either"
"""The function of the runtime that chooses between two addresses: TVM's passes choose between numbers alone."""

_PART = "nnefc_run_resized"  # of the runtime: the part of the workspace that waited for a size
_OUTPUT = "nnefc_run_output"  # of the runtime: where an output goes whose shape is known then


@dataclass(frozen=True)
class Area:
    """An area of memory: a parameter of the entry, and a byte offset into a view of it."""

    view: tirx.Var
    offset: tirx.Expr

    def at(self, offset: Dimension | tirx.Expr) -> Area:
        """Returns the area that begins further on."""
        return Area(self.view, self.offset + (offset.expr if isinstance(offset, Size) else offset))

    @property
    def address(self) -> tirx.Expr:
        """Returns a pointer to the bytes of the area."""
        return tirx.address_of(self.view[self.offset])


@dataclass(frozen=True)
class EitherArea:
    """The area `then` if the condition holds, else the area `other`."""

    condition: tirx.Expr
    then: AnyArea
    other: AnyArea

    def at(self, offset: Dimension | tirx.Expr) -> EitherArea:
        """Returns the area that begins further on."""
        return EitherArea(self.condition, self.then.at(offset), self.other.at(offset))

    @property
    def address(self) -> tirx.Expr:
        """Returns a pointer to the bytes of the area that the condition selects."""
        holds = tirx.Cast("int32", self.condition)
        chosen = tirx.call_extern("handle", EITHER, holds, self.then.address, self.other.address)
        return tirx.reinterpret(BYTE_POINTER, chosen)


AnyArea = Area | EitherArea
Areas = Mapping[tuple[str, int], AnyArea]


@dataclass(frozen=True)
class Table:
    """The table of numbers that the runtime passes to the entry; `positions` has the index of each."""

    program: Program
    plan: MemoryPlan
    numbers: tirx.Var
    positions: Mapping[tirx.Var, tirx.Expr]

    def read(self, part: int) -> list[tirx.Stmt]:
        """Binds the variables that are known with a part of the workspace: first the sizes of inputs, then offsets."""
        later = {storage.offset for storage in self.plan.storages if storage.part != part}
        later |= self.program.parts.keys()
        offsets = {storage.offset for storage in self.plan.storages}
        known = (var for var in self.positions if var not in later and (part == 0 or var in offsets))
        return [tirx.Bind(var, self.numbers[self.positions[var]]) for var in known]


@dataclass(frozen=True)
class Parts:
    """The parts of the workspace that are laid out when data-dependent sizes are known."""

    program: Program
    table: Table
    run: tirx.Var

    def waits_for(self, count: tirx.Var) -> bool:
        """Whether a part waits for a size."""
        return count in self.program.parts

    def asked_for(self, count: tirx.Var) -> tuple[list[tirx.Stmt], dict[tuple[str, int], Area]]:
        """Requests the workspace part that waited for a size, and outputs whose shapes are known now; returns their
        areas.

        sizes[position] = count
        part = nnefc_run_resized(run, number)
        if part is null: return, for the runtime knows why
        """
        number = self.program.parts[count]
        made: list[tirx.Stmt] = [tirx.BufferStore(self.table.numbers, count, [self.table.positions[count]])]
        pointer, area = self._given(_PART, number, f"part{number}", made)
        made.append(tirx.IfThenElse(tirx.isnullptr(pointer), tirx.Return(tirx.IntImm("int32", 0)), None))
        made += self.table.read(number)
        areas = {("workspace", number): area}
        for index, part in enumerate(output_parts(self.program)):
            if part == number:
                areas["output", index] = self._given(_OUTPUT, index, f"found{index}", made)[1]
        return made, areas

    def _given(self, function: str, number: int, name: str, made: list[tirx.Stmt]) -> tuple[tirx.Var, Area]:
        """Calls a function of the runtime that returns a pointer."""
        pointer = byte_pointer(name)
        view = tirx.decl_buffer((SPAN,), "uint8", name=name, data=pointer)
        call = tirx.call_extern("handle", function, self.run, tirx.IntImm("int32", number))
        made += [tirx.Bind(pointer, tirx.reinterpret(pointer.ty, call)), tirx.DeclBuffer(view, data=pointer)]
        return pointer, Area(view, int64(0))


@dataclass(frozen=True)
class LoopAreas:
    """The areas of the operands and results of a loop.

    States that move, see `loop_states.py`, are in each iteration where the one before wrote them. Those that alternate
    are after an even number of iterations where the loop's result comes to lie, and after an odd number in a second
    buffer; or the other way around, where that saves the copy after the last iteration.

    Attributes:
        step: the loop.
        limit: the trip count, if it is an operand.
        kept: what is the same in all iterations.
        first_states, states: the values before the loop, and after it.
        second_states: by the state, of those that alternate, what is not the result.
        scanned, stacked: tensors of which each iteration reads, and writes, one element.
        moving: by the state, where the body writes new values that the next iteration reads there.
        in_place: states whose values before the loop are where those after it come to lie.
    """

    step: LoopStep
    limit: AnyArea | None
    kept: Sequence[AnyArea]
    first_states: Sequence[AnyArea]
    scanned: Sequence[AnyArea]
    states: Sequence[AnyArea]
    second_states: Mapping[int, AnyArea]
    stacked: Sequence[AnyArea]
    moving: Mapping[int, MemoryLocation]
    in_place: Set[int]

    @staticmethod
    def of(step: LoopStep, time: int, plan: MemoryPlan, areas: Areas) -> LoopAreas:
        """Returns the areas of a step of a plan, by its position among the actions."""
        reads = [area_of(plan.positions[buffer], areas) for buffer in step.reads]
        results = [area_of(plan.positions[buffer], areas) for buffer in step.writes]
        has_trip_count, count = int(step.loop.has_trip_count), len(step.body.states)
        end = step.first_state + count
        ends = zip(step.reads[step.first_state : end], step.writes, strict=False)
        (body_plan,) = plan.bodies[step]
        return LoopAreas(
            step,
            limit=reads[0] if has_trip_count else None,
            kept=reads[has_trip_count : step.first_state],
            first_states=reads[step.first_state : end],
            scanned=reads[end:],
            states=results[:count],
            second_states={state: area_of(position, areas) for state, position in plan.second_states[time].items()},
            stacked=results[count:],
            moving=moving_states(step.body, step.loop, body_plan.positions),
            in_place={i for i, (first, last) in enumerate(ends) if plan.positions[first] == plan.positions[last]},
        )

    def of_body(self, iteration: tirx.Var) -> dict[tuple[str, int], AnyArea]:
        """Returns the areas of the body's inputs, but for the first, and of its states and outputs, in an iteration."""
        loop, body = self.step.loop, self.step.body
        found = {("input", 1 + i): area for i, area in enumerate(self.kept)}
        found |= {("state", i): self.state(i, iteration) for i in range(len(self.states))}
        found |= {(NEW_STATE, i): self._computed(i, iteration + 1) for i in self.moving}
        elements = body.inputs[1 + len(self.kept) :]
        for buffer, area, is_reversed in zip(elements, self.scanned, loop.reversed_inputs, strict=True):
            found["input", buffer.index] = self._element(area, buffer, is_reversed, iteration)
        found |= {(OUTPUT, i): self._output(i, iteration) for i in range(len(self.stacked))}
        return found

    @property
    def trip_count(self) -> int | None:
        """The number of iterations, if it is known before the loop."""
        loop = self.step.loop
        is_fixed = isinstance(loop.trip_count, int) and not loop.has_trip_count and not loop.conditional
        return loop.trip_count if is_fixed else None

    def state(self, index: int, iteration: tirx.Expr | int) -> AnyArea:
        """Returns the area of a state before an iteration; with the trip count, after the last one."""
        if index not in self.moving:
            return self.states[index]
        if isinstance(iteration, int):
            return self._computed(index, iteration) if iteration else self.first_states[index]
        return EitherArea(tirx.EQ(iteration, int64(0)), self.first_states[index], self._computed(index, iteration))

    def is_elsewhere(self, index: int, iteration: tirx.Expr | int) -> tirx.Expr | bool:
        """Whether a state is outside of the loop's result before an iteration."""
        if index not in self.moving:
            return False
        alternates = index in self.second_states
        if isinstance(iteration, int):
            if iteration == 0:
                return index not in self.in_place
            return not alternates or (iteration % 2 == 1) != self._results_are_odd(index)
        later = tirx.EQ(tirx.floormod(iteration, int64(2)), int64(1)) if alternates else iteration > int64(0)
        if index in self.in_place:
            return later
        return tirx.Or(tirx.EQ(iteration, int64(0)), later) if alternates else True

    def _computed(self, index: int, iteration: tirx.Expr | int) -> AnyArea:
        """Returns the area where the previous iteration writes a new value."""
        there = self.moving[index]
        if there.base == OUTPUT:
            return self._output(there.index, iteration - 1).at(there.offset)
        odd, even = self.second_states[index], self.states[index]
        if self._results_are_odd(index):
            odd, even = even, odd
        if isinstance(iteration, int):
            return odd if iteration % 2 else even
        return EitherArea(tirx.EQ(tirx.floormod(iteration, int64(2)), int64(1)), odd, even)

    def _results_are_odd(self, index: int) -> bool:
        """Whether an alternating state is in the loop's result after odd numbers of iterations, not even ones.

        It is so only if the first value, which the first iteration reads, is not there.

        Not where its first value is there, which the first iteration reads.
        """
        return self.trip_count is not None and self.trip_count % 2 == 1 and index not in self.in_place

    def _output(self, index: int, iteration: tirx.Expr | int) -> AnyArea:
        buffer, is_reversed = self.step.body.outputs[index], self.step.loop.reversed_outputs[index]
        return self._element(self.stacked[index], buffer, is_reversed, iteration)

    def _element(self, area: AnyArea, buffer: Buffer, is_reversed: bool, iteration: tirx.Expr | int) -> AnyArea:
        """Returns the element of a scanned or stacked tensor that an iteration reads or writes."""
        position = expression((self.step.loop.trip_count or 0) - 1) - iteration if is_reversed else iteration
        return area.at(position * expression(buffer.bytes))


def workspace_of(body: MemoryPlan, areas: Areas, own: AnyArea | None) -> dict[tuple[str, int], AnyArea]:
    """Returns where a body's workspace begins: in its step's workspace, or with dynamic dimensions in the program's."""
    if body.storages:
        return {key: area for key, area in areas.items() if key[0] == "workspace"}
    return {} if own is None else {("workspace", 0): own}


def area_of(position: MemoryLocation, areas: Areas) -> AnyArea:
    return areas[position.base, position.index].at(position.offset)


def byte_pointer(name: str) -> tirx.Var:
    return tirx.Var(name, BYTE_POINTER)
