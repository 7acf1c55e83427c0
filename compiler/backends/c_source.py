"""C source backend: kernels and the entry become functions of C99, which any compiler takes.

The passes are in `c_source_passes.py`. TVM has a generator of C, too: its code includes headers of TVM's runtime,
passes tensors in packed arguments, and needs a C compiler with vector types. Here the memory plan is known, and a
network is one function of pointers, so the functions of TIR are translated directly (`targets/codegen/c`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import tvm
from tvm import tirx

from nnefc.backends.c_source_passes import PASSES, math_functions
from nnefc.backends.cpu_steps import CpuSettings, ObjectContext, lower_for_host
from nnefc.ir.attributes import NO_ALIAS
from nnefc.passes.backend import MEMORY_BUDGET, Backend, KernelUse, Lowered, LoweredKernel
from nnefc.passes.manager import PassManager, Phase
from nnefc.passes.plan.entry_memory import HostMemory, Memory
from nnefc.passes.plan.program import Buffer, kernel_stages
from nnefc.passes.plan.symbols import kernel_symbol
from nnefc.passes.tir.cpu.lower_dot_accumulate import use_dot_accumulate
from nnefc.passes.tir.cpu.round_as_integers import use_rounding
from nnefc.targets.codegen.c.code import CSourceCode, NoObjects, check_kernel
from nnefc.targets.codegen.c.entry import Area, entry_body
from nnefc.targets.codegen.c.functions import Function, kernel_function, makes_strings, math_function, reports_failures
from nnefc.targets.codegen.c.helpers import HELPERS, called_helpers, dsp_source
from nnefc.targets.codegen.cpu.objects import bound_to_target
from nnefc.targets.description.generated_source import CProgram
from nnefc.targets.machine.cpu.target import Target

__all__ = ["CSourceBackend", "make_backend"]


class CSourceBackend(Backend):
    """A processor that a C compiler generates code for."""

    target: Target
    labels_calls = True
    takes_text = True
    passes = PASSES

    def __init__(self, target: Target) -> None:
        self.target = target
        self.patches = target.patches
        self.merges_kernels = target.small

    def check(self) -> None:
        """Nothing is needed."""
        use_rounding()
        use_dot_accumulate()

    def settings(self, strict: bool = False, memory_budget: float = MEMORY_BUDGET) -> CpuSettings:
        return CpuSettings(self.target, strict, memory_budget)

    def lower(self, kernel: KernelUse, manager: PassManager) -> LoweredKernel:
        check_kernel(kernel.kernel.func)
        return lower_for_host(kernel, manager, self.target)

    def objects(self, manager: PassManager) -> NoObjects:
        return NoObjects()

    def memory(self) -> Memory:
        return HostMemory(self.target.size_type)

    def finish(
        self,
        lowered: Lowered,
        objects: tuple[bytes, ...],
        manager: PassManager,
        dump: Callable[[str, str], None] | None = None,
    ) -> CSourceCode:
        functions = {gv.name_hint: func for gv, func in lowered.module.functions.items()}
        context = ObjectContext(self.target, Path("network.c"), is_dynamic=False, is_checked=False)
        module = manager.run([Phase.OBJECT], tvm.IRModule(functions), context, "network")
        made = {gv.name_hint: func for gv, func in module.functions.items()}
        kernels = list(dict.fromkeys(_symbol(kernel) for kernel in lowered.kernels))
        reporting = {symbol for symbol in kernels if reports_failures(made[symbol])}
        written = [kernel_function(made[symbol], _shared(made[symbol])) for symbol in kernels]
        making = {symbol for symbol in kernels if makes_strings(made[symbol])}
        entry = entry_body(made[lowered.symbol], _areas(lowered), reporting, making)
        called = " ".join(line for function in (*written, entry) for line in function.lines)
        helpers, externs = self._helpers(called)
        labels = _labels(lowered)
        program = CProgram(
            helpers,
            tuple(_comment(labels.get(function.symbol, ())) + function.text for function in written),
            entry.lines,
            frozenset().union(externs, entry.externs, *(function.externs for function in written)),
            reports=bool(reporting) or "failed" in " ".join(entry.lines),
            makes_texts=bool(making),
        )
        if dump is not None:
            dump("network.c", "\n".join([*program.helpers, *program.functions, *program.entry]))
        return CSourceCode(program)

    def _helpers(self, called: str) -> tuple[tuple[str, ...], frozenset[str]]:
        """Returns the definitions of helper functions that code calls, and the functions of C that they call."""
        names = sorted(name for name in math_functions() if f"{name}(" in called)
        math = [self._math_function(math_functions()[name]) for name in names]
        whole = " ".join([called, *(line for function in math for line in function.lines)])
        found = called_helpers(whole)
        dsp = dsp_source(whole)
        texts = [text for name, text in HELPERS.items() if name in found]
        externs = frozenset[str]().union(*(function.externs for function in math))
        return (*([dsp] if dsp else []), *texts, *(function.text for function in math)), externs

    def _math_function(self, func: tirx.PrimFunc) -> Function:
        module = bound_to_target(tvm.IRModule({"function": func}), self.target)
        return math_function(tirx.transform.LowerIntrin()(module)["function"])


def _symbol(kernel: LoweredKernel) -> str:
    assert kernel.host is not None
    return str(kernel.host.attrs["global_symbol"])


def _shared(func: tirx.PrimFunc) -> tuple[int, ...]:
    """Returns the positions of operands that may share memory."""
    return () if func.attrs.get(NO_ALIAS, True) else tuple(range(len(func.params)))


def _areas(lowered: Lowered) -> dict[str, Area]:
    """Returns what the entry's parameters are in C."""
    program = lowered.program
    areas = {
        "state": Area("states", "uint8", constant=False),
        "workspace": Area("workspace", "uint8", constant=False),
        "constant": Area("", "uint8", constant=True),
        "sizes": Area("", "int64", constant=False),
    }
    for role, buffers, constant in (("input", program.inputs, True), ("output", program.outputs, False)):
        for index, buffer in enumerate(buffers):
            areas[f"{role}{index}"] = Area(f"@{role} {index}@", _at_boundary(buffer), constant)
    return areas


def _at_boundary(buffer: Buffer) -> str:
    return "uint8" if buffer.dtype == "bool" else buffer.dtype


def _labels(lowered: Lowered) -> dict[str, tuple[str, ...]]:
    """Returns the tensors of the model that each kernel computes, by its symbol."""
    found: dict[str, dict[str, None]] = {}
    for step in kernel_stages(lowered.program):
        found.setdefault(kernel_symbol(step.kernel.name_hint), {}).update(dict.fromkeys(step.tensors))
    return {symbol: tuple(tensors) for symbol, tensors in found.items()}


_NAMED = 8
"""Tensors that the comment of a kernel names, at most."""


def _comment(tensors: Iterable[str]) -> str:
    names = [name.replace("*/", "").replace("/*", "") for name in tensors]
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    printable = "".join(letter if letter.isascii() and letter.isprintable() else "_" for letter in shown)
    return f"/* Computes {printable}. */\n" if names else ""


make_backend = CSourceBackend
