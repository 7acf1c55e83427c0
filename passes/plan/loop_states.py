"""Finds the states of a loop that need no copy from iteration to iteration.

    while …: body(state) -> new;  copy(state, new)      →      while …: body(there) -> new;  there = address of new

The next iteration reads a new value where the body has written it:

- where the new value is an output of the body too, in the element of the stacked output: iteration i reads element
  i - 1;
- else in one of two buffers, between which the state alternates.

A state that is updated in place has one buffer, the loop's result. So have the condition of a loop, a state whose size
is known in the body alone, and a state whose new value is something else than what the body computes, such as another
state's old value. Addresses are in `entry_operands.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnefc.ir.network import Loop
from nnefc.passes.plan.locations import NEW_STATE, OUTPUT, MemoryLocation
from nnefc.passes.plan.program import Buffer, Program, all_data_dependent_sizes
from nnefc.symbolic.dims import expression, variables

__all__ = ["alternating_states", "moving_states", "results_of_body"]


def results_of_body(body: Program, loop: Loop) -> list[tuple[tuple[str, int], Buffer]]:
    """Returns the results of a loop's body that it may write where the next iteration reads them, by base and index."""
    inner = {count.var for _, count in all_data_dependent_sizes(body)}
    return [
        ((NEW_STATE, index), new)
        for index, (state, new) in enumerate(zip(body.states, body.new_states, strict=True))
        if not (loop.conditional and index == 0)
        and inner.isdisjoint(var for buffer in (state, new) for var in variables(expression(buffer.bytes)))
    ]


def moving_states(body: Program, loop: Loop, positions: Mapping[Buffer, MemoryLocation]) -> dict[int, MemoryLocation]:
    """Returns for each moving state where the body writes the value that the next iteration reads there.

    Args:
        positions: the locations of the body's buffers.
    """
    found = {}
    for (base, index), new in results_of_body(body, loop):
        there = positions[new]
        if there.base == OUTPUT or there == MemoryLocation(base, index, 0):
            found[index] = there
    return found


def alternating_states(body: Program, loop: Loop, positions: Mapping[Buffer, MemoryLocation]) -> list[int]:
    """Returns the states that alternate between two buffers."""
    return [index for index, there in moving_states(body, loop, positions).items() if there.base == NEW_STATE]
