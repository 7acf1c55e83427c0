"""Defines the passes over the program of a network: from its list of calls to the memory plan and the entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import tvm
from tvm import tirx
from tvm.ir import GlobalVar

from nnefc.ir.network import Network
from nnefc.passes.backend import Backend, KernelUse, LoweredKernel
from nnefc.passes.plan.entry import ControlledCall, entry_function
from nnefc.passes.plan.entry_sizes import data_dependent_sizes
from nnefc.passes.plan.kept_counts import KeptCounts, kept_counts
from nnefc.passes.plan.kernel_reuse import CompiledKernels
from nnefc.passes.plan.late_updates import with_late_updates
from nnefc.passes.plan.memory import MemoryPlan, plan_memory
from nnefc.passes.plan.merge_kernels import merged_kernels
from nnefc.passes.plan.patches import in_patches
from nnefc.passes.plan.program import (
    Pool,
    Program,
    Step,
    program_of,
)
from nnefc.passes.plan.symbols import ENTRY
from nnefc.passes.schedule.in_place import InPlace
from nnefc.passes.schedule.schedules import dynamic_sizes_of

__all__ = [
    "KernelCache",
    "LibraryContext",
    "ProgramContext",
    "ProgramState",
    "build_entry",
    "list_calls",
    "merge_kernels",
    "plan_buffers",
    "split_into_patches",
]


@dataclass(frozen=True)
class LibraryContext:
    """The program's position among several of one library.

    Attributes:
        pool: constants, and names of kernels, of all.
        symbol: of its entry.
        has_others: whether others run instead for some sizes.
        data_dependent: of one of these others, the sizes that it has to write: those of `data_dependent_sizes` of the
            first.
        timed: the calls of kernels that are timed, of all; None if none are.
        operators: what the model computes tensors by, for the description of what is timed.
        checked: what of the model computes tensors, for what failed checks say; None if nothing is checked.
        on_progress: callback before each kernel is scheduled, with the number of scheduled kernels and of all kernels.
        compiled: kernels that are in the library already, and that programs may call instead of compiling equal ones.
        by_content: whether kernels are called by what they compute.
        cache: finds the code of kernels that were compiled before.
        symbols: of kernels that are called by what they compute, of all programs.
        calls: before which the runtime is asked whether a run goes on, of all programs.
    """

    pool: Pool = field(default_factory=Pool)
    symbol: str = ENTRY
    has_others: bool = False
    data_dependent: Sequence[tuple[int, int]] | None = None
    timed: list[Step] | None = None
    operators: Mapping[str, str] = field(default_factory=dict)
    checked: Mapping[str, str] | None = None
    on_progress: Callable[[int, int], None] = lambda _done, _all: None
    compiled: CompiledKernels | None = None
    by_content: bool = False
    cache: KernelCache | None = None
    symbols: set[str] = field(default_factory=set)
    calls: list[ControlledCall] = field(default_factory=list)


class KernelCache(Protocol):
    """The code of kernels that were compiled before."""

    def find(self, use: KernelUse, lower: Callable[[], tirx.PrimFunc]) -> LoweredKernel | None:
        """Returns the compiled kernel with this content; None if it is not in the cache.

        Args:
            use: the kernel, with its symbol.
            lower: lowers it to a function of the host.
        """


@dataclass(frozen=True)
class ProgramContext:
    """The context of passes over a program, besides the program.

    Attributes:
        backend: what the program is for.
        library_context: the program's position among those of its library.
    """

    backend: Backend
    library_context: LibraryContext

    @property
    def merges(self) -> bool:
        """Whether kernels that differ in numbers alone become one function."""
        return (
            self.backend.merges_kernels
            and self.library_context.compiled is None
            and self.library_context.checked is None
        )


@dataclass(frozen=True)
class ProgramState:
    """The program of a network between two passes.

    Attributes:
        network: after all passes over the graph.
        program: its calls and kernels.
        in_place: what the memory plan may do with the operands of each kernel.
        kernels: those that are lowered.
        plan: the addresses of all buffers.
        entry: the function that calls the kernels.
        called: the kernels that it calls, in the order of their first calls.
        kept: the data-dependent sizes that stay in the memory of a GPU.
    """

    network: Network
    program: Program | None = None
    in_place: Mapping[GlobalVar, InPlace] = field(default_factory=dict)
    kernels: Mapping[GlobalVar, LoweredKernel] = field(default_factory=dict)
    plan: MemoryPlan | None = None
    entry: tirx.PrimFunc | None = None
    called: Sequence[GlobalVar] = ()
    kept: KeptCounts = field(default_factory=KeptCounts)

    @property
    def listed(self) -> Program:
        """The calls and kernels, once a pass has listed them."""
        assert self.program is not None
        return self.program

    @property
    def planned(self) -> MemoryPlan:
        """The memory plan, once a pass has made it."""
        assert self.plan is not None
        return self.plan

    @property
    def module(self) -> tvm.IRModule:
        """The functions of the host: the kernels, and later the entry."""
        kernels = [self.kernels[gv] for gv in (self.called if self.entry is not None else self.kernels)]
        functions = {
            str(kernel.host.attrs["global_symbol"]): kernel.host
            for kernel in kernels
            if kernel.host is not None and kernel.same is None
        }
        if self.entry is not None:
            functions[str(self.entry.attrs["global_symbol"])] = self.entry
        return tvm.IRModule(functions)

    @property
    def dynamic_dimensions(self) -> list[tirx.Var]:
        """The dimensions that the entry is given when they are set, or computes before the kernels that need them."""
        network = self.network
        return [d.var for d in network.dynamic_dimensions] + [c.var for c in network.unbounded_data_dependent_sizes]


def list_calls(state: ProgramState, context: ProgramContext) -> ProgramState:
    """Lists the calls of kernels in the network's graph."""
    return replace(state, program=program_of(state.network, context.library_context.pool))


