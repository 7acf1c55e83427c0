"""Lists what LLVM, TVM's use of it, and WebAssembly engines compile badly, by instruction set and features.

Passes ask `target.quirks`, and work around what they find there. Each entry says what happens without the workaround,
and what would make the entry go. Everything that a machine *has* is in :class:`Target` and in the tables that it is
made of; nothing here describes hardware.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

__all__ = [
    "ENGINE_SUM_REGISTERS",
    "OPTIMIZATION_LEVEL",
    "OPTIMIZATION_LEVEL_SMALL",
    "Quirks",
    "is_unrolled_too_far",
    "needs_hard_floats",
    "needs_vector_width",
    "prefers_half_vectors",
    "process_options",
    "quirks_of",
    "wrong_passes",
]

ENGINE_SUM_REGISTERS = 13
"""Registers, of the 16 that engines of WebAssembly have on x86, that sums of integers, their operands, and what each of
them is scaled by after the loop may take, where LLVM writes the loop: products and limits take the others, and V8
spills sums beyond in every iteration. Goes when engines keep accumulators in registers and spill what the loop does not
read."""

OPTIMIZATION_LEVEL, OPTIMIZATION_LEVEL_SMALL = 2, 1
"""Of LLVM's passes. Kernels come scheduled, and level 3 makes them no faster; LLVM 22 then vectorizes some loops with
computed indices wrongly for 512 bits. Level 1, for small code, copies no loops and joins no scalars to vectors, which
takes less room. Goes when level 3 is right and faster."""


@dataclass(frozen=True)
class Quirks:
    """The workarounds for one target.

    Attributes:
        calls_rounding: LLVM calls `roundevenf` for each lane where no instruction rounds vectors: x86-64 before SSE4.1,
            32-bit Arm before version 8. Numbers are rounded by adding 1.5 · 2²³ and taking it away
            (`passes/tir/cpu/round_by_magic_add.py`). Goes when LLVM expands the rounding of vectors so.
        rounding_conversion: LLVM's name of the instruction set where it makes two instructions, or several, of rounding
            to even and converting to int32, for which there is one; else None
            (`passes/tir/cpu/convert_with_rounding.py`). Goes when LLVM joins `llvm.roundeven` and `fptosi` on each of
            them.
        widens_high_products: LLVM widens and narrows vectors of int32 of whose products the upper halves are taken, for
            which x86-64 has an instruction that multiplies every other lane (`passes/tir/cpu/high_products.py`). Goes
            when LLVM finds `mulhs` of vectors in loops.
        keeps_ranges: whether kernels shall have limits and zero points of integers as numbers in their code: with
            these, and not with values that are loaded, rounding and converting takes fewer instructions. Goes when LLVM
            finds out that loaded limits are constant.
        selects_min_max: LLVM makes a comparison and a selection of the maximum and minimum of floats, for which 64-bit
            and 32-bit Arm have one instruction that keeps NaN (`passes/tir/cpu/lower_fmin_fmax.py`). Goes when TVM has
            operators with the meaning of `llvm.maximum` and `llvm.minimum`.
        spills_sums: LLVM orders the loads and multiply-adds of a tile such that more values are alive than there are
            registers: 64-bit Arm, and WebAssembly, where the engine allocates them. Loops of sums are written in
            assembler (`passes/tir/cpu/microkernels/emit_microkernels.py`). Goes when LLVM's scheduler counts registers
            in such loops.
        spare_registers: registers that a tile of one column leaves free, where each value is multiplied by one vector.
            Of the 16 that x86-64 has without AVX-512, sums and factors may take 12: with 14 and more, LLVM loads values
            ahead of their use and stores sums on the stack. 1 × 1 convolutions of 14 × 14 and 13 × 13 pixels take 1.6
            and 1.3 times as long so on Zen 3. Goes with `spills_sums`.
        spills_float_sums: the same as `spills_sums` of float32 alone, with vectors of 256 bits on x86-64: LLVM
            writes the loops of other types. Goes with `spills_sums`.
        spills_totals: engines of WebAssembly spill totals that wait during a loop, and sums of the loop with them:
            sums are cut into fewer, longer parts. Goes when they spill only what the loop does not use.
        converts_lane_by_lane: LLVM narrows the lanes of a single vector one by one on WebAssembly; two vectors become
            one by one instruction. Tiles have an even number of columns. Goes when LLVM pads a single vector.
        searches_deep_loops: LLVM takes up to two thirds of the time in which a convolution with several taps becomes
            machine code to find variables for the addresses in its innermost loop, of which each has a term for every
            loop around. Pointers hide these terms (`passes/tir/common/strength_reduce_pointers.py`). Measured on x86-64
            alone, where the innermost loops stay the same. Goes when LLVM bounds the search.
        rebuilds_constants: engines of WebAssembly make vectors of constants again in each iteration, by three
            instructions each: loops take several vectors in one iteration. Goes when they hoist `v128.const`.
    """

    calls_rounding: bool = False
    rounding_conversion: str | None = None
    widens_high_products: bool = False
    keeps_ranges: bool = False
    selects_min_max: bool = False
    spills_sums: bool = False
    spare_registers: int = 0
    spills_float_sums: bool = False
    spills_totals: bool = False
    converts_lane_by_lane: bool = False
    searches_deep_loops: bool = False
    rebuilds_constants: bool = False


_ROUNDING = {"armv7a": "fp-armv8", "x86_64": "sse4.1", "i686": "sse4.1"}
"""The first feature with an instruction that rounds vectors, of instruction sets where some processors have none. On
others there is one, or LLVM expands the rounding well."""

_BARE = ("thumb", "riscv32")


def quirks_of(triple: str, features: Collection[str], small: bool) -> Quirks:
    """Returns what is worked around for LLVM's `triple`, where code may use these features, and may be small."""
    name = triple.split("-")[0]
    conversion = name if _joins_rounding(name, features) else None
    is_engine = name == "wasm32"
    has_few_registers = name == "x86_64" and "fma" in features and "avx512f" not in features
    return Quirks(
        calls_rounding=name in _ROUNDING and _ROUNDING[name] not in features,
        rounding_conversion=conversion,
        widens_high_products=name == "x86_64" and "sse4.1" in features,
        keeps_ranges=is_engine or name in _BARE or conversion in ("aarch64", "armv7a"),
        selects_min_max=name in ("aarch64", "armv7a"),
        spills_sums=name == "aarch64" or (is_engine and not small),
        spare_registers=4 if has_few_registers else 0,
        spills_float_sums=has_few_registers,
        spills_totals=is_engine,
        converts_lane_by_lane=is_engine,
        searches_deep_loops=name == "x86_64" and not small,
        rebuilds_constants=is_engine and not small,
    )


