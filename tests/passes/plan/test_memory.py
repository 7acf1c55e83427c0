"""The memory plan, checked by running it: kernels that stamp every byte, on memory that starts as garbage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.ir import GlobalVar

from nnefc.ir.network import Body, Loop
from nnefc.passes.plan.late_updates import with_late_updates
from nnefc.passes.plan.locations import NEW_STATE, OUTPUT, MemoryLocation
from nnefc.passes.plan.loop_states import alternating_states, moving_states
from nnefc.passes.plan.memory import COUNTER_BYTES, BufferCopy, MemoryPlan, plan_memory
from nnefc.passes.plan.offsets import Storage, alive_at, assign_offsets
from nnefc.passes.plan.program import Buffer, IfStep, LoopStep, MemoryKind, Program, Step
from nnefc.passes.schedule.in_place import InPlace

ALIGNMENT = 64


@dataclass
class Writer:
    """Writes programs whose buffers are rows of bytes."""

    inputs: list[Buffer] = field(default_factory=list)
    states: list[Buffer] = field(default_factory=list)
    constants: list[Buffer] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    in_place: dict[GlobalVar, InPlace] = field(default_factory=dict)
    workspaces: dict[GlobalVar, int] = field(default_factory=dict)
    count: int = 0

    def input(self, size: int) -> Buffer:
        self.inputs.append(Buffer(MemoryKind.INPUT, len(self.inputs), (size,), "uint8"))
        return self.inputs[-1]

    def state(self, size: int) -> Buffer:
        self.states.append(Buffer(MemoryKind.STATE, len(self.states), (size,), "uint8"))
        return self.states[-1]

    def constant(self, size: int) -> Buffer:
        self.constants.append(Buffer(MemoryKind.CONSTANT, len(self.constants), (size,), "uint8"))
        return self.constants[-1]

    def step(self, reads: list[Buffer], sizes: list[int], allowed: InPlace, own: int = 0) -> list[Buffer]:
        kernel = GlobalVar(f"kernel{len(self.steps)}")
        writes = [Buffer(MemoryKind.WORKSPACE, self.count + i, (size,), "uint8") for i, size in enumerate(sizes)]
        self.count += len(sizes)
        self.steps.append(Step(kernel, tuple(reads), tuple(writes)))
        self.in_place[kernel] = allowed
        self.workspaces[kernel] = own
        return writes

    def compute(self, reads: list[Buffer], size: int, overwritable: tuple[int, ...] = (), own: int = 0) -> Buffer:
        return self.step(reads, [size], InPlace(overwritable=overwritable), own)[0]

    def update(self, source: Buffer, others: Sequence[Buffer] = ()) -> Buffer:
        """The source with its first half changed."""
        return self.step([*others, source], [source.bytes], InPlace(updates=len(others)))[0]

    def reshape(self, source: Buffer) -> Buffer:
        return self.step([source], [source.bytes], InPlace(reshape=True))[0]

    def concatenate(self, parts: list[Buffer]) -> Buffer:
        return self.step(parts, [sum(part.bytes for part in parts)], InPlace(concatenation=True))[0]

    def split(self, source: Buffer, sizes: list[int]) -> list[Buffer]:
        return self.step([source], sizes, InPlace(parts=True))

    def plan(self, outputs: list[Buffer], new_states: list[Buffer] | None = None) -> tuple[Program, MemoryPlan]:
        program = Program(
            steps=tuple(self.steps),
            inputs=tuple(self.inputs),
            states=tuple(self.states),
            outputs=tuple(outputs),
            new_states=tuple(self.states if new_states is None else new_states),
            constants=tuple(np.zeros(constant.bytes, np.uint8) for constant in self.constants),
            kernels={},
        )
        program = with_late_updates(program, self.in_place)
        return program, plan_memory(program, self.in_place, self.workspaces)


class Machine:
    """Runs a plan; each byte of each buffer has a number of its own, so that nothing is right by chance."""

    def __init__(self, writer: Writer, program: Program, plan: MemoryPlan) -> None:
        self.writer, self.program, self.plan = writer, program, plan
        self.stamps = 0
        self.memory = {("input", b.index): self.fresh(b.bytes) for b in program.inputs}
        self.memory |= {("output", i): self.fresh(b.bytes) for i, b in enumerate(program.outputs)}
        self.memory["workspace", 0] = self.fresh(plan.workspace_bytes)
        for kind, buffers in (("constant", writer.constants), ("state", program.states)):
            self.memory |= {(kind, buffer.index): self.fresh(buffer.bytes) for buffer in buffers}
        self.content: dict[Buffer, np.ndarray] = {}

    def fresh(self, size: int) -> np.ndarray:
        self.stamps += size
        return np.arange(self.stamps - size, self.stamps)

    def at(self, slot: MemoryLocation, size: int) -> np.ndarray:
        area = self.memory[slot.base, slot.index]
        assert slot.offset >= 0 and slot.offset + size <= area.size, f"{slot} + {size} leaves its area"
        return area[slot.offset : slot.offset + size]

    def of(self, buffer: Buffer) -> np.ndarray:
        return self.at(self.plan.positions[buffer], buffer.bytes)

    def run(self) -> None:
        for buffer in (*self.program.inputs, *self.program.states, *self.writer.constants):
            if buffer in self.plan.positions:
                self.content[buffer] = self.of(buffer).copy()
        for step in self.program.steps:  # what the values must be, without any memory
            allowed = self.writer.in_place[step.kernel]
            parts = [self.content[read] for read in step.reads]
            begin = 0
            for write in step.writes:
                if allowed.parts:
                    self.content[write] = parts[0][begin : begin + write.bytes]
                    begin += write.bytes
                    continue
                joined = allowed.reshape or allowed.concatenation
                self.content[write] = np.concatenate(parts) if joined else self.fresh(write.bytes)
                if allowed.updates is not None:
                    half = write.bytes // 2
                    self.content[write][half:] = parts[allowed.updates][half:]
        for time, action in enumerate(self.plan.actions):
            if isinstance(action, Step):
                self.call(time, action)
            else:
                self.at(action.target, action.bytes)[:] = self.of(action.source).copy()
        for index, buffer in enumerate(self.program.outputs):
            assert np.array_equal(self.memory["output", index], self.content[buffer]), f"output {index}"
        for state, new in zip(self.program.states, self.program.new_states, strict=True):
            assert np.array_equal(self.of(state), self.content[new]), f"state {state.index}"

    def call(self, time: int, step: Step) -> None:
        """Check all that the kernel reads, and that it may write in any order without spoiling it."""
        for position, read in enumerate(step.reads):
            assert np.array_equal(self.of(read), self.content[read]), f"operand {position} of {step.kernel}"
        written = [(self.plan.positions[write], write.bytes) for write in step.writes]
        if self.writer.workspaces[step.kernel]:
            written.append((self.plan.step_workspaces[time], self.writer.workspaces[step.kernel]))
            assert written[-1][0].offset % ALIGNMENT == 0
        allowed = self.writer.in_place[step.kernel]
        if allowed.updates is not None:
            assert np.array_equal(self.of(step.writes[0]), self.content[step.reads[allowed.updates]]), "not there yet"
        for i, target in enumerate(written):
            assert target[0].base in ("workspace", "output") or (allowed.updates is not None and i == 0)
            for position, read in enumerate(step.reads):
                source = (self.plan.positions[read], read.bytes)
                may_be = position in allowed.overwritable or position == allowed.updates
                same = may_be and i == 0 and source == target
                assert same or not _overlap(source, target), f"{step.kernel} spoils its operand {position}"
            assert not any(_overlap(target, other) for other in written[:i])
        for slot, size in written:
            self.at(slot, size)[:] = self.fresh(size)
        for write in step.writes:
            self.of(write)[:] = self.content[write]


def _overlap(one: tuple[MemoryLocation, int], other: tuple[MemoryLocation, int]) -> bool:
    (a, size), (b, length) = one, other
    return (a.base, a.index) == (b.base, b.index) and a.offset < b.offset + length and b.offset < a.offset + size


def check(writer: Writer, outputs: list[Buffer], new_states: list[Buffer] | None = None) -> MemoryPlan:
    program, plan = writer.plan(outputs, new_states)
    Machine(writer, program, plan).run()
    assert plan.workspace_bytes >= plan.lower_bound
    return plan


SIZES = st.sampled_from([1, 4, 60, 64, 64, 100, 128, 128, 256, 1000])


@st.composite
def programs(draw: st.DrawFn) -> tuple[Writer, list[Buffer], list[Buffer]]:
    """Random programs of all kinds of steps, in which most buffers have one of a few sizes."""
    writer = Writer()
    known = [writer.input(draw(SIZES)) for _ in range(draw(st.integers(1, 2)))]
    known += [writer.state(draw(SIZES)) for _ in range(draw(st.integers(0, 3)))]
    known += [writer.constant(draw(SIZES)) for _ in range(draw(st.integers(0, 2)))]
    for _ in range(draw(st.integers(1, 12))):
        recent = st.sampled_from(known[-6:])
        match draw(st.sampled_from([*["compute"] * 3, "two", "reshape", "concatenate", "split", "update"])):
            case "compute":
                reads = draw(st.lists(recent, min_size=1, max_size=3))
                size = draw(st.sampled_from([reads[0].bytes, reads[0].bytes, draw(SIZES)]))
                same = [i for i, read in enumerate(reads) if read.bytes == size]
                allowed = tuple(draw(st.lists(st.sampled_from(same), unique=True))) if same else ()
                known.append(writer.compute(reads, size, allowed, draw(st.sampled_from([0, 0, 10, 300]))))
            case "update":
                source, other = draw(st.sampled_from(known)), draw(recent)
                known.append(writer.update(source, [] if other is source else [other]))
            case "two":
                known += writer.step([draw(recent)], [draw(SIZES), draw(SIZES)], InPlace())
            case "reshape":
                known.append(writer.reshape(draw(recent)))
            case "concatenate":
                known.append(writer.concatenate(draw(st.lists(recent, min_size=1, max_size=4))))
            case "split":
                source = draw(recent)
                size = draw(st.integers(1, source.bytes))
                known += writer.split(source, [size, source.bytes - size] if size < source.bytes else [size])
    outputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    updated = [step.writes[0] for step in writer.steps if writer.in_place[step.kernel].updates is not None]
    new_states = [
        draw(st.sampled_from([b for b in [*known, *updated, *updated] if b.bytes == s.bytes])) for s in writer.states
    ]
    return writer, outputs, new_states


@settings(max_examples=60, deadline=None)
@given(programs())
def test_every_kernel_reads_what_was_written_for_it(drawn: tuple[Writer, list[Buffer], list[Buffer]]) -> None:
    check(*drawn)


def test_a_chain_takes_two_buffers() -> None:
    writer = Writer()
    value = writer.input(1000)
    for _ in range(9):
        value = writer.compute([value], 1000)
    plan = check(writer, [value])
    assert plan.workspace_bytes == plan.lower_bound == 2 * 1024


def test_storages_interlock_where_the_largest_first_would_leave_a_gap() -> None:
    lives = [(128, 0, 1), (256, 0, 0), (192, 3, 3), (192, 1, 3), (320, 2, 2)]  # the largest first: 640 bytes
    storages = [Storage(*life) for life in lives]
    assert assign_offsets(storages) == max(alive_at(storages)) == 512
    for one, other in combinations(storages, 2):
        if one.first <= other.last and other.first <= one.last:
            assert one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset


def test_the_greatest_dynamic_sizes_may_exceed_64_bits() -> None:
    storages = [Storage(1 << 62, 0, 1), Storage(1 << 63, 1, 2), Storage(64, 0, 2)]
    assert assign_offsets(storages) == (1 << 62) + (1 << 63) + 64
    nothing = Storage(-1 << 64, 0, 2)  # what is left of a difference
    assert assign_offsets([*storages, nothing]) == (1 << 62) + (1 << 63) + 64


def test_a_chain_of_element_wise_steps_takes_one_buffer() -> None:
    writer = Writer()
    value = writer.input(1000)
    for _ in range(9):
        value = writer.compute([value], 1000, overwritable=(0,))
    assert check(writer, [value]).workspace_bytes == 1024


def test_an_operand_that_is_read_later_is_not_overwritten() -> None:
    writer = Writer()
    first = writer.compute([writer.input(64)], 64)
    second = writer.compute([first], 64, overwritable=(0,))
    assert check(writer, [writer.compute([first, second], 64)]).workspace_bytes == 128


def test_an_operand_is_not_overwritten_while_another_operand_is_a_view_of_it() -> None:
    writer = Writer()
    value = writer.compute([writer.input(64)], 64)
    result = writer.compute([value, writer.reshape(value)], 64, overwritable=(0,))
    check(writer, [writer.compute([result], 64)])


def test_an_operand_is_not_overwritten_while_another_operand_is_a_part_of_it() -> None:
    writer = Writer()
    part = writer.compute([writer.input(64)], 64)
    whole = writer.concatenate([part, writer.compute([part], 64)])
    result = writer.compute([whole, part], 128, overwritable=(0,))
    check(writer, [writer.compute([result], 64)])


def test_operands_of_a_concatenation_are_written_into_the_result() -> None:
    writer = Writer()
    source = writer.input(64)
    parts = [writer.compute([source], size) for size in (100, 4, 60)]
    plan = check(writer, [writer.concatenate(parts)])
    assert not [action for action in plan.actions if isinstance(action, BufferCopy)]
    assert [plan.positions[part] for part in parts] == [MemoryLocation("output", 0, offset) for offset in (0, 100, 104)]
    assert plan.workspace_bytes == 0


def test_parts_are_read_where_they_lie() -> None:
    writer = Writer()
    whole = writer.compute([writer.input(64)], 300)
    parts = writer.split(whole, [100, 160, 40])
    plan = check(writer, [writer.compute(parts, 10)])
    assert len(plan.actions) == 2
    begin = plan.positions[whole].offset
    assert [plan.positions[part].offset - begin for part in parts] == [0, 100, 260]


def test_a_tensor_is_not_overwritten_while_a_part_of_it_is_read_later() -> None:
    writer = Writer()
    whole = writer.compute([writer.input(64)], 128)
    _, part = writer.split(whole, [64, 64])
    result = writer.compute([whole], 128, overwritable=(0,))
    check(writer, [writer.compute([result, part], 64)])


def test_concatenations_of_concatenations_move_nothing() -> None:
    writer = Writer()
    source = writer.input(64)
    inner = writer.concatenate([writer.compute([source], 64), writer.compute([source], 64)])
    plan = check(writer, [writer.concatenate([writer.compute([source], 10), writer.reshape(inner)])])
    assert all(isinstance(action, Step) for action in plan.actions)


@pytest.mark.parametrize("kind", ["input", "constant", "state"])
def test_operands_of_a_concatenation_that_live_elsewhere_are_copied(kind: str) -> None:
    writer = Writer()
    elsewhere = getattr(writer, kind)(64)
    plan = check(writer, [writer.concatenate([elsewhere, writer.compute([writer.input(10)], 64)])])
    assert [action.source for action in plan.actions if isinstance(action, BufferCopy)] == [elsewhere]


def test_a_buffer_twice_in_a_concatenation_is_copied_once() -> None:
    writer = Writer()
    part = writer.compute([writer.input(10)], 64)
    plan = check(writer, [writer.concatenate([part, part])])
    assert sum(isinstance(action, BufferCopy) for action in plan.actions) == 1


def test_outputs_are_written_directly_and_duplicates_copied() -> None:
    writer = Writer()
    source = writer.input(64)
    value = writer.compute([source], 64)
    plan = check(writer, [value, value, writer.reshape(value), source])
    assert plan.positions[value] == MemoryLocation("output", 0, 0)
    assert [a.target for a in plan.actions if isinstance(a, BufferCopy)] == [
        MemoryLocation("output", i, 0) for i in (1, 2, 3)
    ]
    assert plan.workspace_bytes == 0


def test_states_exchange_their_values() -> None:
    writer = Writer()
    a, b = writer.state(64), writer.state(64)
    check(writer, [writer.compute([a, b], 64)], [b, a])


def test_states_in_a_row_are_a_delay_line() -> None:
    writer = Writer()
    x = writer.input(64)
    states = [writer.state(64) for _ in range(4)]
    check(writer, [writer.compute([states[3]], 64)], [x, writer.reshape(states[0]), states[1], states[2]])


def test_a_state_that_keeps_its_value_is_not_copied() -> None:
    writer = Writer()
    state = writer.state(64)
    plan = check(writer, [writer.compute([state], 64)], [writer.reshape(state)])
    assert all(isinstance(action, Step) for action in plan.actions)


@pytest.mark.parametrize("later", [False, True])
def test_a_state_is_updated_where_it_is_unless_its_old_value_is_needed_later(later: bool) -> None:
    writer = Writer()
    state = writer.state(64)
    view = writer.reshape(state)
    before = writer.compute([view], 8)
    new = writer.update(view)
    outputs = [before, writer.compute([new], 8), writer.compute([view if later else new], 8)]
    plan = check(writer, outputs, [writer.reshape(new)])
    copies = [action for action in plan.actions if isinstance(action, BufferCopy)]
    assert [copy.bytes for copy in copies] == ([64, 64] if later else [])
    assert (plan.positions[new] == MemoryLocation("state", 0, 0)) != later


def test_an_update_comes_behind_all_readers_of_the_old_value() -> None:
    writer = Writer()
    states, x = [writer.state(64), writer.state(128)], writer.input(64)
    new = [writer.reshape(writer.update(writer.reshape(state), [x])) for state in states]
    made = [writer.compute([state, x], 8) for state in states]
    plan = check(writer, [writer.compute([writer.reshape(states[0]), *made], 8)], new)
    assert not any(isinstance(action, BufferCopy) for action in plan.actions)
    assert plan.workspace_bytes < 64 + 128


def test_a_long_chain_of_updates_takes_time_in_proportion() -> None:
    writer = Writer()
    states = [writer.state(64) for _ in range(2000)]
    new = [writer.update(state) for state in states]
    plan = check(writer, [writer.compute(new[-1:], 8)], new)
    assert not any(isinstance(action, BufferCopy) for action in plan.actions)
    assert plan.workspace_bytes == 0  # the states have memory of their own


def test_an_output_that_is_a_state_has_its_value_before_the_run() -> None:
    writer = Writer()
    state = writer.state(64)
    check(writer, [state], [writer.compute([state], 64)])


def test_a_state_without_a_reader_has_memory() -> None:
    writer = Writer()
    state, x = writer.state(64), writer.input(64)
    assert check(writer, [writer.compute([x], 64)], [x]).positions[state] == MemoryLocation("state", 0, 0)


def test_areas_are_aligned() -> None:
    writer = Writer()
    reads = [writer.constant(3), writer.constant(70), writer.constant(1), writer.state(5), writer.state(5)]
    plan = check(writer, [writer.compute(reads, 10)])
    assert plan.constant_offsets == (0, 64, 192)
    assert plan.constant_bytes == 256
    assert plan.state_bytes == 128


def test_private_workspaces_reuse_what_is_free() -> None:
    writer = Writer()
    value = writer.input(64)
    for _ in range(3):
        value = writer.compute([value], 64, own=640)
    plan = check(writer, [value])
    assert plan.workspace_bytes == plan.lower_bound == 640 + 128


def loop_of(writer: Writer, first: Buffer) -> tuple[LoopStep, Buffer]:
    """A loop with one state, which a kernel with 128 bytes of its own computes again in each iteration."""
    state = Buffer(MemoryKind.STATE, 0, (256,), "uint8")
    new = Buffer(MemoryKind.WORKSPACE, 0, (256,), "uint8")
    kernel = GlobalVar("round")
    writer.in_place[kernel], writer.workspaces[kernel] = InPlace(), 128
    number = Buffer(MemoryKind.INPUT, 0, (), "int64")
    body = Program((Step(kernel, (state,), (new,)),), (number,), (state,), (), (new,), (), {})
    last = Buffer(MemoryKind.WORKSPACE, 99, (256,), "uint8")
    loop = Loop(
        Body(tvm.IRModule({}), 1, ()),
        5,
        has_trip_count=False,
        conditional=False,
        reversed_inputs=(),
        reversed_outputs=(),
    )
    writer.steps.append(LoopStep(loop, body, (first,), (last,)))
    return writer.steps[-1], last


def test_a_state_alternates_between_two_buffers_unless_it_is_an_output_or_computed_elsewhere() -> None:
    step, _ = loop_of(Writer(), Buffer(MemoryKind.INPUT, 0, (256,), "uint8"))
    (new,) = step.body.new_states
    for base, moves, alternates in ((NEW_STATE, True, True), (OUTPUT, True, False), ("workspace", False, False)):
        positions = {new: MemoryLocation(base, 0, 0)}
        assert bool(moving_states(step.body, step.loop, positions)) == moves
        assert bool(alternating_states(step.body, step.loop, positions)) == alternates


@pytest.mark.parametrize("needed", [False, True])
def test_a_state_of_a_loop_lives_where_it_begins_unless_that_is_needed_later(needed: bool) -> None:
    writer = Writer()
    first = writer.compute([writer.input(64)], 256)
    step, last = loop_of(writer, first)
    end = writer.compute([last, first] if needed else [last], 64)
    _, plan = writer.plan([end])
    assert (plan.positions[first] == plan.positions[last]) != needed
    (body,) = plan.bodies[step]
    assert body.workspace_bytes == 128
    areas = sorted({(plan.positions[first].offset, 256), (plan.positions[last].offset, 256)})
    areas += [(plan.second_states[1][0].offset, 256)]
    areas = sorted([*areas, (plan.step_workspaces[1].offset, COUNTER_BYTES + body.workspace_bytes)])
    assert all(offset + size <= after for (offset, size), (after, _) in pairwise(areas))
    assert sum(areas[-1]) <= plan.workspace_bytes


def test_a_choice_has_the_workspace_of_its_larger_branch() -> None:
    writer = Writer()
    condition, x = writer.input(1), writer.input(64)
    branches = []
    for size in (64, 640):
        given, result = Buffer(MemoryKind.INPUT, 0, (64,), "uint8"), Buffer(MemoryKind.WORKSPACE, 1, (64,), "uint8")
        middle = Buffer(MemoryKind.WORKSPACE, 0, (size,), "uint8")
        steps = Step(GlobalVar("one"), (given,), (middle,)), Step(GlobalVar("two"), (middle,), (result,))
        branches.append(Program(steps, (given,), (), (result,), (), (), {}))
    made = Buffer(MemoryKind.WORKSPACE, 99, (64,), "uint8")
    step = IfStep(branches[0], branches[1], (condition, x, x), (made,))
    writer.steps.append(step)
    _, plan = writer.plan([made])
    assert [body.workspace_bytes for body in plan.bodies[step]] == [64, 640]
    assert plan.workspace_bytes == 640
    assert plan.positions[made] == MemoryLocation("output", 0, 0)


def test_a_long_chain_of_views_takes_time_in_proportion() -> None:
    """From each view one step leads to its root, once it was asked for: not 200 million in all."""
    writer = Writer()
    x = last = writer.input(64)
    for _ in range(20_000):
        last = writer.reshape(last)
    _, plan = writer.plan([last])
    assert plan.positions[last] == MemoryLocation("input", 0, 0) == plan.positions[x]
