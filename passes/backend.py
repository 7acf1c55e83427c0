"""Defines the interface of a backend: every step of the compiler that differs between kinds of machines.

`passes/pipeline.py` and `compiler/driver/compile.py` ask a :class:`Backend` at each phase, and know no kind of machine:

    passes       passes, settings()  the list of all passes, and what their conditions depend on
    kernels      lower()             a kernel by these passes, and how it becomes code
    entry        memory()            how the function that calls the kernels reaches their operands
    objects      objects()           object files of functions by these passes
    code         finish()            what is linked into the library, besides the host's objects

`compiler/backends/` has a file for each backend, and one for its list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import tirx

from nnefc.ir.attributes import RULE
from nnefc.passes.manager import PassList, PassManager, PassRun
from nnefc.passes.plan.entry_memory import Memory
from nnefc.passes.plan.kept_counts import KeptCounts
from nnefc.passes.plan.memory import MemoryPlan
from nnefc.passes.plan.program import Program
from nnefc.passes.plan.symbols import ENTRY
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.in_place import InPlace
from nnefc.symbolic.dims import MAX_ELEMENTS, Dimension
from nnefc.targets.machine.any_target import AnyTarget

__all__ = [
    "MEMORY_BUDGET",
    "Backend",
    "Code",
    "CompiledKernel",
    "KernelCall",
    "KernelUse",
    "Lowered",
    "LoweredKernel",
    "ObjectCompiler",
    "OperandLocation",
    "Settings",
    "TimedKernel",
]

MEMORY_BUDGET = 1.25
"""The default factor by which faster algorithms may enlarge the trained values."""


@dataclass(frozen=True)
class Settings:
    """The settings that conditions of passes depend on: the target and the options of a compilation.

    Attributes:
        target: what code is generated for.
        strict: whether to exclude algorithms whose rounding differs from the sequential sum's.
        memory_budget: what the constants may grow to for faster algorithms, as a factor.
    """

    target: AnyTarget
    strict: bool = False
    memory_budget: float = MEMORY_BUDGET


@dataclass(frozen=True)
class KernelUse:
    """A kernel without its schedule, and how the program calls it.

    Attributes:
        name: unique in the program.
        kernel: what it computes; its parameters are what it reads, then what it writes.
        results: how many of them it writes.
        in_place: what the memory plan may do with its operands.
        aligned: whether all operands begin at multiples of the backend's alignment.
        sizes: what it is written with that is known at run time.
        checked: whether it looks at every position that it reads or writes.
        element_ranges: the smallest and the largest element of operands that are constants in all calls, by their
            positions.
        symbol: by which the entry calls it, if it has code for the host.
    """

    name: str
    kernel: KernelAnalysis
    results: int
    in_place: InPlace
    aligned: bool
    sizes: Sequence[tirx.Var] = ()
    checked: bool = False
    element_ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    symbol: str = ""


@dataclass(frozen=True)
class CompiledKernel:
    """The machine code of a kernel from an earlier compilation, and what else the compiler asks of its function.

    Attributes:
        content: an object file that defines its symbol.
        rule: the schedule rule that it got.
        calls: the C functions that it calls.
        lower: lowers the kernel again, for texts of its code.
    """

    content: bytes
    rule: str
    calls: frozenset[str]
    lower: Callable[[], tirx.PrimFunc]


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel that is ready for code generation.

    Attributes:
        scheduled: its loops as they run; None if it is compiled already.
        parameters: the types of the function that the entry calls: a pointer for each operand, and one to its
            workspace if it has one. The dynamic dimensions that it is written with follow them.
        workspace_bytes: what the memory plan has to provide for it.
        scratch_bytes: what one worker of the host needs at most during a call, besides its stack.
        host: flat code with a symbol, if the host runs it.
        features: of the host, by LLVM's names, that it needs besides `Target.features`.
        code: what `Backend.finish` makes code of, if anything else does.
        same: the symbol of another function of the library that computes the same, and is called instead.
        numbers: arguments of that function, or of `host`, after all others: see `passes/plan/merge_kernels.py`.
        symbol: by which the entry calls it, if it is called by its content.
        compiled: its machine code, if that is there already.
    """

    scheduled: tirx.PrimFunc | None
    parameters: Sequence[tvm.ir.Type]
    workspace_bytes: Dimension = 0
    scratch_bytes: int = 0
    host: tirx.PrimFunc | None = None
    features: Sequence[str] = ()
    code: object = None
    same: str | None = None
    numbers: tuple[tirx.IntImm, ...] = ()
    symbol: str = ""
    compiled: CompiledKernel | None = None

    @property
    def rule(self) -> str:
        """Returns the name of the schedule rule that it got."""
        if self.compiled is not None:
            return self.compiled.rule
        assert self.scheduled is not None
        return str(self.scheduled.attrs[RULE])