def _joins_rounding(name: str, features: Collection[str]) -> bool:
    """Whether instructions round float32 to even while they become int32; on WebAssembly and 32-bit Arm they do so to
    numbers between limits."""
    if name == "aarch64":
        return not any(re.fullmatch(r"sve\d{3,}", feature) for feature in features)
    return name in ("x86_64", "wasm32", "armv7a") or (name == "riscv64" and "v" in features)


def wrong_passes(architecture: str) -> tuple[str, ...]:
    """Returns options of LLVM's passes that make wrong code, which are left out.

    `arm-load-store-opt` joins loads and stores to one with several registers, and takes one for the address that is
    still needed (llvm-project 223630, in versions 14 to 24). Goes when that is fixed.
    """
    return ("arm-load-store-opt",) if architecture in ("arm", "thumb") else ()


def process_options(architecture: str) -> tuple[str, ...]:
    """Returns options of LLVM that TVM sets for the whole process while code for an architecture is generated.

    LLVM's code generator for WebAssembly sets `min-jump-table-entries` to 2 for all code that the process generates
    later, for other targets too. Given an option of that name, TVM sets the value back that was there before. Goes when
    LLVM keeps the number by target.
    """
    if architecture == "wasm32":
        return ("-min-jump-table-entries:uint=2",)
    return tuple(f"-{option}:bool=false" for option in wrong_passes(architecture))


_IN_ORDER = re.compile(r"cortex-(a34|a35|a53|a55|a510|a520|a320|r82)(ae)?")


def is_unrolled_too_far(architecture: str, cpu: str) -> bool:
    """Whether LLVM unrolls loops for a processor until their sums no longer fit into the registers.

    It does so for Arm's small cores: code for them is made for the general processor with their features. Goes when
    unrolling looks at the registers that a loop needs.
    """
    return architecture == "aarch64" and _IN_ORDER.fullmatch(cpu) is not None


def prefers_half_vectors(architecture: str, vector_bytes: int) -> bool:
    """Whether LLVM takes 256 bits at once on some processors with 512, whatever the types of vectors are.

    Goes with the tuning feature `prefer-256-bit`.
    """
    return architecture in ("x86_64", "x86") and vector_bytes == 64


def needs_hard_floats(triple: str) -> bool:
    """Whether TVM passes floats in registers of integers though the triple says otherwise. Goes when it asks LLVM."""
    return triple.endswith("none-eabihf")


def needs_vector_width(triple: str) -> bool:
    """Whether TVM does not know how wide vectors of an instruction set are: it assumes 128 bits, and says so on stderr
    for each object. Goes when it asks LLVM."""
    return triple.split("-")[0] in ("wasm32", *_BARE)
