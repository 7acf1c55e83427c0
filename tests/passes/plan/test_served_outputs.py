"""Which outputs each step of a program serves, which steps a run for some outputs skips, and whose memory runs use."""

from __future__ import annotations

import pytest
from tvm import tirx
from tvm.ir import GlobalVar

from nnefc.ir.network import DataDependentSize
from nnefc.passes.plan.memory import plan_memory
from nnefc.passes.plan.program import Buffer, MemoryKind, Program, Step
from nnefc.passes.plan.served_outputs import always, memory_users, served_outputs
from nnefc.passes.schedule.in_place import InPlace
from nnefc.symbolic.ranges import Range


def buffer(kind: MemoryKind = MemoryKind.WORKSPACE, index: int = 0) -> Buffer:
    return Buffer(kind, index, (64,), "uint8")


def step(number: int, reads: tuple[Buffer, ...], writes: tuple[Buffer, ...]) -> Step:
    return Step(GlobalVar(f"kernel{number}"), reads, writes)


def program(
    steps: list[Step],
    outputs: tuple[Buffer, ...],
    states: tuple[Buffer, ...] = (),
    new_states: tuple[Buffer, ...] = (),
    counts: dict[Buffer, tuple[DataDependentSize, ...]] | None = None,
) -> Program:
    inputs = (steps[0].reads[0],)
    return Program(tuple(steps), inputs, states, outputs, new_states, (), {}, counts or {})


def test_a_step_serves_the_outputs_that_depend_on_it() -> None:
    x = buffer(MemoryKind.INPUT)
    shared, first, second, unused = (buffer(index=i) for i in range(4))
    steps = [step(0, (x,), (shared,)), step(1, (shared,), (first, unused)), step(2, (shared,), (second,))]
    served = served_outputs(program(steps, (first, second)))
    assert [served.of(each) for each in steps] == [0b11, 0b01, 0b10]
    # Each run is for an output at least: the first step runs always, without a question.
    assert [served.may_be_skipped(each) for each in steps] == [False, True, True]


def test_an_output_that_others_are_computed_from_serves_these_too() -> None:
    x = buffer(MemoryKind.INPUT)
    early, late = (buffer(index=i) for i in range(2))
    steps = [step(0, (x,), (early,)), step(1, (early,), (late,))]
    served = served_outputs(program(steps, (early, late)))
    assert [served.of(each) for each in steps] == [0b11, 0b10]


def test_states_are_computed_by_every_run_and_a_run_may_be_for_them_alone() -> None:
    x, state = buffer(MemoryKind.INPUT), buffer(MemoryKind.STATE)
    new, y = (buffer(index=i) for i in range(2))
    steps = [step(0, (x, state), (new,)), step(1, (new,), (y,))]
    served = served_outputs(program(steps, (y,), (state,), (new,)))
    assert [served.of(each) for each in steps] == [0b1 | always(1), 0b1]
    assert [served.may_be_skipped(each) for each in steps] == [False, True]


@pytest.mark.parametrize("by_count", [False, True])
def test_sizes_and_checks_are_computed_by_every_run(by_count: bool) -> None:
    x = buffer(MemoryKind.INPUT)
    middle, first, second = (buffer(index=i) for i in range(3))
    last = (buffer(index=3),) if by_count else ()  # a kernel that writes nothing checks what it reads
    steps = [step(0, (x,), (first,)), step(1, (x,), (middle,)), step(2, (middle,), (second,))]
    steps.append(step(3, (middle,), last))
    size = DataDependentSize(tirx.Var("count", "int64"), 64, Range(0, 64, 64))
    served = served_outputs(program(steps, (first, second), counts=dict.fromkeys(last, (size,))))
    assert [served.of(each) for each in steps] == [0b01, 0b10 | always(2), 0b10, always(2)]
    assert [served.may_be_skipped(each) for each in steps] == [True, False, True, False]


def test_the_memory_of_an_output_is_used_by_runs_for_all_that_is_computed_from_it() -> None:
    x = buffer(MemoryKind.INPUT)
    middle, first, second = (buffer(index=i) for i in range(3))
    steps = [step(0, (x,), (middle,)), step(1, (middle,), (second,)), step(2, (middle,), (first,))]
    made = program(steps, (first, second, x))
    in_place = {each.kernel: InPlace(reshape=each is steps[2]) for each in steps}
    plan = plan_memory(made, in_place, {each.kernel: 0 for each in steps})
    assert plan.positions[middle] == plan.positions[first]
    # The third output is a copy of the input, made in every run.
    assert memory_users(made, plan, served_outputs(made)) == (0b011, 0b010, 0b100 | always(3))
