"""The plan as one function that calls the kernels: the whole network in C's calling convention.

    nnefc_network(input0, …, output0, …, state, workspace, constants) -> int32
        kernel0(input0, constants + 0, workspace + 4096)
        while *(int64 *)(workspace + 0) < 100 && *(bool *)(workspace + 64)
            kernel1(workspace + 4096, constants + 6400, workspace + 64)
            *(int64 *)(workspace + 0) += 1
        …
        return 0

Offsets are constants, but for the items that a loop reads and writes in each iteration. Nothing is allocated and
nothing is checked here: the runtime did both before. It also notes by itself when one of its services fails a kernel,
so the kernels' own statuses are not looked at (TVM's code generator could only return a constant anyway); a loop asks
it before each iteration, for a kernel that failed may not have written what ends the loop, and so it is asked where a
size is read that only the data tell.

The entry calls the kernels by their symbols, for its code goes into an object of its own: see
`targets/codegen/cpu/objects.py`.

For a GPU it is the same, but that all pointers are the device's: see `passes/plan/device_memory.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import tvm
from tvm import tirx
from tvm.ir import GlobalVar, PointerType, PrimType

from nnefc.network import Count
from nnefc.passes.plan.memory import COUNTER_BYTES, Copy, Counts, MemoryPlan, Place
from nnefc.passes.plan.program import Buffer, ChoiceStep, LoopStep, Program, Step, all_counts, kernel_steps
from nnefc.passes.tir.expressions import in_floats, int64
from nnefc.passes.tir.kernels import of_open_sizes
from nnefc.sizes import (
    MAX_ITEMS,
    Dimension,
    Size,
    bounds,
    dimensions,
    expression,
    item_count,
    substituted,
    widest,
)

__all__ = [
    "BYTE_POINTER",
    "ENTRY",
    "SIZES",
    "Counter",
    "HostMemory",
    "Memory",
    "counted_sizes",
    "entry_function",
    "entry_symbol",
    "exported",
    "kernel_symbol",
    "output_parts",
    "sizes_function",
]

ENTRY = "nnefc_network"
SIZES = "nnefc_network_sizes"


def entry_symbol(level: int) -> str:
    """The symbol of a level's program; to those for some sizes, a number from 1 on is added."""
    return ENTRY + f"_level{level}" * (level > 0)


BYTE_POINTER = PointerType(PrimType("uint8"))
_FAILED = "nnefc_run_failed"  # of the runtime: whether a kernel of this run has failed
_PART = "nnefc_run_counted"  # of the runtime: the part of the workspace that waited for a size
_OUTPUT = "nnefc_run_output"  # of the runtime: where an output goes whose shape is known then
_PROFILE_BEGIN = "nnefc_profile_begin"  # of the runtime: what time it is when this kernel begins
_PROFILE_END = "nnefc_profile_end"  # of the runtime: adds up what has gone by since then
_AT_STEP = "nnefc_at_step"  # of the runtime: notes what the kernel that follows computes
_LONGEST_STEP = 160  # letters of what is noted
_C_CALLING_CONVENTION = 1  # an explicit one, so that TVM leaves the signature alone
_SPAN = 1 << 40  # extent of the byte views; addresses lie within the plan, so it is never checked


@dataclass(frozen=True)
class _Area:
    """Where the places of one base and index begin: so many bytes into a view of a parameter of the entry."""

    view: tirx.Var
    offset: tirx.Expr

    def at(self, offset: Dimension | tirx.Expr) -> _Area:
        """The area that begins further on."""
        return _Area(self.view, self.offset + (offset.expr if isinstance(offset, Size) else offset))

    @property
    def address(self) -> tirx.Expr:
        """A pointer to bytes."""
        return tirx.address_of(self.view[self.offset])


_Areas = Mapping[tuple[str, int], _Area]


@dataclass(frozen=True)
class _Table:
    """The numbers that the runtime gives the entry: `places` says where each is."""

    program: Program
    plan: MemoryPlan
    numbers: tirx.Var
    places: Mapping[tirx.Var, tirx.Expr]

    def read(self, part: int) -> list[tirx.Stmt]:
        """Bind what is known with a part of the workspace: the first time the sizes of inputs, then offsets."""
        later = {storage.offset for storage in self.plan.storages if storage.part != part}
        later |= self.program.parts.keys()
        offsets = {storage.offset for storage in self.plan.storages}
        known = (var for var in self.places if var not in later and (part == 0 or var in offsets))
        return [tirx.Bind(var, self.numbers[self.places[var]]) for var in known]


