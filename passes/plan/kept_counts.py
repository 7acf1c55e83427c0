"""Finds data-dependent sizes that stay in the memory of a GPU: kernels read them there, and the host waits for none.

    k = nonzero(x); n = *k                         k = nonzero(x); count 0 = *k       # a copy within the device
    y = first(k, n)                           →    y = first(k, limit of n, count 0)  # blocks beyond n end at once
    z = relu(y, n)                                 z = relu(y, limit of n, count 0)

Such a size has a limit, for which memory is laid out before the run, and kernels are launched. Kernels of the device
alone take it, `factor * n + added` as an argument; the host needs no copy, branch, loop or tensor map of it. Where an
output has that size, the host reads it once, when the run is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import tvm
from tvm import tirx

from nnefc.passes.plan.program import Program, Step, kernel_stages, size_variables
from nnefc.symbolic.dims import Dimension, expression, substituted, variables
from nnefc.symbolic.formulas import factor_of

__all__ = ["KeptCount", "KeptCounts", "keep_count", "kept_counts"]

_KEEP = "nnefc_cuda_keep_count"  # of the runtime: copies a count within the device's memory


class KeptCount(NamedTuple):
    """A size that follows from a count in the device's memory: `factor * count + added`.

    Attributes:
        slot: of the count, among those of a session.
        factor: positive.
    """

    slot: int
    factor: int
    added: int


@dataclass(frozen=True)
class KeptCounts:
    """The data-dependent sizes of a program that stay in the memory of the device.

    Attributes:
        slots: of their counts.
        arguments: for each kernel that reads some, the positions of these among its sizes.
        outputs: for each data-dependent dimension of the outputs, how it follows from a count; None where the host has
            read the size.
    """

    slots: Mapping[tirx.Var, int] = field(default_factory=dict)
    arguments: Mapping[tvm.ir.GlobalVar, tuple[int, ...]] = field(default_factory=dict)
    outputs: tuple[KeptCount | None, ...] = ()

    def read_by(self, step: Step) -> Iterator[KeptCount]:
        """Yields the kept sizes that a kernel reads in a call, in the order of its parameters."""
        for position in self.arguments.get(step.kernel, ()):
            found = self.of(step.sizes[position][1])
            assert found is not None
            yield found

    def of(self, size: Dimension) -> KeptCount | None:
        """Returns how a size follows from a count; None if it follows from none or several, or in another way."""
        used = _variables(size) & self.slots.keys()
        if len(used) != 1:
            return None
        (var,) = used
        factor, added = factor_of(size, var), substituted(size, {var: 0})
        if factor is None or factor < 0 or not isinstance(added, int):
            return None
        return KeptCount(self.slots[var], factor, added)


def kept_counts(
    program: Program, readers: Collection[tvm.ir.GlobalVar], data_dependent: Sequence[tuple[int, int]]
) -> KeptCounts:
    """Returns the sizes of a program that may stay in the memory of the device.

    Args:
        readers: the kernels that can take sizes that the host does not know, those that are views among them.
        data_dependent: the dimensions of outputs that the entry writes.
    """
    if program.parts:  # memory is laid out in the run
        return KeptCounts()
    counts = (count for each in program.counts.values() for count in each)
    kept = {count.var: slot for slot, count in enumerate(c for c in counts if c.limit is not None and c.limit != 0)}
    while refused := set(_refused(program, KeptCounts(kept), readers, data_dependent)):
        kept = {var: slot for slot, var in enumerate(var for var in kept if var not in refused)}
    arguments = {step.kernel: own for step in kernel_stages(program) if (own := _positions(step, kept))}
    found = KeptCounts(kept)
    outputs = tuple(found.of(program.outputs[output].shape[axis]) for output, axis in data_dependent)
    return KeptCounts(kept, arguments, outputs)


def keep_count(slot: int, address: tirx.Expr) -> tirx.Stmt:
    """Returns the copy of a count, an int64, to its slot."""
    return tirx.Evaluate(tirx.call_extern("int32", _KEEP, tirx.IntImm("int32", slot), address))


def _refused(
    program: Program,
    kept: KeptCounts,
    readers: Collection[tvm.ir.GlobalVar],
    data_dependent: Sequence[tuple[int, int]],
) -> Iterator[tirx.Var]:
    """Yields the sizes that the host has to know even if all others are kept."""
    for output, axis in data_dependent:
        size = program.outputs[output].shape[axis]
        if kept.of(size) is None:
            yield from _variables(size) & kept.slots.keys()
    calls: dict[tvm.ir.GlobalVar, list[Step]] = {}
    for step in kernel_stages(program):
        calls.setdefault(step.kernel, []).append(step)
    for kernel, steps in calls.items():
        alike = len({_positions(step, kept.slots) for step in steps}) == 1
        for step in steps:
            for _, value in step.sizes:
                used = _variables(value) & kept.slots.keys()
                if used and not (alike and kernel in readers and kept.of(value) is not None):
                    yield from used
    for control in program.steps:
        if not isinstance(control, Step):
            yield from kept.slots.keys() & set(size_variables(control))


def _positions(step: Step, kept: Collection[tirx.Var]) -> tuple[int, ...]:
    """Returns the positions of the sizes of a call that depend on counts."""
    return tuple(position for position, (_, value) in enumerate(step.sizes) if not _variables(value).isdisjoint(kept))


def _variables(size: Dimension) -> set[tirx.Var]:
    return set(variables(expression(size)))
