"""Runs passes of a backend by their names on a program of a test, and prints what they make of it."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from pass_runs import manager_of
from program_parser import parse_program
from program_text import kernel_text, kernels_of, program_text
from relax_programs import network_of
from tvm import relax, s_tir, tirx

from nnefc.backends import backend_of
from nnefc.backends.cpu import CpuBackend
from nnefc.backends.cpu_steps import ObjectContext, frames_of
from nnefc.backends.kernel_context import KernelContext
from nnefc.ir.attributes import DYNAMIC_SHAPES, RULE
from nnefc.ir.network import DynamicDimension
from nnefc.passes import pipeline
from nnefc.passes.backend import MEMORY_BUDGET, KernelUse, Lowered
from nnefc.passes.manager import Pass, PassManager, PassRun, Phase, Property
from nnefc.passes.pipeline import GraphContext, register_operators
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.cuda import CUDA_RULES
from nnefc.passes.schedule.in_place import InPlace, in_place_of
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.passes.spec.verifier import InvalidProgram, broken_rules, form_of
from nnefc.symbolic.dims import Range, ranges
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["NamedPasses"]

_OF_GRAPH = (Phase.GRAPH, Phase.LEGALIZE)
_OF_KERNELS = (Phase.SCHEDULE, Phase.BLOCKS, Phase.FLAT, Phase.POINTERS)


@dataclass(frozen=True)
class NamedPasses:
    """Passes of a target.

    Attributes:
        target: as `-t` takes it.
        passes: names, or `first .. last` for all from one to another that run for the program; with commas.
        options: some of `strict`, `patches`, `small`, `reproducible` and `memory budget 4`.
        dims: the dynamic dimensions of programs with their min and max.
        kernels: those that are shown; all if it is None.
    """

    target: str
    passes: str
    options: str = ""
    dims: Mapping[str, tuple[int, int]] | None = None
    kernels: Collection[str] | None = None

    def texts(self, program: str, files: set[str] | None = None) -> tuple[str, str]:
        """Returns a program before and after the passes.

        Args:
            files: gets the names of the files whose functions the passes call.

        Raises:
            ValueError: a pass does not run for the target or the program.
        """
        register_operators()
        manager = _manager(self.target, self.options)
        limits = self.dims or {}
        dims = {name: tirx.Var(name, "int64") for name in limits}
        values = {dims[name]: Range(low, high, min(high, 64)) for name, (low, high) in limits.items()}
        with ranges(values):
            parsed = parse_program(program, dims)
            before = program_text(parsed, self.kernels)
            steps = list(_steps(manager, self.passes))
            last = steps[-1][0]
            if last.phase is Phase.PLAN:
                with _noted(files):
                    lowered = _lowered(parsed, manager, values)
                return before, _plan_text(lowered)
            with _noted(files):
                after = self._after(parsed, manager, steps)
            for name, func in {"main": after}.items() if isinstance(after, tvm.IRModule) else after.items():
                _verify(last, parsed, func, name)
            if isinstance(after, tvm.IRModule):
                return before, program_text(after, self.kernels)
            return before, "\n\n".join(kernel_text(func, name) for name, func in after.items())

    def _after(
        self, program: tvm.IRModule | tirx.PrimFunc, manager: PassManager, steps: Sequence[tuple[Pass, bool]]
    ) -> tvm.IRModule | Mapping[str, tirx.PrimFunc]:
        """Returns a network, or kernels by name."""
        last = steps[-1][0].phase
        if isinstance(program, tirx.PrimFunc):
            uses = [_use("kernel", program, 1)]
        else:
            program = _after_graph(manager, [step for step, _ in steps if step.phase in _OF_GRAPH], program)
            if last in _OF_GRAPH:
                return program
            found = kernels_of(program).items()
            shown = [(name, func) for name, func in found if self.kernels is None or name in self.kernels]
            uses = [_use(name, func, _results(program, name)) for name, func in shown]
        of_kernels = [each for each in steps if each[0].phase in _OF_KERNELS]
        made = {use.name: _after_kernel(manager, of_kernels, use) for use in uses}
        if last is Phase.OBJECT:
            made = _after_object(manager, [step for step, _ in steps if step.phase is Phase.OBJECT], made)
        return made


@contextmanager
def _noted(files: set[str] | None) -> Iterator[None]:
    """Adds the names of the files whose functions are called inside."""
    before = sys.gettrace()
    if files is not None:
        sys.settrace(lambda frame, _event, _arg: files.add(frame.f_code.co_filename))
    try:
        yield
    finally:
        sys.settrace(before)


def _verify(step: Pass, before: Any, after: Any, name: str) -> None:
    """Checks a program after passes by the rules for all programs, but for those that a short kernel broke before."""
    form = form_of(PassRun(step, 1, name, before, after, 0))
    if form is None:
        return
    known = {broken.rule for broken in broken_rules(before, form, name)} if isinstance(before, tirx.PrimFunc) else set()
    for broken in broken_rules(after, form, name):
        if broken.rule not in known:
            raise InvalidProgram(f"after the pass '{step.name}', {broken}")


@functools.cache
def _manager(target: str, options: str) -> PassManager:
    machine = parse_any_target(target)
    machine = machine.with_patches() if "patches" in options else machine
    machine = machine.made_small() if "small" in options else machine
    machine = machine.made_reproducible() if "reproducible" in options else machine
    backend = backend_of(machine)
    if isinstance(backend, CpuBackend):
        backend.check()
    budget = re.search(r"memory budget (\d+)", options)
    return manager_of(backend, "strict" in options, float(budget[1]) if budget else MEMORY_BUDGET)


def _steps(manager: PassManager, names: str) -> Iterator[tuple[Pass, bool]]:
    """Yields the passes that are named, and whether they must run."""
    numbers = {step.name: number for number, step in enumerate(manager.passes)}
    for name in map(str.strip, names.split(",")):
        first, _, last = name.partition(" .. ")
        if missing := {first, last or first} - numbers.keys():
            raise ValueError(f"no pass {min(missing)!r} runs for the target {manager.backend.target}")
        for step in manager.passes[numbers[first] : numbers[last or first] + 1]:
            yield step, not last


def _after_graph(manager: PassManager, steps: Sequence[Pass], program: tvm.IRModule) -> tvm.IRModule:
    context = GraphContext(manager.settings)
    with manager.backend.target.host.to_tvm():
        for step in steps:
            context.modules = [program]
            if Property.CHOSEN in step.requires and context.algorithms is None:
                manager.apply(manager.passes.named("choose algorithms"), program, context, "main")
            program = manager.apply(step, program, context, "main")
    return program


def _use(name: str, func: tirx.PrimFunc, results: int) -> KernelUse:
    kernel = KernelAnalysis(func)
    has_blocks = isinstance(func.body, s_tir.SBlockRealize)
    in_place = in_place_of(kernel) if has_blocks and RULE not in (func.attrs or ()) else InPlace()
    return KernelUse(name, kernel, results, in_place, aligned=True, sizes=dynamic_sizes_of(func))


def _results(module: tvm.IRModule, name: str) -> int:
    """Returns how many tensors a kernel of a network writes."""
    counts = []

    def note(call: Any) -> None:
        is_call = isinstance(call, relax.Call) and str(getattr(call.op, "name", "")) == "relax.call_tir"
        if is_call and call.args[0].name_hint == name:
            counts.append(len(call.ty_args[0].fields) if isinstance(call.ty_args[0], relax.TupleType) else 1)

    relax.analysis.post_order_visit(module["main"], note)
    return counts[0] if counts else 1


def _after_kernel(manager: PassManager, steps: Sequence[tuple[Pass, bool]], use: KernelUse) -> tirx.PrimFunc:
    context, func = _kernel_context(manager, use), use.kernel.func
    context.scheduled = func
    for step, must_run in steps:
        if step.where.holds(context):
            func = manager.apply(step, func, context, use.name)
            if step.phase is Phase.SCHEDULE:
                context.scheduled = func
        elif must_run:
            raise ValueError(f"the pass {step.name!r} is for {step.where.text} alone")
    return func


def _kernel_context(manager: PassManager, use: KernelUse) -> KernelContext:
    if isinstance(manager.backend, CpuBackend):
        machine = manager.settings.schedules
        return KernelContext(manager, use, machine, CPU_RULES, use.sizes, frames_of(manager.backend.target))
    return KernelContext(manager, use, manager.backend.target, CUDA_RULES, use.sizes, on_host=False)


def _after_object(
    manager: PassManager, steps: Sequence[Pass], functions: Mapping[str, tirx.PrimFunc]
) -> dict[str, tirx.PrimFunc]:
    module = tvm.IRModule({name: func.with_attr("global_symbol", name) for name, func in functions.items()})
    is_dynamic = any(DYNAMIC_SHAPES in func.attrs for func in functions.values())
    context = ObjectContext(manager.backend.target, Path("functions"), is_dynamic, is_checked=False)
    for step in steps:
        if step.where.holds(context):
            module = manager.apply(step, module, context, "functions")
    return kernels_of(module)


# Plans.


def _lowered(module: tvm.IRModule, manager: PassManager, values: Mapping[tirx.Var, Range]) -> Lowered:
    dimensions = (DynamicDimension(str(var.name), var, found) for var, found in values.items())
    network = dataclasses.replace(network_of(module), dynamic_dimensions=tuple(dimensions))
    return pipeline.lower(network, manager)


def _plan_text(lowered: Lowered) -> str:
    """Returns where each buffer lies, and the entry."""
    plan = lowered.plan
    lines = [f"workspace: {plan.workspace_bytes} bytes"]
    for buffer, address in plan.positions.items():
        type_ = f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
        position = f"{address.base} {address.index}, byte {address.offset}"
        lines.append(f"{buffer.kind.value} {buffer.index}: {type_} at {position}")
    return "\n".join([*lines, "", kernel_text(lowered.entry, "entry")])