@dataclass(frozen=True)
class _Parts:
    """The parts of the workspace that wait for sizes that only the data tell."""

    program: Program
    table: _Table
    run: tirx.Var

    def waits_for(self, count: tirx.Var) -> bool:
        """Whether a part waits for a size."""
        return count in self.program.parts

    def asked_for(self, count: tirx.Var) -> tuple[list[tirx.Stmt], dict[tuple[str, int], _Area]]:
        """What gets the part that waited for a size, and where it is; so for the outputs whose shapes are known now.

        sizes[place] = count
        part = nnefc_run_counted(run, number)
        if part is null: return, for the runtime knows why
        """
        number = self.program.parts[count]
        made: list[tirx.Stmt] = [tirx.BufferStore(self.table.numbers, count, [self.table.places[count]])]
        pointer, area = self._given(_PART, number, f"part{number}", made)
        made.append(tirx.IfThenElse(tirx.isnullptr(pointer), tirx.Return(tirx.IntImm("int32", 0)), None))
        made += self.table.read(number)
        areas = {("workspace", number): area}
        for index, part in enumerate(output_parts(self.program)):
            if part == number:
                areas["output", index] = self._given(_OUTPUT, index, f"found{index}", made)[1]
        return made, areas

    def _given(self, function: str, number: int, name: str, made: list[tirx.Stmt]) -> tuple[tirx.Var, _Area]:
        """A pointer that a function of the runtime gives."""
        pointer = _byte_pointer(name)
        view = tirx.decl_buffer((_SPAN,), "uint8", name=name, data=pointer)
        call = tirx.call_extern("handle", function, self.run, tirx.IntImm("int32", number))
        made += [tirx.Bind(pointer, tirx.reinterpret(pointer.ty, call)), tirx.DeclBuffer(view, data=pointer)]
        return pointer, _Area(view, int64(0))


def output_parts(program: Program) -> tuple[int, ...]:
    """For each output, the part of the workspace with which it is known how large it is at most."""
    limits = program.limits
    counts = Counts(limits, program.parts)
    return tuple(
        max((counts.part(widest(size, limits)) for size in output.shape), default=0) for output in program.outputs
    )


@dataclass(frozen=True)
class _LoopAreas:
    """Where the operands and the results of a loop are.

    Attributes:
        limit: the trip count, if it is an operand.
        kept: what is the same in all iterations.
        first_states, states: the values before the loop, and after each iteration.
        scanned, stacked: tensors of which each iteration reads, and writes, one item.
    """

    limit: _Area | None
    kept: Sequence[_Area]
    first_states: Sequence[_Area]
    scanned: Sequence[_Area]
    states: Sequence[_Area]
    stacked: Sequence[_Area]

    @staticmethod
    def of(step: LoopStep, plan: MemoryPlan, areas: _Areas) -> _LoopAreas:
        """Those of a step of a plan."""
        reads = [_area(plan.places[buffer], areas) for buffer in step.reads]
        results = [_area(plan.places[buffer], areas) for buffer in step.writes]
        counted, count = int(step.loop.counted), len(step.body.states)
        end = step.first_state + count
        return _LoopAreas(
            limit=reads[0] if counted else None,
            kept=reads[counted : step.first_state],
            first_states=reads[step.first_state : end],
            scanned=reads[end:],
            states=results[:count],
            stacked=results[count:],
        )

    def of_body(self, step: LoopStep, iteration: tirx.Var) -> dict[tuple[str, int], _Area]:
        """The areas of the body's inputs, but for the first, and of its states and outputs, in an iteration."""
        loop, body = step.loop, step.body

        def item(area: _Area, buffer: Buffer, is_reversed: bool) -> _Area:
            position = expression((loop.trip_count or 0) - 1) - iteration if is_reversed else iteration
            return area.at(position * expression(buffer.bytes))

        found = {("input", 1 + i): area for i, area in enumerate(self.kept)}
        found |= {("state", i): area for i, area in enumerate(self.states)}
        items = body.inputs[1 + len(self.kept) :]
        for buffer, area, is_reversed in zip(items, self.scanned, loop.reversed_inputs, strict=True):
            found["input", buffer.index] = item(area, buffer, is_reversed)
        outputs = zip(body.outputs, self.stacked, loop.reversed_outputs, strict=True)
        for index, (buffer, area, is_reversed) in enumerate(outputs):
            found["output", index] = item(area, buffer, is_reversed)
        return found


