"""Builds the entry: one function that calls the kernels, the whole network in C's calling convention.

    nnefc_network(input0, …, output0, …, state, workspace, constants) -> int32
        kernel0(input0, constants + 0, workspace + 4096)
        while *(int64 *)(workspace + 0) < 100 && *(bool *)(workspace + 64)
            kernel1(workspace + 4096, constants + 6400, workspace + 64)
            *(int64 *)(workspace + 0) += 1
        …
        return 0

Offsets are constants, but for the elements that a loop reads and writes in each iteration. Nothing is allocated and
nothing is checked here: the runtime did both before. It also notes by itself when one of its services fails a kernel,
so the kernels' own statuses are not looked at (TVM's code generator could only return a constant anyway); a loop asks
it before each iteration, for a kernel that failed may not have written what ends the loop, and so it is asked where a
data-dependent size is read.

The entry calls the kernels by their symbols, for its code goes into an object of its own: see
`targets/codegen/cpu/objects.py`.

For a GPU it is the same, but that all pointers are the device's: see `passes/plan/device_memory.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.ir import GlobalVar, PointerType, PrimType

from nnefc.ir.network import DataDependentSize
from nnefc.passes.plan.entry_memory import Memory
from nnefc.passes.plan.entry_operands import (
    SPAN,
    AnyArea,
    Area,
    Areas,
    LoopAreas,
    Parts,
    Table,
    area_of,
    byte_pointer,
    workspace_of,
)
from nnefc.passes.plan.kept_counts import KeptCounts, keep_count
from nnefc.passes.plan.memory import COUNTER_BYTES, BufferCopy, MemoryPlan
from nnefc.passes.plan.program import Buffer, IfStep, LoopStep, Program, Step, all_data_dependent_sizes
from nnefc.passes.plan.served_outputs import ServedOutputs, always, served_outputs
from nnefc.passes.plan.symbols import ENTRY, exported, kernel_symbol
from nnefc.passes.tir.common.expressions import int64
from nnefc.symbolic.dims import Dimension, expression

__all__ = ["ControlledCall", "entry_function"]

_PROFILE_BEGIN = "nnefc_profile_begin"  # of the runtime: returns the time at which a kernel begins
_PROFILE_END = "nnefc_profile_end"  # of the runtime: adds the time since then to the kernel's
_AT_STEP = "nnefc_at_step"  # of the runtime: records which part of the model the next kernel computes
_LONGEST_STEP = 160  # letters of such a record
_BETWEEN_KERNELS = "nnefc_between_kernels"  # of the runtime: decides whether the call of this number runs
_GO_ON, _END = 0, 1  # its answers; anything else skips the call


@dataclass(frozen=True)
class ControlledCall:
    """A call before which the runtime is asked whether the run goes on.

    Its number is its position among all of a library.

    Attributes:
        step: a kernel, or a branch or loop that may be skipped as a whole.
        served: the outputs that need it, as :mod:`nnefc.passes.plan.served_outputs` has them.
    """

    step: Step | IfStep | LoopStep
    served: int


def entry_function(
    program: Program,
    plan: MemoryPlan,
    signatures: Mapping[GlobalVar, Sequence[tvm.ir.Type]],
    memory: Memory,
    dynamic_dimensions: Sequence[tirx.Var] = (),
    data_dependent: Sequence[tuple[int, int]] = (),
    symbol: str = ENTRY,
    timed: list[Step] | None = None,
    symbols: Mapping[GlobalVar, str] | None = None,
    more: Mapping[GlobalVar, Sequence[tirx.IntImm]] | None = None,
    checked: Mapping[str, str] | None = None,
    calls: list[ControlledCall] | None = None,
    kept: KeptCounts | None = None,
) -> tuple[tirx.PrimFunc, tuple[GlobalVar, ...]]:
    """Returns the entry, and the kernels that it calls.

    Where dimensions are open, a further parameter has their values, and after them the offsets of `plan.storages`.
    After these the entry writes the data-dependent sizes of outputs.

    Among the dynamic dimensions may be data-dependent sizes, without a limit. The entry writes these itself when
    it has computed them, and asks the runtime for the part of the workspace that waited for each. The last parameter is
    what the runtime wants to be asked with.

    Args:
        signatures: the types of the kernels' parameters that are pointers; sizes follow them.
        dynamic_dimensions: of the network.
        data_dependent: the dimensions of outputs that it writes; see
            :func:`nnefc.passes.plan.entry_sizes.data_dependent_sizes`.
        symbol: of the entry.
        timed: where the calls of kernels are noted, in their order, if the entry shall time them: a call's number is
            its position there.
        symbols: what kernels are called by that have not their own symbol.
        more: arguments of kernels behind their sizes.
        checked: what of the model computes tensors, by their names, if kernels check what they do.
        calls: where the calls of kernels are noted, in their order, if the parameter after the constants is a flag that
            is read before each: while it is not 0, the runtime decides whether the run goes on, with this call or the
            next.
        kept: the data-dependent sizes that stay in the memory of a GPU. The entry goes by their limits, and writes
            these as sizes of outputs.
    """
    params = {("input", i): byte_pointer(f"input{i}") for i in range(len(program.inputs))}
    params |= {("output", i): byte_pointer(f"output{i}") for i in range(len(program.outputs))}
    params |= {(name, 0): byte_pointer(name) for name in ("state", "workspace", "constant")}
    views = {key: tirx.decl_buffer((SPAN,), "uint8", name=p.name, data=p) for key, p in params.items()}
    areas = {key: Area(view, int64(0)) for key, view in views.items()}
    state, constant = areas.pop(("state", 0)), areas.pop(("constant", 0))
    areas |= {("state", i): state.at(offset) for i, offset in enumerate(plan.state_offsets)}
    areas |= {("constant", i): constant.at(offset) for i, offset in enumerate(plan.constant_offsets)}
    body = [tirx.DeclBuffer(view, data=params[key]) for key, view in views.items()]
    parameters = list(params.values())
    flag = None
    if calls is not None:
        parameters.append(pointer := tirx.Var("interrupt", PointerType(PrimType("int32"))))
        flag = tirx.decl_buffer((1,), "int32", name="interrupt", data=pointer)
        body.append(tirx.DeclBuffer(flag, data=pointer))
    parts = None
    if dynamic_dimensions or data_dependent:
        values = tirx.Var("sizes", PointerType(PrimType("int64")))
        parameters.append(values)
        known = [*dynamic_dimensions, *(storage.offset for storage in plan.storages)]
        numbers = tirx.decl_buffer((len(known) + len(data_dependent),), "int64", name="numbers", data=values)
        body.append(tirx.DeclBuffer(numbers, data=values))
        table = Table(program, plan, numbers, {var: int64(index) for index, var in enumerate(known)})
        body += table.read(0)
    if program.parts:
        parameters.append(run := byte_pointer("run"))
        parts = Parts(program, table, run)
    counts, every_run = list(all_data_dependent_sizes(program)), always(len(program.outputs))
    writer = _Writer(
        signatures, memory, counts, parts, timed, symbols, more, checked, flag, calls, every_run, kept or KeptCounts()
    )
    body += writer.statements(program, plan, areas, served_outputs(program) if calls is not None else None)
    for position, (output, axis) in enumerate(data_dependent):
        size = expression(program.outputs[output].shape[axis])
        body.append(tirx.BufferStore(numbers, size, [int64(len(known) + position)]))
    body.append(tirx.Return(tirx.IntImm("int32", 0)))
    entry = tirx.PrimFunc(parameters, tirx.SeqStmt(body), ret_type=PrimType("int32"))
    return exported(entry, symbol), tuple(writer.used)


class _Writer:
    """Writes the statements of the entry.

    Attributes:
        used: the kernels that they call.
    """

    def __init__(
        self,
        signatures: Mapping[GlobalVar, Sequence[tvm.ir.Type]],
        memory: Memory,
        counts: Iterable[tuple[Buffer, DataDependentSize]],
        parts: Parts | None,
        timed: list[Step] | None,
        symbols: Mapping[GlobalVar, str] | None,
        more: Mapping[GlobalVar, Sequence[tirx.IntImm]] | None,
        checked: Mapping[str, str] | None,
        flag: tirx.Var | None,
        calls: list[ControlledCall] | None,
        every_run: int,
        kept: KeptCounts,
    ) -> None:
        self._signatures = signatures
        self._memory = memory
        self._counts: dict[Buffer, list[DataDependentSize]] = {}
        for buffer, count in counts:
            self._counts.setdefault(buffer, []).append(count)
        self._parts = parts
        self._timed = timed
        self._symbols = symbols or {}
        self._more = more or {}
        self._checked = checked
        self._flag = flag
        self._calls = calls if calls is not None else []
        self._every_run = every_run
        self._kept = kept
        self.used: dict[GlobalVar, None] = {}

    def statements(
        self, program: Program, plan: MemoryPlan, areas: Areas, served: ServedOutputs | None = None
    ) -> list[tirx.Stmt]:
        """Returns the actions of a program's plan whose locations are in these areas.

        `served` are the outputs that its steps serve; None in bodies, whose steps run whenever the body does.
        """
        areas = dict(areas)
        made = self._write_data_dependent(program.borders, plan, areas)
        for time, action in enumerate(plan.actions):
            position = plan.step_workspaces.get(time)
            workspace = None if position is None else area_of(position, areas)
            match action:
                case Step():
                    answer = self._asked(action, served)
                    call = self._with_time(action, self._call(action, plan, areas, workspace))
                    made += answer.before([*self._noted(action), *call])
                case IfStep():
                    answer = self._asked(action, served)
                    made += answer.before(self._choice(action, plan, areas, workspace))
                case LoopStep():
                    assert workspace is not None
                    answer = self._asked(action, served)
                    loop = LoopAreas.of(action, time, plan, areas)
                    made += answer.before(self._loop(loop, plan.bodies[action][0], areas, workspace))
                case BufferCopy():
                    source = area_of(plan.positions[action.source], areas)
                    made.append(self._copy(source, area_of(action.target, areas), action.bytes))
                    continue
            made += self._write_data_dependent(action.writes, plan, areas)
        return made

    def _write_data_dependent(
        self, buffers: Iterable[Buffer], plan: MemoryPlan, areas: dict[tuple[str, int], AnyArea]
    ) -> list[tirx.Stmt]:
        """Reads the data-dependent sizes in these buffers, and adds to `areas` the workspace parts that waited for
        them.

        The run ends if a kernel has refused a size: the memory that was planned would be too small.

        The run ends where a kernel has refused a size: what has that size would not have the room that steps need.
        """
        made: list[tirx.Stmt] = []
        for buffer, each in ((own, each) for own in buffers for each in self._counts.get(own, ())):
            count = each.var
            if each.limit == 0:  # the kernel only checks: nothing waits for its size
                made.append(tirx.Bind(count, int64(0)))
                continue
            address = area_of(plan.positions[buffer], areas).address
            if count in self._kept.slots and each.limit is not None:
                made += [keep_count(self._kept.slots[count], address), tirx.Bind(count, expression(each.limit))]
                continue
            declared, value = self._memory.item(address, "int64")
            failed = tirx.call_extern("int32", self._memory.failed) != 0
            made += [*declared, tirx.Bind(count, value)]
            made.append(tirx.IfThenElse(failed, tirx.Return(tirx.IntImm("int32", 0)), None))
            if self._parts is not None and self._parts.waits_for(count):
                more, found = self._parts.asked_for(count)
                made += more
                areas |= found
        return made

    def _asked(self, step: Step | IfStep | LoopStep, served: ServedOutputs | None) -> _Answer:
        """Asks the runtime before a kernel, or before a branch or loop that may be skipped, whether the run goes on.

        While the flag is 0 this is a load and a branch.

        While the flag is 0 this is a load and a branch.
        """
        if self._flag is None:
            return _Answer(None, None, False)
        if served is not None and served.may_be_skipped(step):
            users, may_be_skipped = served.of(step), True
        elif isinstance(step, Step):
            users, may_be_skipped = self._every_run, False
        else:
            return _Answer(None, None, False)
        number = tirx.IntImm("int32", len(self._calls))
        self._calls.append(ControlledCall(step, users))
        return _Answer(self._flag[0] != 0, tirx.call_extern("int32", _BETWEEN_KERNELS, number), may_be_skipped)

    def _noted(self, step: Step) -> list[tirx.Stmt]:
        """Records which part of the model a kernel computes, if kernels are checked."""
        if self._checked is None:
            return []
        positions = dict.fromkeys(self._checked.get(name) or f"tensor {name}" for name in step.tensors)
        text = tvm.ir.StringImm((", ".join(positions) or step.kernel.name_hint)[:_LONGEST_STEP])
        return [tirx.Evaluate(tirx.call_extern("int32", _AT_STEP, text))]

    def _with_time(self, step: Step, call: tirx.Stmt) -> list[tirx.Stmt]:
        """Takes the time of a kernel's call, if the entry times calls."""
        if self._timed is None:
            return [call]
        begin = tirx.Var("begin", "int64")
        position = tirx.IntImm("int32", len(self._timed))
        end = tirx.call_extern("int32", _PROFILE_END, position, begin)
        self._timed.append(step)
        return [tirx.Bind(begin, tirx.call_extern("int64", _PROFILE_BEGIN, position)), call, tirx.Evaluate(end)]

    def _call(self, step: Step, plan: MemoryPlan, areas: Areas, workspace: AnyArea | None) -> tirx.Stmt:
        self.used[step.kernel] = None
        operands = [area_of(plan.positions[buffer], areas) for buffer in (*step.reads, *step.writes)]
        if workspace is not None:
            operands.append(workspace)
        types = self._signatures[step.kernel]
        arguments = [tirx.reinterpret(t, operand.address) for t, operand in zip(types, operands, strict=True)]
        arguments += [expression(value) for _, value in step.sizes]
        arguments += self._more.get(step.kernel, ())
        arguments += [int64(number) for count in self._kept.read_by(step) for number in count]
        symbol = self._symbols.get(step.kernel) or kernel_symbol(step.kernel.name_hint)
        return tirx.Evaluate(tirx.call_extern("int32", symbol, *arguments))

    def _choice(self, step: IfStep, plan: MemoryPlan, areas: Areas, workspace: AnyArea | None) -> list[tirx.Stmt]:
        condition, *operands = (area_of(plan.positions[buffer], areas) for buffer in step.reads)
        results = [area_of(plan.positions[buffer], areas) for buffer in step.writes]
        around = {key: area for key, area in areas.items() if key[0] == "constant"}
        around |= {("output", i): area for i, area in enumerate(results)}
        branches = []
        for body, body_plan in zip(step.bodies, plan.bodies[step], strict=True):
            inputs, operands = operands[: len(body.inputs)], operands[len(body.inputs) :]
            inner = around | {("input", i): area for i, area in enumerate(inputs)}
            inner |= workspace_of(body_plan, areas, workspace)
            branches.append(_sequence(self.statements(body, body_plan, inner)))
        declared, holds = self._memory.item(condition.address, "int8")
        return [*declared, tirx.IfThenElse(holds != 0, *branches)]

    def _loop(self, loop: LoopAreas, body_plan: MemoryPlan, areas: Areas, workspace: AnyArea) -> list[tirx.Stmt]:
        """Returns a loop whose counter is at the beginning of its workspace, that of its body behind it:

        counter = 0; states that do not move = their first values
        while the loop goes on: body(iteration = counter); counter = iteration + 1
        results = states that have moved, where these are elsewhere
        """
        body = loop.step.body
        counter = self._memory.counter(workspace.address, is_read=_reads(body, body.inputs[0]))
        iteration = tirx.Var("iteration", "int64")
        inner = {key: area for key, area in areas.items() if key[0] == "constant"}
        inner |= {("input", 0): workspace} | workspace_of(body_plan, areas, workspace.at(COUNTER_BYTES))
        inner |= loop.of_body(iteration)
        declared, goes_on = self._goes_on(loop, counter.value)
        statements = [
            tirx.Bind(iteration, counter.value),
            *self.statements(body, body_plan, inner),
            counter.become(iteration + 1),
        ]
        count = counter.value if loop.trip_count is None else loop.trip_count
        return [
            *counter.declared,
            counter.become(int64(0)),
            *declared,
            *self._first_states(loop),
            tirx.While(goes_on, tirx.SeqStmt(statements)),
            *self._last_states(loop, count),
        ]

    def _goes_on(self, areas: LoopAreas, iteration: tirx.Expr) -> tuple[list[tirx.Stmt], tirx.Expr]:
        """Builds the condition of a loop's next iteration, and the declarations that it needs."""
        loop = areas.step.loop
        declared: list[tirx.Stmt] = []
        conditions = [tirx.call_extern("int32", self._memory.failed) == 0]
        if loop.trip_count is not None:
            conditions.insert(0, iteration < expression(loop.trip_count))
        if areas.limit is not None:
            more, limit = self._memory.item(areas.limit.address, "int64")
            declared += more
            conditions.insert(0, iteration < limit)
        if loop.conditional:
            more, running = self._memory.item(areas.states[0].address, "int8")
            declared += more
            conditions.insert(0, running != 0)
        return declared, tirx.all(*conditions)

    def _first_states(self, areas: LoopAreas) -> list[tirx.Stmt]:
        """Copies the first values of states that have one buffer into it, unless they are there."""
        values = areas.step.reads[areas.step.first_state :]
        return [
            self._copy(first, area, values[index].bytes)
            for index, (first, area) in enumerate(zip(areas.first_states, areas.states, strict=True))
            if index not in areas.moving and index not in areas.in_place
        ]

    def _last_states(self, areas: LoopAreas, count: tirx.Expr | int) -> list[tirx.Stmt]:
        """Copies the last values of states to the loop's results, after `count` iterations."""
        made: list[tirx.Stmt] = []
        for index, area in enumerate(areas.states):
            is_elsewhere = areas.is_elsewhere(index, count)
            if is_elsewhere is False:
                continue
            copy = self._copy(areas.state(index, count), area, areas.step.writes[index].bytes)
            made.append(copy if is_elsewhere is True else tirx.IfThenElse(is_elsewhere, copy, None))
        return made

    def _copy(self, source: AnyArea, target: AnyArea, count: Dimension) -> tirx.Stmt:
        if count == 0:  # an empty tensor may have no address
            return tirx.Evaluate(0)
        return self._memory.copy(source.address, target.address, count)


