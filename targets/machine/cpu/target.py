"""Describes the machine that code is generated for: instruction set, vector registers, caches, and linking.

Passes and schedule rules ask a :class:`Target`; nothing in the compiler assumes the machine that it runs on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import tvm

from nnefc.support.diagnostics import CompileError
from nnefc.support.element_types import bits_of
from nnefc.targets.machine.cpu.architecture import Vectors, architecture_of
from nnefc.targets.machine.cpu.costs import Costs
from nnefc.targets.machine.cpu.llvm import llvm_config
from nnefc.targets.machine.llvm_quirks import (
    ENGINE_SUM_REGISTERS,
    OPTIMIZATION_LEVEL,
    OPTIMIZATION_LEVEL_SMALL,
    Quirks,
    needs_vector_width,
    process_options,
    quirks_of,
)
from nnefc.targets.machine.system import FileFormat, format_of

__all__ = ["CPU_PRECISIONS", "FLOAT16_TYPES", "KEPT_WIDE", "PRECISIONS", "Target"]


PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
"""What contractions multiply, where a machine has a choice; all sums are float32."""
CPU_PRECISIONS = ("fp32", "bf16", "fp16")  # those of CPUs

FLOAT16_TYPES = {"bf16": "bfloat16", "fp16": "float16"}
"""The types of operands of the narrow precisions."""

KEPT_WIDE = ("first", "last")
"""Contractions that may be left out of a narrow precision, besides those that are named."""

_WIDEN_FLOAT16 = ("f16c", "avx512f", "vfp4", "fp-armv8", "zvfhmin")
"""Features with instructions that convert vectors of float16 to float32; all of 64-bit Arm has them."""

_LANES_PERMUTED = 8
"""Of shorter vectors, a convolution in small groups gains little."""

_PAIR_BYTES, _PAIRS = 8, 5
"""Of registers for integers and addresses, two at a time: of 13, some hold what is multiplied, and where it is."""


@dataclass(frozen=True)
class Target:
    """A CPU to compile for.

    Attributes:
        name: how the user called it, in the library's description.
        triple: LLVM's name of the machine.
        cpu: LLVM's name of the processor that code is made for.
        attributes: LLVM features switched on (`+x`) or off (`-x`) besides those of `cpu`.
        features: LLVM features that the code may use beyond what every machine of the architecture has; a library
            refuses a machine that lacks one.
        vectors: its vector registers.
        costs: what instructions on such vectors, and memory, cost on its cores.
        threads: whether the system has threads.
        pointer_bits: size of a pointer, and of C's size_t.
        hosted: whether it has an operating system.
        zig_target: the linker's name of the machine.
        zig_cpu: its name of the oldest processor that the runtime shall run on.
        abi: LLVM's name of the calling convention, where the triple does not tell.
        precision: what contractions multiply, one of PRECISIONS.
        keep_wide: contractions that multiply float32 nevertheless: some of KEPT_WIDE, and patterns of the names of
            their results.
        tiles: LLVM features of its unit that multiplies matrices, if it has one: kernels that use it need them, besides
            `features`.
        block_bytes: width of the blocks of numbers that layouts are made of, at least that of a vector register; 0 for
            one as wide.
        small: whether code shall be small rather than fast.
        patches: whether the first layers are computed a few rows at a time, for less memory.
        reproducible: whether results shall have the same bits as on every other machine: see `reproducible.py`.
        c_source: whether code for it is C source, which the user's compiler takes.
        levels: if a library shall have code for several ISA levels (multiversioning), a target for each.
    """

    name: str
    triple: str
    cpu: str
    attributes: tuple[str, ...]
    features: tuple[str, ...]
    vectors: Vectors
    zig_target: str
    costs: Costs
    threads: bool = True
    hosted: bool = True
    zig_cpu: str = "baseline"
    pointer_bits: int = 64
    abi: str = ""
    precision: str = PRECISIONS[0]
    keep_wide: tuple[str, ...] = ()
    tiles: tuple[str, ...] = ()
    block_bytes: int = 0
    small: bool = False
    patches: bool = False
    reproducible: bool = False
    c_source: bool = False
    levels: tuple[Target, ...] = ()

    @property
    def backend(self) -> str:
        """The module of `compiler/backends/` that makes code for it."""
        return "c_source" if self.c_source else "cpu"

    @property
    def host(self) -> Target:
        """Returns the CPU that runs the library: this one."""
        return self

    @property
    def format(self) -> FileFormat:
        """Returns how its libraries are stored."""
        return format_of(self.zig_target)

    @property
    def size_type(self) -> str:
        """Returns the type of C's size_t; signed, since TVM supports few unsigned types."""
        return f"int{self.pointer_bits}"

    def lanes(self, dtype: str) -> int:
        """Returns the elements of `dtype` in one vector register."""
        return max(1, self.vectors.bytes * 8 // bits_of(dtype))

    @property
    def summed_bytes(self) -> int:
        """Returns how many pairs of bytes one instruction multiplies and adds to one sum; 0 if there is none."""
        return self.vectors.bytes if "mve" in self.features else 0

    def block_lanes(self, dtype: str) -> int:
        """Returns the elements of `dtype` in one block of a layout: full vector registers."""
        return max(self.lanes(dtype), self.block_bytes * 8 // bits_of(dtype))

    def for_vectors(self, size: int) -> Target:
        """Returns the machine with vectors of `size` bytes, where vectors are groups of registers."""
        if not self.vectors.by_scalar or not size:
            return self
        return replace(self, vectors=self.vectors.grouped(size))

    def for_sums(self, dtype: str, count: int = 1, accumulates: bool = False) -> Target:
        """Returns the machine with the registers that hold sums of `dtype`: integers may have others than floats.

        Args:
            count: of registers that a vector of sums takes.
            accumulates: whether what is summed up are dot products by an instruction that adds to the sum.
        """
        if count > 1:
            return replace(self, vectors=replace(self.vectors, registers=self.vectors.registers // count))
        if self.format is FileFormat.WASM and dtype == "int32":
            kept = ENGINE_SUM_REGISTERS if self.small else 0
            costs = self.costs.of_engine(by_llvm=self.small)
            vectors = replace(self.vectors, kept_registers=kept, fused=accumulates, narrows_sums=True)
            return replace(self, costs=costs, vectors=vectors)
        if self.hosted or "mve" in self.features or dtype != "int32":
            return self
        return replace(self, vectors=replace(self.vectors, bytes=_PAIR_BYTES, registers=_PAIRS, fused=True))

    def with_precision(self, precision: str) -> Target:
        """Returns the machine whose contractions multiply one of PRECISIONS.

        Raises:
            CompileError: CPUs do not have it.
        """
        if precision not in CPU_PRECISIONS:
            raise CompileError(
                f"code for the target {self.name!r} has no precision {precision}",
                hint=f"that is for the target cuda: choose one of {', '.join(CPU_PRECISIONS)}",
            )
        name = re.sub(r" -precision=\w+", "", self.name)
        name += f" -precision={precision}" if precision != PRECISIONS[0] else ""
        levels = tuple(level.with_precision(precision) for level in self.levels)
        return replace(self, name=name, precision=precision, levels=levels)

    @property
    def float16_type(self) -> str | None:
        """Returns the type that contractions multiply, if that is narrower than float32."""
        return FLOAT16_TYPES.get(self.precision)

    def with_wide(self, contractions: Sequence[str]) -> Target:
        """Returns the machine with contractions that multiply float32 whatever its precision is."""
        levels = tuple(level.with_wide(contractions) for level in self.levels)
        return replace(self, keep_wide=tuple(contractions), levels=levels)

    def made_small(self) -> Target:
        """Returns the machine for which code shall be small rather than fast.

        Raises:
            CompileError: a machine whose libraries are there for threads.
        """
        if "+atomics" in self.zig_cpu:
            raise CompileError(
                f"small libraries have one thread, and those for {self.name} have several",
                hint="choose the target without threads",
            )
        return replace(self, small=True, levels=tuple(level.made_small() for level in self.levels))

    def with_patches(self) -> Target:
        """Returns the machine on which the first layers are computed a few rows at a time."""
        return replace(self, patches=True, levels=tuple(level.with_patches() for level in self.levels))

    def made_reproducible(self) -> Target:
        """Returns the machine for code whose results have the same bits on all machines.

        Raises:
            CompileError: there is no such code for it.
        """
        if not self.hosted:
            raise CompileError(
                f"libraries for the target {self.name} have no reproducible results: it has no operating system",
                hint="processors of x86-64, Arm, RISC-V and WebAssembly with one have",
            )
        if self.small:
            raise CompileError("a small library has no reproducible results", hint="leave out one of the two options")
        # Vectors of 32-bit Arm take subnormal numbers for zero whatever the mode is.
        attributes = ("-neon",) if self.triple.startswith("armv7") else ()
        levels = tuple(level.made_reproducible() for level in self.levels)
        return replace(self, reproducible=True, attributes=(*self.attributes, *attributes), levels=levels)

    @property
    def runs_alone(self) -> bool:
        """Whether its libraries have one thread and call nothing of the runtime during a run."""
        return self.small or not self.hosted

    def widens(self, dtype: str) -> bool:
        """Whether vectors of `dtype`, at most 16 bits wide, become float32 in one or two instructions."""
        return (
            dtype != "float16" or self.triple.startswith("aarch64") or any(f in self.features for f in _WIDEN_FLOAT16)
        )

    @property
    def fuses_multiply_add(self) -> bool:
        """Whether a multiply-add rounds once: engines of WebAssembly may round the product too."""
        return self.vectors.fused and self.format is not FileFormat.WASM

    @property
    def permutes_lanes(self) -> bool:
        """Whether one instruction permutes the lanes of a vector of eight floats or more in any constant order."""
        return self.triple.startswith("x86_64") and self.lanes("float32") >= _LANES_PERMUTED

    @property
    def maps_constants(self) -> bool:
        """Whether constants cost nothing until they are read: files are mapped. Modules of WebAssembly are downloaded,
        and an engine copies what is in them."""
        return self.format is not FileFormat.WASM

    @cached_property
    def quirks(self) -> Quirks:
        """Returns what is worked around for it: behaviour of LLVM and of engines."""
        return quirks_of(self.triple, self.features, self.small)

    @property
    def parallel_grain(self) -> int:
        """Returns how many elements, the reduced ones included, are worth waking another thread.

        Vector after vector, whose operands come from the second cache, takes about two cycles for each.
        """
        return self.costs.launch_cycles * self.lanes("float32") // 2

    @property
    def resident(self) -> int:
        """Returns how many float32 sums stay in the first cache while operands are streamed: a sixteenth of it."""
        return self.costs.l1_bytes // 16 // 4

    @property
    def llvm_options(self) -> tuple[str, ...]:
        """Returns options of LLVM for the whole process, which are set while code for the machine is generated."""
        return process_options(architecture_of(self.triple).name)

    def to_tvm(self) -> tvm.target.Target:
        """Returns the machine as TVM's code generator describes it."""
        level = OPTIMIZATION_LEVEL_SMALL if self.small else OPTIMIZATION_LEVEL
        config = {**llvm_config(self.triple, self.cpu, self.attributes, self.abi), "opt-level": level}
        if needs_vector_width(self.triple):
            config["vector-width"] = 8 * self.vectors.bytes
        if self.llvm_options:
            config["cl-opt"] = list(self.llvm_options)
        return tvm.target.Target(config)