def split_into_patches(state: ProgramState, context: ProgramContext) -> ProgramState:
    """Computes the first layers a few rows at a time."""
    return replace(state, program=in_patches(state.listed, context.library_context.pool))


def merge_kernels(state: ProgramState, context: ProgramContext) -> ProgramState:
    """Replaces kernels that differ in numbers alone by calls of one function with these as arguments."""
    made = dict(state.kernels)
    known = (gv for gv in made if not dynamic_sizes_of(state.listed.kernels[gv]))
    functions = {gv: host for gv in known if (host := made[gv].host) is not None}
    for gv, call in merged_kernels(functions, context.backend.target.host.size_type).items():
        symbol = str(call.function.attrs["global_symbol"])
        same = None if symbol == functions[gv].attrs["global_symbol"] else symbol
        made[gv] = replace(made[gv], host=call.function, same=same, numbers=call.numbers)
    return replace(state, kernels=made)


def plan_buffers(state: ProgramState, context: ProgramContext) -> ProgramState:
    """Gives each buffer between two kernels an address."""
    library_context = context.library_context
    workspaces = {gv: kernel.workspace_bytes for gv, kernel in state.kernels.items()}
    program = with_late_updates(state.listed, state.in_place)
    plan = plan_memory(program, state.in_place, workspaces, context.backend.alignment)
    has_room = library_context.has_others and library_context.data_dependent is None and state.dynamic_dimensions
    return replace(state, program=program, plan=plan.with_room() if has_room else plan)


def build_entry(state: ProgramState, context: ProgramContext) -> ProgramState:
    """Builds the function that calls the kernels, by the memory plan."""
    library_context, kernels = context.library_context, state.kernels
    data_dependent = (
        library_context.data_dependent
        if library_context.data_dependent is not None
        else data_dependent_sizes(state.listed)
    )
    kept = _kept_counts(state, context.backend, data_dependent)
    entry, called = entry_function(
        state.listed,
        state.planned,
        {gv: kernel.parameters for gv, kernel in kernels.items()},
        context.backend.memory(),
        state.dynamic_dimensions,
        data_dependent,
        library_context.symbol,
        library_context.timed,
        {gv: symbol for gv, kernel in kernels.items() if (symbol := kernel.same or kernel.symbol)},
        {gv: kernel.numbers for gv, kernel in kernels.items()},
        _labels_of_calls(library_context, context.backend),
        library_context.calls if context.backend.cancellable else None,
        kept,
    )
    return replace(state, entry=entry, called=called, kept=kept)


def _kept_counts(state: ProgramState, backend: Backend, data_dependent: Sequence[tuple[int, int]]) -> KeptCounts:
    """Returns the data-dependent sizes that stay in the device's memory."""
    program, kernels = state.listed, state.kernels
    views = program.kernels.keys() - kernels.keys()
    readers = {gv for gv, kernel in kernels.items() if backend.reads_counts(kernel)}
    return kept_counts(program, views | readers, data_dependent) if readers else KeptCounts()


def _labels_of_calls(library_context: LibraryContext, backend: Backend) -> Mapping[str, str] | None:
    """Returns the labels that the entry records before calls, by the names of tensors; None without labels."""
    if library_context.checked is not None or not backend.labels_calls:
        return library_context.checked
    return {name: f"{operator}: {name}" for name, operator in library_context.operators.items()}