class Memory(Protocol):
    """How the entry itself reads and writes the memory that its pointers point to."""

    failed: str
    """The function of the runtime that says whether something of this run has failed."""

    def copy(self, source: tirx.Expr, target: tirx.Expr, count: Dimension) -> tirx.Stmt:
        """Move bytes from an address to another."""

    def item(self, address: tirx.Expr, dtype: str) -> tuple[list[tirx.Stmt], tirx.Expr]:
        """The one item of this type at an address: what declares it, and the expression that reads it."""

    def counter(self, address: tirx.Expr) -> Counter:
        """An int64 at an address that only the entry writes."""


class Counter(Protocol):
    """The number of a loop's iteration, where the loop's body reads it."""

    declared: list[tirx.Stmt]
    value: tirx.Expr

    def become(self, value: tirx.Expr) -> tirx.Stmt:
        """Write it."""


def entry_function(
    program: Program,
    plan: MemoryPlan,
    signatures: Mapping[GlobalVar, Sequence[tvm.ir.Type]],
    memory: Memory,
    open_dimensions: Sequence[tirx.Var] = (),
    counted: Sequence[tuple[int, int]] = (),
    symbol: str = ENTRY,
    timed: list[Step] | None = None,
    symbols: Mapping[GlobalVar, str] | None = None,
    checked: Mapping[str, str] | None = None,
) -> tuple[tirx.PrimFunc, tuple[GlobalVar, ...]]:
    """The entry, and the kernels that it calls.

    Where dimensions are open, a further parameter has their values, and after them the offsets of `plan.storages`.
    After these the entry writes the sizes of outputs that only the data tell.

    Among the open dimensions may be sizes that only the data tell, without a limit. The entry writes these itself when
    it has computed them, and asks the runtime for the part of the workspace that waited for each. The last parameter is
    what the runtime wants to be asked with.

    Args:
        signatures: the types of the kernels' parameters that are pointers; sizes follow them.
        open_dimensions: of the network.
        counted: the dimensions of outputs that it writes; see :func:`counted_sizes`.
        symbol: of the entry.
        timed: where the calls of kernels are noted, in their order, if the entry shall time them: a call's number is
            its place there.
        symbols: what kernels are called by that have not their own symbol.
        checked: what of the model computes tensors, by their names, if kernels check what they do.
    """
    params = {("input", i): _byte_pointer(f"input{i}") for i in range(len(program.inputs))}
    params |= {("output", i): _byte_pointer(f"output{i}") for i in range(len(program.outputs))}
    params |= {(name, 0): _byte_pointer(name) for name in ("state", "workspace", "constant")}
    views = {key: tirx.decl_buffer((_SPAN,), "uint8", name=p.name, data=p) for key, p in params.items()}
    areas = {key: _Area(view, int64(0)) for key, view in views.items()}
    state, constant = areas.pop(("state", 0)), areas.pop(("constant", 0))
    areas |= {("state", i): state.at(offset) for i, offset in enumerate(plan.state_offsets)}
    areas |= {("constant", i): constant.at(offset) for i, offset in enumerate(plan.constant_offsets)}
    body = [tirx.DeclBuffer(view, data=params[key]) for key, view in views.items()]
    parameters = list(params.values())
    parts = None
    if open_dimensions or counted:
        values = tirx.Var("sizes", PointerType(PrimType("int64")))
        parameters.append(values)
        known = [*open_dimensions, *(storage.offset for storage in plan.storages)]
        numbers = tirx.decl_buffer((len(known) + len(counted),), "int64", name="numbers", data=values)
        body.append(tirx.DeclBuffer(numbers, data=values))
        table = _Table(program, plan, numbers, {var: int64(index) for index, var in enumerate(known)})
        body += table.read(0)
    if program.parts:
        parameters.append(run := _byte_pointer("run"))
        parts = _Parts(program, table, run)
    writer = _Writer(signatures, memory, dict(all_counts(program)), parts, timed, symbols, checked)
    body += writer.statements(program, plan, areas)
    for place, (output, axis) in enumerate(counted):
        size = expression(program.outputs[output].shape[axis])
        body.append(tirx.BufferStore(numbers, size, [int64(len(known) + place)]))
    body.append(tirx.Return(tirx.IntImm("int32", 0)))
    entry = tirx.PrimFunc(parameters, tirx.SeqStmt(body), ret_type=PrimType("int32"))
    return exported(entry, symbol), tuple(writer.used)


