"""What a schedule rule is, and how the rules of a target are tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import tvm
from tvm import s_tir, tirx

from nnefc.empty_sums import without_empty_sums
from nnefc.ir.attributes import RULE
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.border import Machine, fill_border
from nnefc.passes.schedule.first_values import write_first_values
from nnefc.passes.schedule.schedules import open_sizes_of, without_open_sizes
from nnefc.passes.tir.named_sizes import with_named_loops

__all__ = ["ScheduleRule", "scheduled", "with_sizes_named"]


_Machine = TypeVar("_Machine", bound=Machine, contravariant=True)
_Target = TypeVar("_Target", bound=Machine)
_Made = TypeVar("_Made")


class ScheduleRule(Protocol[_Machine]):
    """Knows how to run computations of one kind fast. Recognizes them by structure, never by name."""

    def apply(self, kernel: KernelAnalysis, target: _Machine) -> s_tir.Schedule | None:
        """The schedule of a kernel, or None if its computation is not of this rule's kind."""


def with_sizes_named(kernel: KernelAnalysis, lower: Callable[[KernelAnalysis], _Made]) -> _Made:
    """What `lower` makes of a kernel, with variables for open sizes of whose formulas TVM knows less."""
    if not open_sizes_of(kernel.func):
        return lower(kernel)
    try:
        return lower(KernelAnalysis(with_named_loops(kernel.func)))
    except tvm.error.InternalError:  # TVM's own, of sums and products of sizes that it does not find multiples in
        return lower(KernelAnalysis(with_named_loops(kernel.func, every=True)))


def scheduled(kernel: KernelAnalysis, rules: Sequence[ScheduleRule[_Target]], target: _Target) -> tirx.PrimFunc:
    """A kernel with the schedule of the first of `rules` that knows its kind."""
    if any(axis.size == 0 and not axis.is_spatial for step in kernel.reductions for axis in step.axes):
        kernel = KernelAnalysis(without_empty_sums(kernel.func))
    for rule in rules:
        try:
            schedule = rule.apply(kernel, target)
            if schedule is not None:
                write_first_values(schedule)
        except s_tir.ScheduleError:
            continue  # of the rule's kind at first sight, but not quite: the next rule is slower, and right too
        if schedule is not None:
            func = fill_border(schedule, target).with_attr(RULE, type(rule).__name__)
            return without_open_sizes(func)
    return kernel.func
