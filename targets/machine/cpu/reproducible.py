"""Describes the machine that passes and rules assume where results must be bit-identical on all processors.

    reproducible results  →  layouts, algorithms, computations, schedules: for the common machine; code: for the target

What results are rounded to follows from the program of TIR: its sums have the order of its loops, multiply-adds are
not fused, and elementary functions are made of portable arithmetic (`targets/codegen/cpu/portable_arithmetic.py`). This
program is made for one machine, which none is; LLVM takes as many registers of the target for its vectors as they
need. What schedule rules learn of the target is how many of these vectors its registers hold, for that decides how many
results are computed in parallel, and not in which order each of them is summed up.
"""

from __future__ import annotations

from dataclasses import replace

from nnefc.targets.machine.cpu.architecture import Vectors
from nnefc.targets.machine.cpu.costs import microarchitecture_of
from nnefc.targets.machine.cpu.target import Target

__all__ = ["machine_of_passes", "machine_of_schedules"]

_VECTOR_BYTES = 64
"""The widest vectors of the targets: narrower ones are made of these, but not the other way round."""

_VECTOR_REGISTERS = 8
"""As many bytes as 16 registers of 32 bytes, or 32 of 16, have."""

_MIN = 5
"""For a tile of two vectors: its sums, a vector of each factor and a product."""

_COMMON = Target(
    name="common",
    triple="",
    cpu="",
    attributes=(),
    features=(),
    vectors=Vectors(_VECTOR_BYTES, _VECTOR_REGISTERS, fused=False),
    zig_target="x86_64-linux-gnu",
    costs=microarchitecture_of("x86_64", "x86-64-v4").costs(_VECTOR_BYTES),
)


def machine_of_passes(target: Target) -> Target:
    """Returns the machine that graph passes compile for: the target, or the common one."""
    if not target.reproducible:
        return target
    return replace(_COMMON, precision=target.precision, keep_wide=target.keep_wide, patches=target.patches)


def machine_of_schedules(target: Target) -> Target:
    """Returns the machine that schedules are made for: the same, with as many registers as the target has."""
    machine = machine_of_passes(target)
    if not target.reproducible:
        return machine
    held = target.vectors.registers * target.vectors.bytes // _VECTOR_BYTES
    return replace(machine, vectors=replace(machine.vectors, registers=max(held, _MIN)))
