"""Defines the context of passes over one kernel, and wraps functions over programs as passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import tvm
from tvm import tirx

from nnefc.ir.attributes import RULE
from nnefc.ir.empty_reductions import fold_empty_reductions
from nnefc.ir.rebuild import with_fields
from nnefc.passes.backend import KernelUse, Settings
from nnefc.passes.manager import PassCondition, PassManager, Phase
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.rule import ScheduleRule, scheduled
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.passes.tir.common.allocate_scratch import THREADS, Frames, move_large_scratch_to_workspace, without_scratch
from nnefc.passes.tir.common.assume_dim_ranges import within_ranges
from nnefc.passes.tir.common.hoist_workspace import hoist_workspace
from nnefc.passes.tir.common.lower_kernel import chooses_values, with_raw_pointers
from nnefc.passes.tir.common.name_symbolic_dims import name_loop_extents, named_sizes
from nnefc.passes.tir.common.peel_tail_tiles import TiledAxis, tiled_axes
from nnefc.passes.tir.common.shapes import Size

__all__ = [
    "DYNAMIC",
    "STATIC",
    "KernelContext",
    "on_axes",
    "on_body",
    "on_function",
    "tvm_pass",
]


_Made = TypeVar("_Made")


@dataclass
class KernelContext:
    """A kernel on its way to code: what its passes know and find out.

    Attributes:
        manager: runs the passes.
        use: the kernel without its schedule, and how the program calls it.
        machine: what schedule rules plan for.
        rules: of schedules, in the order in which they are tried.
        sizes: the dimensions that it is written with, which become its last parameters.
        frames: what it may have on the stack.
        on_host: whether the host runs it.
        binds_every: whether all formulas of dimensions get names: TVM fails on some that have none.
        scheduled: the kernel at the end of the phase `schedule`.
        own: the buffers that have become its last parameters, and are parts of its workspace.
        chooses: whether values depend on conditions that are not about dimensions.
        workspace_bytes, scratch_bytes: see :class:`Kernel`.
    """

    manager: PassManager
    use: KernelUse
    machine: Any
    rules: Sequence[ScheduleRule[Any]]
    sizes: Sequence[tirx.Var] = ()
    frames: Frames = THREADS
    on_host: bool = True
    binds_every: bool = False
    scheduled: tirx.PrimFunc | None = None
    own: list[tirx.Var] = field(default_factory=list)
    chooses: bool = False
    workspace_bytes: Size = 0
    scratch_bytes: int = 0
    _analysis: KernelAnalysis | None = field(default=None, repr=False)

    def run(self, *phases: Phase, version: bool = False) -> tuple[KernelContext, tirx.PrimFunc]:
        """Runs the passes of the phase `schedule`, then those of `phases`, over the kernel.

        Returns:
            What these passes have found out, and the kernel.
        """
        return self.run_then(lambda _context, func: func, *phases, version=version)

    def run_then(
        self, then: Callable[[KernelContext, tirx.PrimFunc], _Made], *phases: Phase, version: bool = False
    ) -> tuple[KernelContext, _Made]:
        """Runs the passes of the phase `schedule`, then those of `phases`, over the kernel, and `then`.

        TVM fails on some sums and products of dimensions, in which it finds no multiples. Then all of them get names,
        of which less is known.

        Returns:
            What these passes have found out, and what `then` makes of the kernel.
        """
        try:
            return self, then(self, self._run(phases, version))
        except tvm.error.InternalError:
            if not self._may_bind_every:
                raise
            again = replace(self._fresh(), binds_every=True)
            return again, then(again, again._run(phases, version))

    def version(self, name: str, kernel: KernelAnalysis, sizes: Sequence[tirx.Var]) -> KernelContext:
        """Returns the context of the same kernel for some sizes, with a name of its own."""
        return replace(self._fresh(), use=replace(self.use, name=f"{self.use.name}_{name}", kernel=kernel), sizes=sizes)

    @property
    def _may_bind_every(self) -> bool:
        """Whether there are formulas of dimensions that have no names yet."""
        return bool(dynamic_sizes_of(self.use.kernel.func)) and not self.binds_every

    def _fresh(self) -> KernelContext:
        """Returns the context of the same kernel before the first pass."""
        return replace(
            self,
            binds_every=False,
            scheduled=None,
            own=[],
            chooses=False,
            workspace_bytes=0,
            scratch_bytes=0,
            _analysis=None,
        )

    def _run(self, phases: Sequence[Phase], version: bool) -> tirx.PrimFunc:
        name, func = self.use.name, self.use.kernel.func
        self.scheduled = self.manager.run([Phase.SCHEDULE], func, self, name, version)
        return self.manager.run(phases, self.scheduled, self, name, version)

    @property
    def settings(self) -> Settings:
        """The target and options of the compilation."""
        settings: Settings = self.manager.settings
        return settings

    @property
    def target(self) -> Any:
        """What code is generated for."""
        return self.settings.target

    def analysis(self, func: tirx.PrimFunc) -> KernelAnalysis:
        """Returns the analysis of the kernel as it is now, made once while it stays the same."""
        if self._analysis is None:
            self._analysis = self.use.kernel
        if not self._analysis.func.same_as(func):
            self._analysis = KernelAnalysis(func)
        return self._analysis

    def dimensions(self, func: tirx.PrimFunc) -> list[tirx.Var]:
        """Returns the dimensions that a kernel is written with, and the names of formulas of them."""
        return [*self.sizes, *(var for var, _ in named_sizes(func))]

    # Passes that note something here.

    def name_dimensions(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Binds formulas of dimensions to names, of which TVM proves more."""
        return name_loop_extents(func, every=self.binds_every) if dynamic_sizes_of(func) else func

    def without_empty_reductions(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Replaces reductions over no elements by their initial values."""
        reductions = self.analysis(func).reductions
        is_empty = any(axis.size == 0 and not axis.is_spatial for step in reductions for axis in step.axes)
        return fold_empty_reductions(func) if is_empty else func

    def schedule(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Gives a kernel the schedule of the first rule that knows its kind."""
        raised = (tvm.error.InternalError,) if self._may_bind_every else ()
        return scheduled(self.analysis(func), self.rules, self.machine, raised)

    def workspace_parameters(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Makes buffers that live as long as a call parameters."""
        func, own = hoist_workspace(func)
        self.own += own
        return func

    def large_scratch_parameters(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Makes buffers in loops that may be large parts of the workspace."""
        func, own = move_large_scratch_to_workspace(func, self.dimensions(func))
        self.own += own
        return func

    def scratch_parameters(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Makes all buffers in loops parts of the workspace."""
        func, own = without_scratch(func)
        self.own += own
        return func

    def assume_ranges(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Puts the statements under a condition that says the ranges of dimensions."""
        every = self.dimensions(func)
        func = within_ranges(func, every)
        self.chooses = bool(self.sizes) and chooses_values(func.body, set(every))
        return func

    def raw_pointers(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Makes the kernel a function of pointers that returns a status."""
        made = with_raw_pointers(func, self.own, self.sizes, self.chooses)
        self.workspace_bytes, self.scratch_bytes = made.workspace_bytes, made.scratch_bytes
        return made.func

    # What conditions of passes ask.

    @property
    def rule(self) -> str:
        """The name of the rule that scheduled the kernel."""
        assert self.scheduled is not None
        return str(self.scheduled.attrs[RULE])

    @property
    def tiled(self) -> Sequence[TiledAxis]:
        """The axes that the scheduled kernel computes in tiles."""
        return tiled_axes(self.scheduled)

    def has_attribute(self, key: str) -> bool:
        """Returns whether the scheduled kernel has an attribute."""
        return self.scheduled is not None and bool(self.scheduled.attrs) and key in self.scheduled.attrs


DYNAMIC = PassCondition("kernels with dynamic dimensions", lambda context: bool(context.sizes))
STATIC = PassCondition("kernels of known shapes", lambda context: not context.sizes)


def on_function(change: Callable[[_Made], _Made]) -> Callable[[_Made, Any], _Made]:
    """Returns the run of a pass that needs the function or the module alone."""
    return lambda program, _context: change(program)


def on_body(change: Callable[[tirx.Stmt], tirx.Stmt]) -> Callable[[tirx.PrimFunc, Any], tirx.PrimFunc]:
    """Returns the run of a pass that needs the statements alone."""
    return lambda func, _context: _with_body(func, change(func.body))


def on_axes(
    change: Callable[[tirx.Stmt, Sequence[TiledAxis]], tirx.Stmt],
) -> Callable[[tirx.PrimFunc, Any], tirx.PrimFunc]:
    """Returns the run of a pass that needs the statements and the axes that are computed in tiles."""
    return lambda func, _context: _with_body(func, change(func.body, tiled_axes(func)))


def _with_body(func: tirx.PrimFunc, body: tirx.Stmt) -> tirx.PrimFunc:
    """Returns the function with a body, which may be its own: a pass changes few kernels."""
    return func if body.same_as(func.body) else with_fields(func, body=body)


def tvm_pass(change: tvm.transform.Pass) -> Callable[[tirx.PrimFunc, Any], tirx.PrimFunc]:
    """Returns the run of a pass of TVM over a kernel."""
    only = tvm.ir.transform.Sequential([change])  # which heeds the level of optimization
    return lambda func, _context: only(tvm.IRModule({"main": func}))["main"]