@dataclass(frozen=True)
class KernelCall:
    """A call at which the runtime may end the run, skip work that is not needed, and take the time.

    Attributes:
        kernel: its name; empty for a branch or loop, which may be skipped as a whole.
        tensors: of the model, that it computes or was made for.
        rule: the schedule rule that the kernel got.
        operations: arithmetic of one call; 0 if it is not known.
        bytes: that it reads and writes, each once; 0 if it is not known.
        served: the outputs that need it, a bit for each; the bit behind them is of calls that every run needs.
    """

    kernel: str
    tensors: tuple[str, ...]
    rule: str
    operations: int
    bytes: int
    served: int


@dataclass(frozen=True)
class TimedKernel:
    """A call of a kernel, as the profile of its network describes it.

    Attributes:
        kernel: its name.
        tensors: of the model, that it computes or was made for.
        rule: the schedule rule that it got.
        operations: arithmetic of one call; 0 if it is not known.
        bytes: that it reads and writes, each once; 0 if it is not known.
        operators: of the model, that these tensors are the results of.
        reads, writes: its operands.
        operation_formula: the arithmetic of one call by the names of dynamic dimensions; empty if it is not known so.
    """

    kernel: str
    tensors: tuple[str, ...]
    rule: str
    operations: int
    bytes: int
    operators: tuple[str, ...] = ()
    reads: tuple[OperandLocation, ...] = ()
    writes: tuple[OperandLocation, ...] = ()
    operation_formula: str = ""


@dataclass(frozen=True)
class OperandLocation:
    """The location of a kernel's operand.

    Attributes:
        base: `workspace`, `input`, `output`, `state` or `constant`; `body` of those of kernels in choices and loops.
        index: counts what there are several of.
        offset: in bytes; None if it is known at run time alone.
        bytes: its size; 0 if that is known at run time alone.
        type: of the tensor, as `float32[1, 64]`.
    """

    base: str
    index: int
    offset: int | None
    bytes: int
    type: str


@dataclass(frozen=True)
class Lowered:
    """A network that is ready for code generation.

    Attributes:
        module: flat TIR of the host: the entry, and the kernels that the host runs.
        kernels: those that the entry calls, in the order of their first calls.
        program, plan: what the entry was made from.
        symbol: of the entry.
        timed: the calls of kernels that the entry times, numbered through the programs of a library.
        cancellable: whether the entry reads a flag before each kernel, by which another thread ends the run.
        compiled: kernels that are not in `module`, for they are compiled already: by their symbols.
        calls: before which the runtime is asked, numbered through the programs of a library.
        memory_users: for each output the outputs for which a run uses its memory, as `KernelCall.served` has them.
        kept: the data-dependent sizes that stay in the memory of a GPU.
    """

    module: tvm.IRModule
    kernels: tuple[LoweredKernel, ...]
    program: Program
    plan: MemoryPlan
    symbol: str = ENTRY
    timed: tuple[TimedKernel, ...] = ()
    cancellable: bool = False
    compiled: Mapping[str, CompiledKernel] = field(default_factory=dict)
    calls: tuple[KernelCall, ...] = ()
    memory_users: tuple[int, ...] = ()
    kept: KeptCounts = field(default_factory=KeptCounts)

    @property
    def entry(self) -> tirx.PrimFunc:
        """The function that calls the kernels."""
        return self.module[self.symbol]

    @property
    def scratch_bytes(self) -> int:
        """Returns the scratch memory that one worker of the host needs during a run, in bytes."""
        return max((kernel.scratch_bytes for kernel in self.kernels), default=0)

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        """The trained values, in the order of `plan.constant_offsets`."""
        return self.program.constants


class ObjectCompiler(Protocol):
    """Compiles functions of the host."""

    def __call__(self, functions: Sequence[tirx.PrimFunc], path: Path) -> Callable[[], bytes]:
        """Lowers functions, and returns a callable that compiles them, in any thread, to the content of a file: an
        object file, assembly or LLVM's IR by the suffix `o`, `s` or `ll` of `path`.
        """

    def loaded(self, functions: Sequence[tirx.PrimFunc]) -> tvm.runtime.Module:
        """Compiles functions for this machine and loads them, so that they can be called."""


