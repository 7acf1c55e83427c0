"""What a schedule rule is, and how the rules of a target are tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import tvm
from tvm import s_tir, tirx

from nnefc.passes.schedule.border import clear_border
from nnefc.targets.target import Target

__all__ = ["ScheduleKernels", "ScheduleRule"]


class ScheduleRule(Protocol):
    """Knows how to run computations of one kind fast. Recognizes them by structure, never by name."""

    def apply(self, func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        """The schedule of `func`, or None if the computation is not of this rule's kind."""


@tvm.transform.module_pass(opt_level=0, name="ScheduleKernels")
class ScheduleKernels:
    """Give every kernel the schedule of the first rule that knows its kind; the last rule knows all."""

    def __init__(self, rules: Sequence[ScheduleRule], target: Target) -> None:
        self._rules = rules
        self._target = target

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        scheduled = {}
        for gv, func in mod.functions.items():
            scheduled[gv] = self._schedule(func) if isinstance(func, tirx.PrimFunc) else func
        return tvm.IRModule(scheduled, attrs=mod.attrs)

    def _schedule(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        for rule in self._rules:
            try:
                schedule = rule.apply(func, self._target)
            except s_tir.ScheduleError:
                continue  # of the rule's kind at first sight, but not quite: the next rule is slower, and right too
            if schedule is not None:
                return clear_border(schedule, self._target).with_attr("nnefc.rule", type(rule).__name__)
        return func