def counted_sizes(program: Program) -> list[tuple[int, int]]:
    """The dimensions of outputs that only the data tell: the number of the output, and the axis."""
    counts = Counts(program.limits, program.parts)
    return [
        (number, axis)
        for number, output in enumerate(program.outputs)
        for axis, size in enumerate(output.shape)
        if counts.tell(size)
    ]


def sizes_function(
    program: Program,
    plan: MemoryPlan,
    open_dimensions: Sequence[tirx.Var],
    most_items: int = MAX_ITEMS,
    symbol: str = SIZES,
) -> tirx.PrimFunc:
    """The function that computes what follows from the values of the open dimensions.

        nnefc_network_sizes(int64 *open, int64 *derived) -> int32

    `derived` becomes the bytes of each storage of the plan, the shapes of all outputs, and for each part of the
    workspace the least dimension of any of its tensors, which is negative where sizes are too small for the network,
    and the most items of those, within kernels too, that might have more than `most_items`. What is too large for 63
    bits is the largest int64.
    """
    limits = program.limits
    derived = [storage.bytes for storage in plan.storages]
    derived += [widest(size, limits) for tensor in program.outputs for size in tensor.shape]
    values, results = (tirx.Var(name, PointerType(PrimType("int64"))) for name in ("open", "derived"))
    parts = program.parts
    made = tirx.decl_buffer((len(derived) + 2 + 2 * len(parts),), "int64", name="derived", data=results)
    body = [*_read(values, open_dimensions), tirx.DeclBuffer(made, data=results)]

    def largest(shape: Sequence[Dimension]) -> tuple[Dimension, ...]:
        return tuple(widest(size, limits) for size in shape)

    shapes = dict.fromkeys(largest(tensor.shape) for tensor in _tensors(program))
    always = dict.fromkeys(largest(tensor.shape) for tensor in _tensors(program, in_choices=False))
    inner = map(largest, _inner_shapes(program))
    numbers = list(map(_saturated, derived))
    counts = Counts(limits, parts)
    by_part: dict[int, list[tuple[Dimension, ...]]] = {part: [] for part in range(1 + len(parts))}
    for shape in dict.fromkeys([*shapes, *inner]):
        by_part[max(map(counts.part, shape), default=0)].append(shape)
    for of_part in by_part.values():
        numbers += [_least_dimension(s for s in of_part if s in always), _most_items(of_part, most_items)]
    body += [tirx.BufferStore(made, number, [int64(index)]) for index, number in enumerate(numbers)]
    body.append(tirx.Return(tirx.IntImm("int32", 0)))
    function = tirx.PrimFunc([values, results], tirx.SeqStmt(body), ret_type=PrimType("int32"))
    return exported(of_open_sizes(function, chooses=False), symbol)


def _saturated(size: Dimension) -> tirx.Expr:
    """A size, or the largest int64 if it is too large for one."""
    if isinstance(size, int):
        return int64(size)
    limit = tirx.const(float(1 << 62), "float64")
    return tirx.Select(in_floats(size.expr) > limit, int64((1 << 63) - 1), size.expr)


def _tensors(program: Program, in_choices: bool = True) -> Iterator[Buffer]:
    """What the steps of a program read and write, and those of the programs in it, in branches of choices or not."""
    for step in program.steps:
        yield from (*step.reads, *step.writes)
        if isinstance(step, LoopStep) or (in_choices and isinstance(step, ChoiceStep)):
            for body in step.bodies:
                yield from _tensors(body, in_choices)