@dataclass(frozen=True)
class _Answer:
    """The runtime's answer to whether a call runs.

    Attributes:
        is_asked: the condition on which the entry asks the runtime; None if it never does.
        answer: one of the constants above.
        may_skip: whether the answer may be to skip the call.
    """

    is_asked: tirx.Expr | None
    answer: tirx.Expr | None
    may_skip: bool

    def before(self, call: list[tirx.Stmt]) -> list[tirx.Stmt]:
        """Returns the statements of a call, preceded by those that act on the answer."""
        if self.is_asked is None or self.answer is None:
            return call
        end = tirx.Return(tirx.IntImm("int32", 0))
        if not self.may_skip:
            ends = tirx.IfThenElse(self.answer != _GO_ON, end, None)
            return [tirx.IfThenElse(self.is_asked, ends, None), *call]
        answer = tirx.Var("answer", "int32")
        value = tirx.if_then_else(self.is_asked, self.answer, tirx.IntImm("int32", _GO_ON))
        return [
            tirx.Bind(answer, value),
            tirx.IfThenElse(answer == _END, end, None),
            tirx.IfThenElse(answer == _GO_ON, _sequence(call), None),
        ]


def _reads(body: Program, buffer: Buffer) -> bool:
    """Whether a body needs one of its inputs."""
    results = (*body.outputs, *body.new_states, *body.counts)
    return any(buffer in each for each in (*(step.reads for step in body.steps), results))


def _sequence(statements: list[tirx.Stmt]) -> tirx.Stmt:
    if len(statements) == 1:
        return statements[0]
    return tirx.SeqStmt(statements) if statements else tirx.Evaluate(int64(0))