class Code(Protocol):
    """A network's code for one kind of machine. It can be pickled."""

    @property
    def device(self) -> str:
        """Returns the device that the kernels run on, as the library's description calls it."""

    @property
    def arrival_bytes(self) -> int:
        """The bytes of a GPU session in which launches count the blocks that have arrived; 0 if none do."""

    @property
    def objects(self) -> tuple[bytes, ...]:
        """Object files for the host; one of them defines the entry."""

    @property
    def texts(self) -> Mapping[str, Sequence[str]]:
        """The kinds of text that the code can be written as, and patterns of the names of their files."""

    def write_sources(self, folder: Path) -> list[Path]:
        """Writes the linker's inputs besides the object files, and returns their paths."""

    def write_text(self, kind: str, folder: Path) -> list[Path]:
        """Writes the code as text of one of the kinds; returns the files.

        Raises:
            CompileError: it cannot be had any more.
        """

    def summary(self) -> str | None:
        """Returns a line about the resources that the code uses, where they are known."""


class Backend(ABC):
    """One kind of machine.

    Attributes:
        target: the machine; its `host` is the CPU that runs the entry.
        alignment: bytes, at multiples of which the memory plan lets operands begin.
        max_elements: of a tensor with dynamic dimensions; dimensions that exceed it are refused when they are set.
        takes_specializations: whether a library may have code of its own for some sizes.
        takes_text: whether a network may compute with strings.
        takes_profile: whether a library can time its kernels.
        cancellable: whether another thread can end a run between two kernels.
        patches: whether the first layers are computed a few rows at a time.
        merges_kernels: whether kernels that differ in numbers alone become one function.
        takes_checks: whether kernels can look at every position that they read or write.
        compares_kernels: whether kernels can be run between two passes, by :meth:`runnable`.
        labels_calls: whether the entry notes before each call what of the model it computes, for readers of the code.
        names_by_content: whether kernels can be compiled apart from each other, with symbols that say what they
            compute, so that a further network need not compile them again.
        passes: all passes, in their order.
        computations: how operators are computed, by their names, besides what holds for all backends.
    """

    target: AnyTarget
    alignment = 1
    max_elements = MAX_ELEMENTS
    takes_specializations = False
    takes_text = False
    takes_profile = False
    cancellable = False
    patches = False
    merges_kernels = False
    takes_checks = False
    compares_kernels = False
    names_by_content = False
    labels_calls = False
    passes: PassList
    computations: Mapping[str, Callable[..., Any]] = {}

    @property
    def levels(self) -> Sequence[Backend]:
        """Returns the ISA levels that each have a program in a multiversioned library; only this target for others."""
        return (self,)

    @abstractmethod
    def check(self) -> None:
        """Checks that all that the target needs is installed, before a compilation begins.

        Raises:
            CompileError: something has to be installed first.
        """

    def settings(self, strict: bool = False, memory_budget: float = MEMORY_BUDGET) -> Settings:
        """Returns the settings that conditions of the passes depend on.

        Args:
            strict: exclude algorithms whose rounding differs from the sequential sum's.
            memory_budget: what the constants may grow to for faster algorithms, as a factor.
        """
        return Settings(self.target, strict, memory_budget)

    @abstractmethod
    def lower(self, kernel: KernelUse, manager: PassManager) -> LoweredKernel:
        """Runs the passes over a kernel, until it is ready to become code."""

    def runnable(self, _run: PassRun) -> tirx.PrimFunc | None:
        """Returns a kernel after a pass as a function that can be compiled by itself; None if it cannot be."""
        return None

    def reads_counts(self, _kernel: LoweredKernel) -> bool:
        """Whether a kernel can read its sizes from memory, so that the entry need not know them."""
        return False

    @abstractmethod
    def objects(self, manager: PassManager) -> ObjectCompiler:
        """Returns the compiler of the host's functions to object files, by the passes over objects."""

    @abstractmethod
    def memory(self) -> Memory:
        """Returns the builder of the entry's loads, stores and copies."""

    @abstractmethod
    def finish(
        self,
        lowered: Lowered,
        objects: tuple[bytes, ...],
        manager: PassManager,
        dump: Callable[[str, str], None] | None = None,
    ) -> Code:
        """Returns the network's code, of which the host's part is in `objects`.

        Args:
            manager: has run the passes.
            dump: given names and texts to look at, if anybody does.
        """
