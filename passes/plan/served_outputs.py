"""Finds the outputs that each step of a program serves, so that a run for some outputs can skip the other steps.

A set of outputs is an integer with a bit for each; the bit behind them, :func:`always`, is of steps that every run
needs: those that compute states, and sizes that the entry reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnefc.passes.plan.memory import BufferCopy, MemoryPlan
from nnefc.passes.plan.program import Buffer, IfStep, LoopStep, Program, Step

__all__ = ["ServedOutputs", "always", "memory_users", "served_outputs"]


def always(outputs: int) -> int:
    """Returns the set of steps that every run needs, for a network with this number of outputs."""
    return 1 << outputs


@dataclass(frozen=True)
class ServedOutputs:
    """The outputs that the steps of a program serve.

    Attributes:
        outputs: how many the network has.
        has_states: whether a run without outputs changes anything.
        sets: the outputs that depend on each step, by the first buffer that the step writes.
    """

    outputs: int
    has_states: bool
    sets: Mapping[Buffer, int]

    def of(self, step: Step | IfStep | LoopStep) -> int:
        """Returns the outputs that depend on a step."""
        return self.sets.get(step.writes[0], 0) if step.writes else always(self.outputs)

    def may_be_skipped(self, step: Step | IfStep | LoopStep) -> bool:
        """Whether a run for some of the outputs can do without a step."""
        served, needed = self.of(step), always(self.outputs)
        return not served & needed and (self.has_states or served != needed - 1)


def served_outputs(program: Program) -> ServedOutputs:
    """Returns the outputs that each step of a program serves; steps of bodies count as part of their branch or loop."""
    count = len(program.outputs)
    sets: dict[Buffer, int] = {}

    def add(buffer: Buffer, served: int) -> None:
        sets[buffer] = sets.get(buffer, 0) | served

    for index, buffer in enumerate(program.outputs):
        add(buffer, 1 << index)
    for buffer in (*program.new_states, *program.counts):
        add(buffer, always(count))
    for step in reversed(program.steps):
        served = 0 if step.writes else always(count)
        for buffer in step.writes:
            served |= sets.get(buffer, 0)
        for buffer in (*step.reads, *step.writes):
            add(buffer, served)
    return ServedOutputs(count, bool(program.states), sets)


def memory_users(program: Program, plan: MemoryPlan, served: ServedOutputs) -> tuple[int, ...]:
    """Returns for each output the outputs for which a run uses its memory, where intermediate values may lie.

    Copies between buffers are made in every run.
    """
    users = [1 << index for index in range(len(program.outputs))]
    for action in plan.actions:
        match action:
            case BufferCopy(source, target):
                positions, of = [plan.positions[source], target], always(served.outputs)
            case _:
                positions, of = [plan.positions[b] for b in (*action.reads, *action.writes)], served.of(action)
        for position in positions:
            if position.base == "output":
                users[position.index] |= of
    return tuple(users)
