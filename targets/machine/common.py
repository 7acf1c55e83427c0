"""The machine that passes and schedule rules see where results shall have the same bits on all processors.

    results = reproducible  →  passes, layouts, algorithms, schedules: for COMMON;  code: for the target

What an operation rounds to follows from the program of TIR alone: its sums have the order of its loops, multiply-adds are
not fused, and elementary functions are made of plain arithmetic (`targets/codegen/cpu/plain_arithmetic.py`). So it is enough
that this program is the same for all targets: it is made for one machine, which none is. LLVM makes of its vectors as many
registers as the target needs for them.
"""

from __future__ import annotations

from dataclasses import replace

from nnefc.targets.machine.costs import microarchitecture_of
from nnefc.targets.machine.target import Target

__all__ = ["COMMON", "machine_of_passes"]

_VECTOR_BYTES = 64
"""The widest vectors of the targets: narrower ones are made of these, but not the other way round."""

_VECTOR_REGISTERS = 9
"""A tile of six such vectors, two of the other factor and a product: of 32 bytes that are 16 registers and two more."""

COMMON = Target(
    name="common",
    triple="",
    cpu="",
    attributes=(),
    features=(),
    vector_bytes=_VECTOR_BYTES,
    vector_registers=_VECTOR_REGISTERS,
    zig_target="x86_64-linux-gnu",
    costs=microarchitecture_of("x86_64", "x86-64-v4").costs(_VECTOR_BYTES),
    fused=False,
)


def machine_of_passes(target: Target) -> Target:
    """The machine that passes and schedule rules make a program for: the target, or the common one."""
    if not target.reproducible:
        return target
    return replace(COMMON, precision=target.precision, keep_wide=target.keep_wide, patches=target.patches)
