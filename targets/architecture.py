"""What all machines of one instruction set have in common: vector registers, and features that the runtime checks."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from nnefc.diagnostics import CompileError

__all__ = ["ARCHITECTURES", "Architecture", "Vectors", "architecture_of"]


@dataclass(frozen=True)
class Vectors:
    """The vector registers of a machine.

    Attributes:
        bytes: width of one.
        registers: how many there are.
        fused: whether one instruction multiplies and adds.
        loads: vectors that are loaded, or numbers that are loaded into all lanes, in the time of a multiply-add.
    """

    bytes: int
    registers: int
    fused: bool
    loads: int = 1


@dataclass(frozen=True)
class VectorExtension:
    """Vector registers that a machine has if it has all these features, by LLVM's names."""

    features: tuple[str, ...]
    vectors: Vectors


@dataclass(frozen=True)
class Architecture:
    """An instruction set.

    Attributes:
        name: zig's name of it, the first part of its targets.
        llvm: LLVM's name of it, the first part of its triples.
        spellings: what users may write in its place, a regular expression.
        cpu: LLVM's name of the processor that every other one is an extension of.
        attributes: features that LLVM's processor of that name lacks, and every system has.
        required: features without which nothing here works.
        extensions: the widest first; the last one needs nothing.
        checked: features that generated code may use beyond the baseline, and that the runtime can look for.
        pointer_bits: size of a pointer, and of C's size_t.
        abi: LLVM's name of the calling convention, where it has to be said.
        unrolled: processors for which LLVM unrolls loops until their sums no longer fit into the registers, a regular
            expression: code for them is made for the general processor with their features.
    """

    name: str
    llvm: str
    spellings: str
    cpu: str
    required: tuple[str, ...]
    extensions: tuple[VectorExtension, ...]
    checked: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    pointer_bits: int = 64
    abi: str = ""
    unrolled: str = ""

    def vectors(self, features: Set[str]) -> Vectors:
        """The widest vector registers that a machine with `features` has."""
        return next(e.vectors for e in self.extensions if set(e.features) <= features)


# Scalable vectors of RISC-V are at least so many bits; code for fixed lengths runs on longer ones too.
_RISCV_LENGTHS = (512, 256, 128)

ARCHITECTURES = (
    Architecture(
        "x86_64",
        "x86_64",
        r"x86_64|amd64",
        cpu="x86-64",
        required=("64bit", "sse2"),
        extensions=(
            VectorExtension(("avx512f", "avx512vl"), Vectors(64, 32, fused=True, loads=2)),
            VectorExtension(("avx", "fma"), Vectors(32, 16, fused=True, loads=2)),
            VectorExtension(("avx",), Vectors(32, 16, fused=False, loads=2)),
            VectorExtension((), Vectors(16, 16, fused=False)),
        ),
        checked=(
            "sse4.2",
            "avx",
            "avx2",
            "fma",
            "f16c",
            "bmi",
            "bmi2",
            "avx512f",
            "avx512bw",
            "avx512cd",
            "avx512dq",
            "avx512vl",
            "avx512vnni",
            "avx512bf16",
            "avx512vbmi",
            "avx512vbmi2",
            "avx512ifma",
            "avx512bitalg",
            "avx512vpopcntdq",
            "gfni",
            "vaes",
            "vpclmulqdq",
        ),
    ),
    Architecture(
        "aarch64",
        "aarch64",
        r"aarch64|arm64",
        cpu="generic",
        required=("neon",),
        extensions=(VectorExtension((), Vectors(16, 32, fused=True)),),
        checked=("dotprod", "fullfp16", "fp16fml", "bf16", "i8mm", "lse", "rdm"),
        unrolled=r"cortex-(a34|a35|a53|a55|a510|a520|a320|r82)(ae)?",
    ),
    Architecture(
        "arm",
        "armv7a",
        r"armv7(a|l)?|arm",
        cpu="generic",
        required=("aclass", "neon", "d32"),
        extensions=(
            VectorExtension(("neon", "vfp4"), Vectors(16, 16, fused=True)),
            VectorExtension((), Vectors(16, 16, fused=False)),
        ),
        checked=("neon", "vfp4", "hwdiv-arm"),
        pointer_bits=32,
    ),
    Architecture(
        "riscv64",
        "riscv64",
        r"riscv64(gcv?)?",
        cpu="generic-rv64",
        required=("64bit", "m", "a", "f", "d"),
        attributes=("+m", "+a", "+f", "+d", "+c"),
        extensions=(
            *(VectorExtension(("v", f"zvl{n}b"), Vectors(n // 8, 32, fused=True)) for n in _RISCV_LENGTHS),
            # no vectors: 32 scalar registers, which LLVM uses four at a time
            VectorExtension((), Vectors(16, 8, fused=True)),
        ),
        checked=("v", *(f"zvl{n}b" for n in _RISCV_LENGTHS), "zba", "zbb", "zbs", "zfh", "zvfh"),
        abi="lp64d",
    ),
    Architecture(
        "wasm32",
        "wasm32",
        r"wasm32",
        cpu="generic",
        required=("simd128",),
        attributes=("+simd128",),  # an engine without it refuses the module: nothing is left to check at run time
        extensions=(
            VectorExtension(("simd128", "relaxed-simd"), Vectors(16, 16, fused=True)),
            VectorExtension((), Vectors(16, 16, fused=False)),
        ),
        pointer_bits=32,
    ),
)


def architecture_of(triple: str) -> Architecture:
    """The architecture that LLVM's `triple` begins with.

    Raises:
        CompileError: none that is known.
    """
    first = triple.partition("-")[0]
    for architecture in ARCHITECTURES:
        if re.fullmatch(architecture.spellings, first):
            return architecture
    known = ", ".join(architecture.name for architecture in ARCHITECTURES)
    raise CompileError(f"unknown instruction set {first!r} in the triple {triple!r}", hint=f"nnefc knows {known}")