def _least_dimension(shapes: Iterable[Sequence[Dimension]]) -> tirx.Expr:
    """The least of all dimensions that might be negative, and 0."""
    sizes = dict.fromkeys(size for shape in shapes for size in shape if bounds(size)[0] < 0)
    return reduce(tirx.min, map(expression, sizes), int64(0))


def _inner_shapes(program: Program) -> Iterator[tuple[Dimension, ...]]:
    """The shapes of the tensors that kernels have for themselves, before they have their schedules."""
    for step in kernel_steps(program):
        values = dict(step.sizes)
        for tensor in program.kernels[step.kernel].body.block.alloc_buffers:
            yield tuple(substituted(size, values) for size in dimensions(tensor.shape))


def _most_items(shapes: Iterable[Sequence[Dimension]], limit: int) -> tirx.Expr:
    """The most items of the tensors that might have more than a limit, as far as the bounds tell, and 0."""
    large = [shape for shape in shapes if _most(shape) > limit]
    return reduce(tirx.max, map(_saturated, dict.fromkeys(map(item_count, large))), int64(0))


def _most(shape: Sequence[Dimension]) -> int:
    """No fewer items than a tensor of this shape has."""
    return math.prod(max(map(abs, bounds(size))) for size in shape)


def _read(pointer: tirx.Var, into: Sequence[tirx.Var]) -> list[tirx.Stmt]:
    """Bind variables to the int64 numbers that a pointer points to."""
    numbers = tirx.decl_buffer((len(into),), "int64", name="numbers", data=pointer)
    declared = tirx.DeclBuffer(numbers, data=pointer)
    return [declared, *(tirx.Bind(var, numbers[int64(index)]) for index, var in enumerate(into))]


