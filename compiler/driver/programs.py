"""Lowers the programs of a library: for each ISA level the general program and its specializations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

import tvm_ffi

from nnefc.driver.specializations import Specializations
from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.ir.network import Network
from nnefc.passes.backend import Lowered
from nnefc.passes.manager import PassManager
from nnefc.passes.pipeline import lower, without_code
from nnefc.passes.plan.entry_sizes import data_dependent_sizes
from nnefc.passes.plan.kernel_reuse import CompiledKernels
from nnefc.passes.plan.symbols import entry_symbol
from nnefc.passes.program_passes import LibraryContext
from nnefc.targets.codegen.cpu.objects import CodeGenerator

__all__ = ["IsaLevelPrograms", "lowered_isa_levels"]


@dataclass(frozen=True)
class IsaLevelPrograms:
    """The programs of a library for one ISA level.

    Attributes:
        manager: of the passes of its backend.
        generator: of its code; it already compiles the kernels.
        programs: the general program, then the specializations.
    """

    manager: PassManager
    generator: CodeGenerator
    programs: Sequence[Lowered]


def lowered_isa_levels(
    network: Network,
    special: Specializations,
    managers: Sequence[PassManager],
    profile: bool,
    library_context: LibraryContext,
    generators: ExitStack,
) -> list[IsaLevelPrograms]:
    """Return the programs of each ISA level, from the oldest processors on; all share one pool of constants.

    A kernel that is the same as that of an older level, with vectors in the same registers, is shared with it. A level
    whose kernels are all shared is left out.

    Args:
        network: the network for all sizes.
        special: its specializations.
        managers: of the passes of each level's backend.
        profile: whether kernels are timed.
        library_context: of each program, except for its symbol.
        generators: enters the code generators, which compile in the background; all with the same threads.
    """
    levels: list[IsaLevelPrograms] = []
    compiled: dict[int, CompiledKernels] = {}
    threads = ThreadPoolExecutor(os.cpu_count())
    generators.callback(threads.shutdown, cancel_futures=True)
    for manager in managers:
        level = manager.backend
        apart = level.names_by_content and len(managers) == 1 and library_context.checked is None
        compile = level.objects(manager)
        generator = generators.enter_context(CodeGenerator(compile, threads=threads, apart=apart))
        own = replace(
            library_context, symbol=entry_symbol(len(levels)), timed=[] if profile else None, by_content=apart, calls=[]
        )
        width = level.target.host.vectors.bytes
        if len(managers) > 1:
            own = replace(own, compiled=compiled.get(width, CompiledKernels()).copy())
        programs = _programs(network, special, manager, own, generator)
        if any(_are_equal(programs, other.programs) for other in levels):
            continue  # its kernels are not compiled
        levels.append(IsaLevelPrograms(manager, generator, programs))
        if own.compiled is not None:
            compiled[width] = own.compiled
    return levels


def _programs(
    network: Network,
    special: Specializations,
    manager: PassManager,
    library_context: LibraryContext,
    generator: CodeGenerator,
) -> list[Lowered]:
    with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes):
        if special.only:
            programs = [without_code(network, generator.add, library_context)]
        else:
            programs = [lower(network, manager, generator.add, library_context)]
    data_dependent = data_dependent_sizes(programs[0].program)
    for number, part in enumerate(special.networks, 1):
        own = replace(library_context, symbol=f"{library_context.symbol}_{number}", data_dependent=data_dependent)
        with dynamic_shape_context(part.dynamic_dimensions, part.input_shapes, part.all_data_dependent_sizes):
            programs.append(lower(part, manager, generator.add, own))
    return programs


def _are_equal(programs: Sequence[Lowered], others: Sequence[Lowered]) -> bool:
    """Return whether the programs of two levels call the same kernels with the same operands."""
    return all(
        program.plan.workspace_bytes == other.plan.workspace_bytes
        and tvm_ffi.structural_equal(
            program.entry.without_attr("global_symbol"), other.entry.without_attr("global_symbol")
        )
        for program, other in zip(programs, others, strict=True)
        if program.module.functions and other.module.functions
    )
