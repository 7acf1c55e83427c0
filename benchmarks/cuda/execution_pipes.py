"""What instructions of GPUs occupy: pipes, and for how many cycles.

Each of the four schedulers of a processor issues an instruction of a warp in a cycle. The instruction then occupies
its pipe for as many cycles as that takes to begin the work of 32 threads; pipes of the processor, as shared memory,
serve all four schedulers. The rates of the table are those of 8.0 to 10.0 in the CUDA programming guide, "Throughput of
Native Arithmetic Instructions", of a processor in a cycle; those of tensor cores, float32, shared memory and the second
cache are of `targets/machine/gpu`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nnefc.targets.machine.gpu.description import SCHEDULERS, WARP, Gpu

__all__ = ["PIPES", "access_bytes", "cycles_of", "named", "pipe_of"]

PIPES = ("tensor", "shared", "memory", "FMA", "ALU", "special", "uniform", "control")
"""Kinds of instructions: tensor cores; loads and stores of shared memory, and exchanges between threads; copies, loads
and stores of device memory; multiply-adds, additions and multiplications, of integers too; other arithmetic of floats
and integers, comparisons and moves; functions and conversions; registers of a warp; branches, barriers and waits."""

_TENSOR = r"[HIQD]G?MMA|UTC[HIQ]MMA"
_SHARED = r"LDS|STS|LDSM|STSM|STAS|ATOMS|SHFL|LDTM|STTM"
_MEMORY = r"LDGSTS|LDG|STG|LDL|STL|LD|ST|ATOM|ATOMG|RED|REDG|UTMALDG|UTMASTG|UBLKCP|LDC|LDCU"
_FMA = r"FFMA2?|FMUL2?|FADD2?|HFMA2|HADD2|HMUL2|IMAD|IDP|DFMA|DADD|DMUL"
_SPECIAL = r"MUFU|I2FP?|F2IP?|F2F|POPC|FLO|BREV|FRND|I2I"
_CONTROL = (
    r"BRA|BRX|BAR|BSSY|BSYNC|BREAK|CALL|RET|EXIT|NOP|YIELD|NANOSLEEP|DEPBAR|LDGDEPBAR|ARRIVES|MEMBAR|FENCE|ERRBAR|CCTL"
    r"|SYNCS|ELECT|WARPSYNC|WARPGROUP|WARPGROUPSET|UTCBAR|UCGABAR_\w+|CGAERRBAR|USETMAXREG|UTCATOMSWS|UTMACCTL\w*"
    r"|UTMACMDFLUSH|UTMAPF|BPT|ENDCOLLECTIVE|BMOV|UVIRTCOUNT|ACQBULK|PREEXIT"
)
_UNIFORM = r"U\w+|R2UR|S2UR|VOTEU|REDUX"
_PATTERNS = tuple(
    (pipe, re.compile(pattern))
    for pipe, pattern in (
        ("tensor", _TENSOR),
        ("shared", _SHARED),
        ("memory", _MEMORY),
        ("FMA", _FMA),
        ("special", _SPECIAL),
        ("control", _CONTROL),
        ("uniform", _UNIFORM),
    )
)

_ACCESS = re.compile(r"(LDGSTS|LDG|STG|LDSM|STSM|LDS|STS|LDL|STL|STAS|LD|ST)\b")
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1}

_INTEGER_LANES = 64
"""Integer instructions, comparisons and moves that a processor begins in a cycle, in threads; `IMAD` too."""

_SPECIAL_LANES = 16
"""Special functions and conversions of types, likewise."""


def pipe_of(name: str) -> str:
    """Returns the kind of an instruction."""
    opcode = name.partition(".")[0]
    return next((pipe for pipe, pattern in _PATTERNS if pattern.fullmatch(opcode)), "ALU")


def access_bytes(name: str) -> int:
    """Returns what a thread loads or stores, or the bytes of a row of `LDSM` and `STSM`; 0 of other instructions."""
    if not (match := _ACCESS.match(name)):
        return 0
    if match[1] in ("LDSM", "STSM"):
        return 16
    return next((_WIDTHS[part] for part in name.split(".")[1:] if part in _WIDTHS), 4)


def named(name: str) -> str:
    """Returns an instruction without its options; of loads and stores with their bytes, as `LDG.16`."""
    opcode = name.partition(".")[0]
    size = access_bytes(name)
    return f"{opcode}.{size}" if size and not opcode.endswith("SM") else opcode


def cycles_of(counts: Mapping[str, int], gpu: Gpu) -> dict[str, float]:
    """Returns the cycles of a scheduler's pipes for the instructions of a loop, by pipe, and `issue`.

    Tensor cores, shared memory and fetches depend on more than the instructions: they are in `Loop.cycles`.

    Args:
        counts: of instructions, by :func:`named`.
        gpu: the device.
    """
    floats, integers, special = (
        WARP * SCHEDULERS / lanes for lanes in (gpu.architecture.multiply_adds, _INTEGER_LANES, _SPECIAL_LANES)
    )
    costs = {"FMA": floats, "ALU": integers, "special": special}
    cycles = {"issue": float(sum(counts.values()))}
    for name, count in counts.items():
        if (pipe := pipe_of(name)) in costs:
            cost = integers if name in ("IMAD", "IDP") else costs[pipe]
            cycles[pipe] = cycles.get(pipe, 0.0) + count * cost
    return cycles
