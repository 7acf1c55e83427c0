"""Reads cases of passes, each a program before and a program after, and runs the passes that they name.

    Divides by a constant through a multiplication.              what the pass does, for readers

    passes: divide by reciprocal
    target: llvm -mcpu=x86-64-v3

    == A divisor that is a power of two

    -- before
    …
    -- after
    …

    == A dynamic divisor stays

    -- unchanged
    …

Settings hold for all cases of a file, or for the case that they follow. `passes` are names of the target's list,
`first .. last` are all from one to another that run for the program. `dims: n 1..64` are dynamic dimensions. `options`
may be `strict` and `memory budget 4`. `kernels` names those that are shown: all if the setting is not there, none if it
is `hidden`. `covers` are other modules, in `passes/`, that the cases of the file are about, besides the module that has
the file's path.
"""

from __future__ import annotations

import difflib
import functools
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import tvm
from pass_runs import manager_of
from program_parser import dimensions_of, parse_program
from program_text import kernel_text, kernels_of, program_text
from tvm import relax, s_tir, tirx

from nnefc.backends import backend_of
from nnefc.backends.cpu import CpuBackend
from nnefc.backends.cpu_steps import frames_of
from nnefc.backends.kernel_context import KernelContext
from nnefc.ir.attributes import RULE
from nnefc.passes.backend import MEMORY_BUDGET, KernelUse
from nnefc.passes.manager import Pass, PassManager, Phase, Property
from nnefc.passes.pipeline import GraphContext, register_operators
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.cuda import CUDA_RULES
from nnefc.passes.schedule.in_place import InPlace, in_place_of
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.symbolic.dims import Range, ranges
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["CaseFile", "PassCase", "case_files", "difference", "modules_run", "read_cases", "run_case", "write_cases"]

PASSES = Path(__file__).parents[2] / "passes"
SETTINGS = ("passes", "target", "options", "dims", "kernels", "covers")
_OF_GRAPH = (Phase.GRAPH, Phase.LEGALIZE)
_OF_KERNELS = (Phase.SCHEDULE, Phase.BLOCKS, Phase.FLAT, Phase.POINTERS)


@dataclass(frozen=True)
class PassCase:
    """A program before some passes, and after them.

    Attributes:
        title: what the case shows; unique in its file.
        settings: those of the file and of the case.
        own: those of the case alone.
        before, after: the programs as text; equal where nothing is to change.
        is_unchanged: whether the file says that nothing changes.
    """

    title: str
    settings: Mapping[str, str]
    own: Mapping[str, str]
    before: str
    after: str
    is_unchanged: bool


@dataclass(frozen=True)
class CaseFile:
    """The cases of a file.

    Attributes:
        path: of the file.
        about: the lines before the settings.
        settings: of all cases.
        cases: in their order.
    """

    path: Path
    about: str
    settings: Mapping[str, str]
    cases: Sequence[PassCase]

    def modules(self, folder: Path) -> list[Path]:
        """Returns the modules that the cases are about; `folder` is that of all case files."""
        own = PASSES / self.path.relative_to(folder).with_suffix(".py")
        others = [PASSES / name.strip() for name in self.settings.get("covers", "").split(",") if name.strip()]
        return [*([own] if own.exists() else []), *others]


# Files.


def case_files(folder: Path) -> list[Path]:
    """Returns the files of cases in a folder and in those in it."""
    return sorted(folder.rglob("*.txt"))


