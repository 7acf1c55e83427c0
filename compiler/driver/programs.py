"""The programs of a library: of a network, of the same with some sizes known, and those for levels of processors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

import tvm_ffi

from nnefc.driver.specializations import Specializations
from nnefc.frontends.dynamic_shapes import leaving_open
from nnefc.ir.network import Network
from nnefc.passes.backend import Lowered
from nnefc.passes.manager import PassManager
from nnefc.passes.pipeline import Place, lower, without_code
from nnefc.passes.plan.entry_sizes import counted_sizes
from nnefc.passes.plan.kernel_reuse import CompiledKernels
from nnefc.passes.plan.symbols import entry_symbol
from nnefc.targets.codegen.cpu.objects import CodeGenerator

__all__ = ["LevelPrograms", "lowered_levels"]


@dataclass(frozen=True)
class LevelPrograms:
    """What a library runs on one kind of processor.

    Attributes:
        manager: of the passes of its backend.
        generator: has its kernels already.
        programs: of the network, then those for some sizes.
    """

    manager: PassManager
    generator: CodeGenerator
    programs: Sequence[Lowered]


def lowered_levels(
    network: Network,
    special: Specializations,
    managers: Sequence[PassManager],
    profile: bool,
    place: Place,
    generators: ExitStack,
) -> list[LevelPrograms]:
    """Returns the programs of each level, from the oldest processors on; all share one pool of constants.

    A kernel that computes as one of an older level does, in vectors of the same registers, is that one. A level of
    which this holds for everything is left out.

    Args:
        managers: of the passes of each level's backend.
        profile: whether kernels are timed.
        place: of each program, but for its symbol.
        generators: where the code generators are entered, which begin to work at once; all with the same threads.
    """
    levels: list[LevelPrograms] = []
    compiled: dict[int, CompiledKernels] = {}
    threads = ThreadPoolExecutor(os.cpu_count())
    generators.callback(threads.shutdown, cancel_futures=True)
    for manager in managers:
        level = manager.backend
        generator = generators.enter_context(CodeGenerator(level.objects(manager), threads=threads))
        own = replace(place, symbol=entry_symbol(len(levels)), timed=[] if profile else None)
        width = level.target.host.vectors.bytes
        if len(managers) > 1:
            own = replace(own, compiled=compiled.get(width, CompiledKernels()).copy())
        programs = _programs(network, special, manager, own, generator)
        if any(_are_equal(programs, other.programs) for other in levels):
            continue  # its kernels are not compiled
        levels.append(LevelPrograms(manager, generator, programs))
        if own.compiled is not None:
            compiled[width] = own.compiled
    return levels


def _programs(
    network: Network,
    special: Specializations,
    manager: PassManager,
    place: Place,
    generator: CodeGenerator,
) -> list[Lowered]:
    with leaving_open(network.open_dimensions, network.input_shapes, network.all_counts):
        if special.only:
            programs = [without_code(network, generator.add, place)]
        else:
            programs = [lower(network, manager, generator.add, place)]
    counted = counted_sizes(programs[0].program)
    for number, part in enumerate(special.networks, 1):
        own = replace(place, symbol=f"{place.symbol}_{number}", counted=counted)
        with leaving_open(part.open_dimensions, part.input_shapes, part.all_counts):
            programs.append(lower(part, manager, generator.add, own))
    return programs


def _are_equal(programs: Sequence[Lowered], others: Sequence[Lowered]) -> bool:
    """Whether the programs of two levels call the same kernels with the same operands."""
    return all(
        program.plan.workspace_bytes == other.plan.workspace_bytes
        and tvm_ffi.structural_equal(
            program.entry.without_attr("global_symbol"), other.entry.without_attr("global_symbol")
        )
        for program, other in zip(programs, others, strict=True)
        if program.module.functions and other.module.functions
    )
