"""Defines the interface of a schedule rule, and tries the rules of a target in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tvm import s_tir, tirx

from nnefc.ir.attributes import RULE, STAGED
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.fill_padding import VectorMachine, fill_border
from nnefc.passes.schedule.reduction_init import write_first_values
from nnefc.support.internal_errors import leave_out

__all__ = ["ScheduleRule", "scheduled"]

_Machine = TypeVar("_Machine", bound=VectorMachine, contravariant=True)
_Target = TypeVar("_Target", bound=VectorMachine)


class ScheduleRule(Protocol[_Machine]):
    """Schedules computations of one kind, which it recognizes by their structure, never by their name."""

    def apply(self, kernel: KernelAnalysis, target: _Machine) -> s_tir.Schedule | None:
        """Returns the schedule of a kernel, or None if its computation is not of this rule's kind."""


def scheduled(
    kernel: KernelAnalysis,
    rules: Sequence[ScheduleRule[_Target]],
    target: _Target,
    raised: tuple[type[Exception], ...] = (),
) -> tirx.PrimFunc:
    """Returns a kernel with the schedule of the first of `rules` that accepts it.

    A rule that raises a ScheduleError took the kernel for one of its kind by mistake: the next rule is slower, and
    right too. The same holds for a rule whose code fails otherwise, which is a bug: a warning says so.

    Args:
        raised: errors of rules that are raised: the caller changes the kernel and tries all rules again.
    """
    for rule in rules:
        try:
            schedule = rule.apply(kernel, target)
            if schedule is not None:
                write_first_values(schedule)
                _keep_copies(kernel, schedule)
        except s_tir.ScheduleError:
            continue
        except raised:
            raise
        except Exception as error:
            if rule is rules[-1]:
                raise
            leave_out(f"the schedule rule {type(rule).__name__}", error)
            continue
        if schedule is not None:
            return fill_border(schedule, target).with_attr(RULE, type(rule).__name__)
    return kernel.func


def _keep_copies(kernel: KernelAnalysis, schedule: s_tir.Schedule) -> None:
    """Raises a ScheduleError where a rule has inlined a step that copies what the result may overwrite."""
    for step in kernel.steps:
        if STAGED in step.node.annotations:
            schedule.get_sblock(step.name)