def read_cases(path: Path) -> CaseFile:
    """Reads a file.

    Raises:
        ValueError: says where the file is not as it should be.
    """
    head, *parts = re.split(r"^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    about, settings = _settings_in(head, path)
    cases = [_case_in(part, settings, path) for part in parts]
    titles = [case.title for case in cases]
    if len(set(titles)) < len(titles) or not cases:
        raise ValueError(f"{path}: no cases, or two with one title")
    return CaseFile(path, about, settings, cases)


def _settings_in(text: str, path: Path) -> tuple[str, dict[str, str]]:
    lines = text.strip().splitlines()
    pattern = re.compile(rf"({'|'.join(SETTINGS)}): (.+)")
    settings = {found[1]: found[2].strip() for line in lines if (found := pattern.fullmatch(line))}
    about = [line for line in lines if not pattern.fullmatch(line)]
    return "\n".join(about).strip(), settings


def _case_in(text: str, settings: Mapping[str, str], path: Path) -> PassCase:
    head, *sections = re.split(r"^-- (before|after|unchanged)\n", text, flags=re.MULTILINE)
    title, _, tail = head.partition("\n")
    about, own = _settings_in(tail, path)
    named = {name: text.strip("\n") for name, text in zip(sections[::2], sections[1::2], strict=True)}
    if about or named.keys() not in ({"before", "after"}, {"unchanged"}, {"before"}):
        raise ValueError(f"{path}: the case {title!r} has neither a program before and one after, nor an unchanged one")
    before = named.get("before", named.get("unchanged", ""))
    return PassCase(title, {**settings, **own}, own, before, named.get("after", before), "unchanged" in named)


def write_cases(file: CaseFile, found: Mapping[str, tuple[str, str]]) -> str:
    """Returns the text of a file in which the cases, by title, have these programs before and after their passes."""
    lines = [file.about, "", *(f"{key}: {value}" for key, value in file.settings.items())]
    for case in file.cases:
        lines += ["", f"== {case.title}", *(f"{key}: {value}" for key, value in case.own.items()), ""]
        before, after = found[case.title]
        lines += ["-- unchanged" if before == after else "-- before", case.before]
        lines += [] if before == after else ["", "-- after", after]
    return "\n".join([*lines, ""]).lstrip("\n")


def difference(case: PassCase, before: str, after: str) -> str | None:
    """Returns what is wrong with the program after the passes of a case; None if it is the expected one."""
    expected = before if case.is_unchanged else case.after
    if after != expected:
        lines = difflib.unified_diff(expected.splitlines(), after.splitlines(), "expected", "found", n=4, lineterm="")
        return "\n".join([f"== {case.title}", *lines])
    if before == after and not case.is_unchanged:
        return f"== {case.title}\nnothing changes: if that is right, write the program once, after '-- unchanged'"
    return None


# Runs.


def run_case(case: PassCase) -> tuple[str, str]:
    """Runs the passes of a case; returns the program before and after them as text.

    Raises:
        ValueError: a pass does not run for the target and the program.
    """
    settings = case.settings
    limits = dimensions_of(settings.get("dims", ""))
    dims = {name: tirx.Var(name, "int64") for name in limits}
    kernels = None if "kernels" not in settings else [name.strip() for name in settings["kernels"].split(",")]
    register_operators()
    manager = _manager(settings["target"], settings.get("options", ""))
    with ranges({dims[name]: Range(low, high, min(high, 64)) for name, (low, high) in limits.items()}):
        program = parse_program(case.before, dims)
        before = program_text(program, kernels)
        steps = list(_steps(manager, settings["passes"]))
        return before, _text_after(program, manager, steps, kernels)


def _text_after(
    program: tvm.IRModule | tirx.PrimFunc,
    manager: PassManager,
    steps: Sequence[tuple[Pass, bool]],
    kernels: Collection[str] | None,
) -> str:
    of_kernels = [each for each in steps if each[0].phase in _OF_KERNELS]
    if isinstance(program, tirx.PrimFunc):
        return kernel_text(_after_kernel(manager, of_kernels, _use("kernel", program, 1)))
    context = GraphContext(manager.settings)
    with manager.backend.target.host.to_tvm():
        for step, _ in steps:
            if step.phase in _OF_GRAPH:
                program = _after_graph(manager, step, program, context)
    if not of_kernels:
        return program_text(program, kernels)
    shown = {name: func for name, func in kernels_of(program).items() if kernels is None or name in kernels}
    uses = [_use(name, func, _results(program, name)) for name, func in shown.items()]
    return "\n\n".join(kernel_text(_after_kernel(manager, of_kernels, use), use.name) for use in uses)


def _steps(manager: PassManager, names: str) -> Iterator[tuple[Pass, bool]]:
    """Yields the passes of a setting, and whether they must run."""
    numbers = {step.name: number for number, step in enumerate(manager.passes)}
    for name in map(str.strip, names.split(",")):
        first, _, last = name.partition(" .. ")
        if missing := {first, last or first} - numbers.keys():
            raise ValueError(f"no pass {min(missing)!r} runs for the target {manager.backend.target}")
        for step in manager.passes[numbers[first] : numbers[last or first] + 1]:
            yield step, not last


def _after_graph(manager: PassManager, step: Pass, program: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    if step.analyzes:
        context.modules = [program]
    elif Property.CHOSEN in step.requires and context.algorithms is None:
        context.modules = [program]
        manager.apply(manager.passes.named("choose algorithms"), program, context, "main")
    return manager.apply(step, program, context, "main")


def _use(name: str, func: tirx.PrimFunc, results: int) -> KernelUse:
    kernel = KernelAnalysis(func)
    has_blocks = isinstance(func.body, s_tir.SBlockRealize)
    in_place = in_place_of(kernel) if has_blocks and RULE not in (func.attrs or ()) else InPlace()
    return KernelUse(name, kernel, results, in_place, aligned=True, sizes=dynamic_sizes_of(func))


def _results(module: tvm.IRModule, name: str) -> int:
    counts = []

    def note(call: Any) -> None:
        if (
            isinstance(call, relax.Call)
            and str(getattr(call.op, "name", "")) == "relax.call_tir"
            and call.args[0].name_hint == name
        ):
            counts.append(len(call.ty_args[0].fields) if isinstance(call.ty_args[0], relax.TupleType) else 1)

    relax.analysis.post_order_visit(module["main"], note)
    return counts[0] if counts else 1


def _after_kernel(manager: PassManager, steps: Sequence[tuple[Pass, bool]], use: KernelUse) -> tirx.PrimFunc:
    context, func = _kernel_context(manager, use), use.kernel.func
    context.scheduled = func
    for step, must_run in steps:
        if step.phase is not Phase.SCHEDULE and context.scheduled is None:
            context.scheduled = func
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


@functools.cache
def _manager(target: str, options: str) -> PassManager:
    backend = backend_of(parse_any_target(target))
    if isinstance(backend, CpuBackend):
        backend.check()
    budget = re.search(r"memory budget (\d+)", options)
    return manager_of(backend, "strict" in options, float(budget[1]) if budget else MEMORY_BUDGET)


def modules_run(action: Callable[[], object]) -> set[str]:
    """Returns the files of the functions that are called during an action."""
    files: set[str] = set()

    def note(frame: FrameType, _event: str, _arg: object) -> None:
        files.add(frame.f_code.co_filename)

    before = sys.gettrace()
    sys.settrace(note)
    try:
        action()
    finally:
        sys.settrace(before)
    return files
