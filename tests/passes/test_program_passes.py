"""Passes over the program of a network: each adds a further part to its state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pass_runs import optimized
from relax_programs import network_of, program

from nnefc.backends.cpu import CpuBackend
from nnefc.passes.plan.kernel_reuse import CompiledKernels
from nnefc.passes.program_passes import LibraryContext, ProgramContext, ProgramState, list_calls, plan_buffers
from nnefc.passes.schedule.in_place import InPlace
from nnefc.targets.machine.cpu.parsing import parse_target


def context(small: bool = False, **library: Any) -> ProgramContext:
    target = replace(parse_target("x86-64-v3"), small=small)
    return ProgramContext(CpuBackend(target), LibraryContext(**library))


def test_a_state_has_the_calls_then_the_addresses_of_the_buffers_between_them() -> None:
    position = context()
    network = network_of(program("x[4, 64]; w[64, 64] -> z\ny = R.matmul(x, w)\nz = R.matmul(y, w)"))
    state = list_calls(ProgramState(optimized(network, position.backend)), position)
    assert state.plan is None
    (between,) = set(state.listed.steps[-2].writes) & set(state.listed.steps[-1].reads)
    state = replace(state, in_place={kernel: InPlace() for kernel in state.listed.kernels})
    plan = plan_buffers(state, position).planned
    assert plan.positions[between].base == "workspace"
    assert plan.workspace_bytes >= 4 * 64 * 4


def test_kernels_are_merged_in_small_libraries_of_one_program() -> None:
    """Those of other programs, and checks that name what a kernel computes, refer to the kernels as they were."""
    assert context(small=True).merges
    assert not context().merges
    assert not context(small=True, compiled=CompiledKernels()).merges
    assert not context(small=True, checked={}).merges
