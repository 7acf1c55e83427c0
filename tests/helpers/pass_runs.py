"""Networks through the passes of a backend, with the program after each for tests to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import tirx

from nnefc.backends.cpu import CpuBackend
from nnefc.backends.kernel_context import KernelContext
from nnefc.ir.network import Network
from nnefc.passes import pipeline
from nnefc.passes.backend import MEMORY_BUDGET, Backend, KernelUse, Lowered, ObjectCompiler
from nnefc.passes.manager import PassManager, PassRun, Phase
from nnefc.passes.pipeline import MAIN
from nnefc.passes.program_passes import LibraryContext
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.in_place import InPlace
from nnefc.passes.tir.common.lower_kernel import Kernel
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cpu.target import Target

__all__ = ["lower", "lower_kernel", "manager_of", "module_after", "objects_of", "optimized"]

Observe = Callable[[str, tvm.IRModule], object]


def manager_of(backend: Backend, strict: bool = False, memory_budget: float = MEMORY_BUDGET) -> PassManager:
    """Runs the passes of a backend, without observers."""
    return PassManager(backend, backend.settings(strict, memory_budget))


def lower(
    network: Network,
    backend: Backend,
    observe: Observe | None = None,
    strict: bool = False,
    receive: Callable[[tirx.PrimFunc], None] = lambda _kernel: None,
    memory_budget: float = MEMORY_BUDGET,
    position: LibraryContext | None = None,
) -> Lowered:
    """As `nnefc.passes.pipeline.lower`.

    `observe` is given the network after each pass, then the scheduled kernels as `schedule`, and the functions of the
    host as `entry`.
    """
    kernels: dict[str, tirx.PrimFunc] = {}
    scheduled: Sequence[Phase] = (Phase.SCHEDULE,)

    def observer(run: PassRun) -> None:
        if run.step.phase in scheduled and not run.version:
            kernels[run.unit] = run.after
        elif observe is not None and run.step.phase is Phase.PLAN and run.step.name == "build entry":
            observe("schedule", tvm.IRModule(kernels))
            observe("entry", run.after.module)

    observers = [] if observe is None else [_of_graph(observe), observer]
    manager = PassManager(backend, backend.settings(strict, memory_budget), observers=observers)
    return pipeline.lower(network, manager, receive, position)


def optimized(
    network: Network,
    backend: Backend,
    observe: Observe | None = None,
    strict: bool = False,
    memory_budget: float = MEMORY_BUDGET,
) -> Network:
    """As `nnefc.passes.pipeline.optimized`; `observe` is given the network after each pass."""
    observers = [] if observe is None else [_of_graph(observe)]
    manager = PassManager(backend, backend.settings(strict, memory_budget), observers=observers)
    return pipeline.optimized(network, manager)


def module_after(network: Network, backend: Backend, name: str, strict: bool = False) -> tvm.IRModule:
    """The network after a pass over the graph."""
    found: dict[str, tvm.IRModule] = {}
    optimized(network, backend, found.__setitem__, strict, 1)
    return found[name]


def lower_kernel(func: tirx.PrimFunc, sizes: Sequence[tirx.Var] = ()) -> Kernel:
    """A scheduled kernel as a function of pointers for this machine."""
    manager = manager_of(CpuBackend(parse_target("llvm")))
    use = KernelUse("kernel", KernelAnalysis(func), 1, InPlace(), True)
    context = KernelContext(manager, use, manager.settings.schedules, CPU_RULES, sizes, scheduled=func)
    made = manager.run([Phase.BLOCKS, Phase.FLAT], func, context, "kernel")
    return Kernel(made, context.workspace_bytes, context.scratch_bytes)


def objects_of(target: Target) -> ObjectCompiler:
    """What compiles functions of a CPU."""
    backend = CpuBackend(target)
    return backend.objects(manager_of(backend))


def _of_graph(observe: Observe) -> Callable[[PassRun], None]:
    seen: set[str] = set()

    def observer(run: PassRun) -> None:
        if run.step.phase in (Phase.GRAPH, Phase.LEGALIZE):
            of_body = "" if run.unit == MAIN else " of body"
            if run.unit not in seen:
                seen.add(run.unit)
                observe(f"network{of_body}", run.before)
            observe(f"{run.step.name}{of_body}", run.after)

    return observer