class _Writer:
    """Writes the statements of the entry.

    Attributes:
        used: the kernels that they call.
    """

    def __init__(
        self,
        signatures: Mapping[GlobalVar, Sequence[tvm.ir.Type]],
        memory: Memory,
        counts: Mapping[Buffer, Count],
        parts: _Parts | None,
        timed: list[Step] | None,
        symbols: Mapping[GlobalVar, str] | None,
        checked: Mapping[str, str] | None,
    ) -> None:
        self._signatures = signatures
        self._memory = memory
        self._counts = counts
        self._parts = parts
        self._timed = timed
        self._symbols = symbols or {}
        self._checked = checked
        self.used: dict[GlobalVar, None] = {}

    def statements(self, program: Program, plan: MemoryPlan, areas: _Areas) -> list[tirx.Stmt]:
        """The actions of a program's plan whose places are in these areas."""
        areas = dict(areas)
        made = self._counted(program.borders, plan, areas)
        for time, action in enumerate(plan.actions):
            place = plan.step_workspaces.get(time)
            workspace = None if place is None else _area(place, areas)
            match action:
                case Step():
                    made += self._noted(action)
                    made += self._with_time(action, self._call(action, plan, areas, workspace))
                case ChoiceStep():
                    made += self._choice(action, plan, areas, workspace)
                case LoopStep():
                    assert workspace is not None
                    made += self._loop(action, plan, areas, workspace)
                case Copy():
                    made.append(
                        self._copy(_area(plan.places[action.source], areas), _area(action.target, areas), action.bytes)
                    )
                    continue
            made += self._counted(action.writes, plan, areas)
        return made

    def _counted(
        self, buffers: Iterable[Buffer], plan: MemoryPlan, areas: dict[tuple[str, int], _Area]
    ) -> list[tirx.Stmt]:
        """Read the sizes that some of these buffers tell; `areas` then has the parts that waited for them.

        The run ends where a kernel has refused a size: what has that size would not have the room that steps need.
        """
        made: list[tirx.Stmt] = []
        for buffer in buffers:
            if buffer not in self._counts:
                continue
            count = self._counts[buffer].var
            if self._counts[buffer].limit == 0:  # of a kernel that checks: nothing has to wait for what it says
                made.append(tirx.Bind(count, int64(0)))
                continue
            declared, value = self._memory.item(_area(plan.places[buffer], areas).address, "int64")
            failed = tirx.call_extern("int32", self._memory.failed) != 0
            made += [*declared, tirx.Bind(count, value)]
            made.append(tirx.IfThenElse(failed, tirx.Return(tirx.IntImm("int32", 0)), None))
            if self._parts is not None and self._parts.waits_for(count):
                more, found = self._parts.asked_for(count)
                made += more
                areas |= found
        return made

    def _noted(self, step: Step) -> list[tirx.Stmt]:
        """What tells the runtime which part of the model a kernel computes, if kernels check what they do."""
        if self._checked is None:
            return []
        places = dict.fromkeys(self._checked.get(name) or f"tensor {name}" for name in step.tensors)
        text = tvm.ir.StringImm((", ".join(places) or step.kernel.name_hint)[:_LONGEST_STEP])
        return [tirx.Evaluate(tirx.call_extern("int32", _AT_STEP, text))]

    def _with_time(self, step: Step, call: tirx.Stmt) -> list[tirx.Stmt]:
        """A call of a kernel, and around it what takes its time, if that is wanted."""
        if self._timed is None:
            return [call]
        begin = tirx.Var("begin", "int64")
        place = tirx.IntImm("int32", len(self._timed))
        end = tirx.call_extern("int32", _PROFILE_END, place, begin)
        self._timed.append(step)
        return [tirx.Bind(begin, tirx.call_extern("int64", _PROFILE_BEGIN, place)), call, tirx.Evaluate(end)]

    def _call(self, step: Step, plan: MemoryPlan, areas: _Areas, workspace: _Area | None) -> tirx.Stmt:
        self.used[step.kernel] = None
        operands = [_area(plan.places[buffer], areas) for buffer in (*step.reads, *step.writes)]
        if workspace is not None:
            operands.append(workspace)
        types = self._signatures[step.kernel]
        arguments = [tirx.reinterpret(t, operand.address) for t, operand in zip(types, operands, strict=True)]
        arguments += [expression(value) for _, value in step.sizes]
        symbol = self._symbols.get(step.kernel) or kernel_symbol(step.kernel.name_hint)
        return tirx.Evaluate(tirx.call_extern("int32", symbol, *arguments))

    def _choice(self, step: ChoiceStep, plan: MemoryPlan, areas: _Areas, workspace: _Area | None) -> list[tirx.Stmt]:
        condition, *operands = (_area(plan.places[buffer], areas) for buffer in step.reads)
        results = [_area(plan.places[buffer], areas) for buffer in step.writes]
        around = {key: area for key, area in areas.items() if key[0] == "constant"}
        around |= {("output", i): area for i, area in enumerate(results)}
        branches = []
        for body, body_plan in zip(step.bodies, plan.bodies[step], strict=True):
            inputs, operands = operands[: len(body.inputs)], operands[len(body.inputs) :]
            inner = around | {("input", i): area for i, area in enumerate(inputs)}
            inner |= _workspace_of(body_plan, areas, workspace)
            branches.append(_sequence(self.statements(body, body_plan, inner)))
        declared, holds = self._memory.item(condition.address, "int8")
        return [*declared, tirx.IfThenElse(holds != 0, *branches)]

    def _loop(self, step: LoopStep, plan: MemoryPlan, areas: _Areas, workspace: _Area) -> list[tirx.Stmt]:
        """A loop whose counter is at the beginning of its workspace, that of its body behind it:

        counter = 0; states = their first values
        while the loop goes on: body(iteration = counter); counter = iteration + 1
        """
        loop = _LoopAreas.of(step, plan, areas)
        counter = self._memory.counter(workspace.address)
        declared, goes_on = self._goes_on(step, loop, counter.value)
        iteration = tirx.Var("iteration", "int64")
        inner = {key: area for key, area in areas.items() if key[0] == "constant"}
        inner |= {("input", 0): workspace} | _workspace_of(plan.bodies[step][0], areas, workspace.at(COUNTER_BYTES))
        inner |= loop.of_body(step, iteration)
        body = [
            tirx.Bind(iteration, counter.value),
            *self.statements(step.body, plan.bodies[step][0], inner),
            counter.become(iteration + 1),
        ]
        return [
            *counter.declared,
            *declared,
            counter.become(int64(0)),
            *self._first_states(step, plan, loop),
            tirx.While(goes_on, tirx.SeqStmt(body)),
        ]

    def _goes_on(self, step: LoopStep, areas: _LoopAreas, iteration: tirx.Expr) -> tuple[list[tirx.Stmt], tirx.Expr]:
        """What holds before each iteration of a loop, and what declares the items that it depends on."""
        declared: list[tirx.Stmt] = []
        conditions = [tirx.call_extern("int32", self._memory.failed) == 0]
        if step.loop.trip_count is not None:
            conditions.insert(0, iteration < expression(step.loop.trip_count))
        if areas.limit is not None:
            more, limit = self._memory.item(areas.limit.address, "int64")
            declared += more
            conditions.insert(0, iteration < limit)
        if step.loop.conditional:
            more, running = self._memory.item(areas.states[0].address, "int8")
            declared += more
            conditions.insert(0, running != 0)
        return declared, tirx.all(*conditions)

    def _first_states(self, step: LoopStep, plan: MemoryPlan, areas: _LoopAreas) -> list[tirx.Stmt]:
        """Bring the states' first values to where the states live, but for those that are there."""
        return [
            self._copy(first, area, before.bytes)
            for before, after, first, area in zip(
                step.reads[step.first_state :], step.writes, areas.first_states, areas.states, strict=False
            )
            if plan.places[before] != plan.places[after]
        ]

    def _copy(self, source: _Area, target: _Area, count: Dimension) -> tirx.Stmt:
        return self._memory.copy(source.address, target.address, count)


