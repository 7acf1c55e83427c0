"""Locates the operands and results of the entry's calls: offsets into views of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import PointerType, PrimType

from nnefc.passes.plan.entry_sizes import output_parts
from nnefc.passes.plan.memory import MemoryLocation, MemoryPlan
from nnefc.passes.plan.program import Buffer, LoopStep, Program
from nnefc.passes.tir.common.expressions import int64
from nnefc.symbolic.dims import Dimension, Size, expression

__all__ = [
    "BYTE_POINTER",
    "SPAN",
    "Area",
    "Areas",
    "LoopAreas",
    "Parts",
    "Table",
    "area_of",
    "byte_pointer",
    "workspace_of",
]

BYTE_POINTER = PointerType(PrimType("uint8"))
SPAN = 1 << 40  # extent of the byte views; addresses lie within the plan, so it is never checked
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
        """A pointer to bytes."""
        return tirx.address_of(self.view[self.offset])


Areas = Mapping[tuple[str, int], Area]


@dataclass(frozen=True)
class Table:
    """The numbers that the runtime gives the entry: `positions` says where each is."""

    program: Program
    plan: MemoryPlan
    numbers: tirx.Var
    positions: Mapping[tirx.Var, tirx.Expr]

    def read(self, part: int) -> list[tirx.Stmt]:
        """Binds what is known with a part of the workspace: the first time the sizes of inputs, then offsets."""
        later = {storage.offset for storage in self.plan.storages if storage.part != part}
        later |= self.program.parts.keys()
        offsets = {storage.offset for storage in self.plan.storages}
        known = (var for var in self.positions if var not in later and (part == 0 or var in offsets))
        return [tirx.Bind(var, self.numbers[self.positions[var]]) for var in known]


@dataclass(frozen=True)
class Parts:
    """The parts of the workspace that wait for data-dependent sizes."""

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
        """Returns a pointer that a function of the runtime gives."""
        pointer = byte_pointer(name)
        view = tirx.decl_buffer((SPAN,), "uint8", name=name, data=pointer)
        call = tirx.call_extern("handle", function, self.run, tirx.IntImm("int32", number))
        made += [tirx.Bind(pointer, tirx.reinterpret(pointer.ty, call)), tirx.DeclBuffer(view, data=pointer)]
        return pointer, Area(view, int64(0))


@dataclass(frozen=True)
class LoopAreas:
    """The areas of the operands and results of a loop.

    Attributes:
        limit: the trip count, if it is an operand.
        kept: what is the same in all iterations.
        first_states, states: the values before the loop, and after each iteration.
        scanned, stacked: tensors of which each iteration reads, and writes, one element.
    """

    limit: Area | None
    kept: Sequence[Area]
    first_states: Sequence[Area]
    scanned: Sequence[Area]
    states: Sequence[Area]
    stacked: Sequence[Area]

    @staticmethod
    def of(step: LoopStep, plan: MemoryPlan, areas: Areas) -> LoopAreas:
        """Returns the areas of a step of a plan."""
        reads = [area_of(plan.positions[buffer], areas) for buffer in step.reads]
        results = [area_of(plan.positions[buffer], areas) for buffer in step.writes]
        has_trip_count, count = int(step.loop.has_trip_count), len(step.body.states)
        end = step.first_state + count
        return LoopAreas(
            limit=reads[0] if has_trip_count else None,
            kept=reads[has_trip_count : step.first_state],
            first_states=reads[step.first_state : end],
            scanned=reads[end:],
            states=results[:count],
            stacked=results[count:],
        )

    def of_body(self, step: LoopStep, iteration: tirx.Var) -> dict[tuple[str, int], Area]:
        """Returns the areas of the body's inputs, but for the first, and of its states and outputs, in an iteration."""
        loop, body = step.loop, step.body

        def element(area: Area, buffer: Buffer, is_reversed: bool) -> Area:
            position = expression((loop.trip_count or 0) - 1) - iteration if is_reversed else iteration
            return area.at(position * expression(buffer.bytes))

        found = {("input", 1 + i): area for i, area in enumerate(self.kept)}
        found |= {("state", i): area for i, area in enumerate(self.states)}
        elements = body.inputs[1 + len(self.kept) :]
        for buffer, area, is_reversed in zip(elements, self.scanned, loop.reversed_inputs, strict=True):
            found["input", buffer.index] = element(area, buffer, is_reversed)
        outputs = zip(body.outputs, self.stacked, loop.reversed_outputs, strict=True)
        for index, (buffer, area, is_reversed) in enumerate(outputs):
            found["output", index] = element(area, buffer, is_reversed)
        return found


def workspace_of(body: MemoryPlan, areas: Areas, own: Area | None) -> dict[tuple[str, int], Area]:
    """Returns where a body's workspace begins: in the step's own, or in the whole one for dynamic dimensions."""
    if body.storages:
        return {key: area for key, area in areas.items() if key[0] == "workspace"}
    return {} if own is None else {("workspace", 0): own}


def area_of(position: MemoryLocation, areas: Areas) -> Area:
    return areas[position.base, position.index].at(position.offset)


def byte_pointer(name: str) -> tirx.Var:
    return tirx.Var(name, BYTE_POINTER)