class HostMemory:
    """The memory of the processor that runs the entry; `size_type` is C's size_t on it."""

    failed = _FAILED

    def __init__(self, size_type: str) -> None:
        self._size_type = size_type

    def copy(self, source: tirx.Expr, target: tirx.Expr, count: Dimension) -> tirx.Stmt:
        size = tirx.IntImm(self._size_type, count) if isinstance(count, int) else count.expr.astype(self._size_type)
        return tirx.Evaluate(tirx.call_extern("handle", "memcpy", target, source, size))

    def item(self, address: tirx.Expr, dtype: str) -> tuple[list[tirx.Stmt], tirx.Expr]:
        declared, buffer = _viewed(address, dtype)
        return declared, buffer[0]

    def counter(self, address: tirx.Expr) -> Counter:
        return _HostCounter(*_viewed(address, "int64"))


class _HostCounter:
    def __init__(self, declared: list[tirx.Stmt], buffer: tirx.Var) -> None:
        self.declared = declared
        self.value = buffer[0]
        self._buffer = buffer

    def become(self, value: tirx.Expr) -> tirx.Stmt:
        return tirx.BufferStore(self._buffer, value, [0])


def _workspace_of(body: MemoryPlan, areas: _Areas, own: _Area | None) -> dict[tuple[str, int], _Area]:
    """Where the workspace of a body begins: in the step's own, or where the whole one does if its sizes are open."""
    if body.storages:
        return {key: area for key, area in areas.items() if key[0] == "workspace"}
    return {} if own is None else {("workspace", 0): own}


def _area(place: Place, areas: _Areas) -> _Area:
    return areas[place.base, place.index].at(place.offset)


def kernel_symbol(name: str) -> str:
    """What the entry calls the kernel of this name by."""
    return f"nnefc_kernel_{name}"


def _viewed(address: tirx.Expr, dtype: str) -> tuple[list[tirx.Stmt], tirx.Var]:
    """A buffer of one item at an address, and what declares it."""
    pointer = tirx.Var("item", PointerType(PrimType(dtype)))
    buffer = tirx.decl_buffer((1,), dtype, name="item", data=pointer)
    return [tirx.Bind(pointer, tirx.reinterpret(pointer.ty, address)), tirx.DeclBuffer(buffer, data=pointer)], buffer


def _sequence(statements: list[tirx.Stmt]) -> tirx.Stmt:
    if len(statements) == 1:
        return statements[0]
    return tirx.SeqStmt(statements) if statements else tirx.Evaluate(int64(0))


def exported(func: tirx.PrimFunc, symbol: str) -> tirx.PrimFunc:
    """`func` under a symbol that other objects of the library can call as a C function."""
    return func.with_attrs({"global_symbol": symbol, "calling_conv": _C_CALLING_CONVENTION})


def _byte_pointer(name: str) -> tirx.Var:
    return tirx.Var(name, BYTE_POINTER)
