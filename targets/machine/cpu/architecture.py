"""Describes instruction sets: vector registers by features, and the features that the runtime checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from nnefc.support.diagnostics import CompileError

__all__ = ["ARCHITECTURES", "RISCV_LENGTHS", "Architecture", "Vectors", "architecture_of"]


@dataclass(frozen=True)
class Vectors:
    """The vector registers of a machine.

    Attributes:
        bytes: width of a register.
        registers: number of registers.
        fused: whether one instruction multiplies and adds.
        by_lane: whether it can multiply a vector by any one lane of another.
        by_scalar: whether it can multiply a vector by a scalar register.
        long_products: whether one instruction multiplies vectors of bytes to 16-bit integers, and one accumulates these
            in 32-bit integers.
        group: the number of physical registers in each of these (LMUL of RISC-V).
        scale: the vector length for which code is generated, in units of 128 bits, if the instruction set does not fix
            it (SVE); else 0.
        kept_registers: the number of registers for accumulators, their operands, and values that are read after the
            loop; beyond it, accumulators are spilled in each iteration. 0 if values after the loop take none.
        narrows_sums: whether accumulators are integers that may be converted to bytes, and LLVM converts single
            vectors lane by lane (`Quirks.converts_lane_by_lane`).
        are_scalars: whether the machine has no vectors: each of these is four scalar registers.
    """

    bytes: int
    registers: int
    fused: bool
    by_lane: bool = False
    by_scalar: bool = False
    long_products: bool = False
    group: int = 1
    scale: int = 0
    kept_registers: int = 0
    narrows_sums: bool = False
    are_scalars: bool = False

    def grouped(self, size: int) -> Vectors:
        """Return vectors of `size` bytes, if registers can be grouped: more smaller or fewer larger ones."""
        group = min(max(1, self.group * size // self.bytes), _LARGEST_GROUP)
        registers = self.registers * self.group // group
        return replace(self, bytes=self.bytes // self.group * group, registers=registers, group=group)


_LARGEST_GROUP = 8
"""Maximum registers that a RISC-V instruction can group (LMUL)."""


@dataclass(frozen=True)
class VectorExtension:
    """Vector registers that a machine has if it has all these features, by LLVM's names."""

    features: tuple[str, ...]
    vectors: Vectors


@dataclass(frozen=True)
class Architecture:
    """An instruction set architecture.

    Attributes:
        name: zig's name, the first part of its targets.
        llvm: LLVM's name, the first part of its triples.
        spellings: other names that users may write, a regular expression.
        cpu: LLVM's name of the baseline processor.
        attributes: features that LLVM's processor of that name lacks, but every system has.
        required: features without which libraries do not work.
        extensions: vector extensions, the widest first; the last one needs no features.
        checked: features beyond the baseline that generated code may use: those that make code faster, and that the
            runtime can detect on the systems of this architecture. All others are switched off.
        tiles: features of a matrix unit, which only some kernels use: libraries with such kernels check these as well.
            The system has to permit its use, which only Linux is asked for.
        tuning: LLVM features, a regular expression, that are not instructions: those for fast instructions of a
            processor, and versions of the instruction set, whose features have names of their own.
        pointer_bits: size of a pointer, and of C's size_t.
        abi: LLVM's name of the calling convention, if it must be given.
        hosted: whether its machines have an operating system; those without one are microcontrollers.
        lengths: vector lengths for which code can be generated, by names that LLVM does not know, each with LLVM's
            names of processors that all have it. Such code runs with no other length.
        cpuinfo: names of features in Linux' /proc/cpuinfo that differ from LLVM's; empty if that is not read.
        own: features that LLVM does not know, each with the LLVM feature that the code for it needs.
        includes: features whose code uses only instructions of an older feature that they include.
    """

    name: str
    llvm: str
    spellings: str
    cpu: str
    required: tuple[str, ...]
    extensions: tuple[VectorExtension, ...]
    checked: tuple[str, ...] = ()
    tiles: tuple[str, ...] = ()
    tuning: str = ""
    attributes: tuple[str, ...] = ()
    pointer_bits: int = 64
    abi: str = ""
    lengths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    cpuinfo: Mapping[str, str] = field(default_factory=dict)
    includes: Mapping[str, str] = field(default_factory=dict)
    hosted: bool = True

    def vectors(self, features: Set[str]) -> Vectors:
        """Returns the widest vector registers that a machine with `features` has."""
        return next(e.vectors for e in self.extensions if set(e.features) <= features)

    def known_to_llvm(self, features: Iterable[str]) -> tuple[str, ...]:
        """Return the features of a target that LLVM knows: all but vector lengths and our own."""
        return tuple(feature for feature in features if feature not in {*self.lengths, *self.own})


RISCV_LENGTHS = (1024, 512, 256, 128)
"""Minimum bits of RISC-V's scalable vectors, the longest first: code for a fixed length also runs on longer vectors."""

# Instructions take groups of registers for one, as many as hold a line of a cache: fewer instructions, which take as
# many cycles.
_RISCV_GROUP_BYTES = 64


def _riscv_vectors(bits: int) -> Vectors:
    group = max(1, _RISCV_GROUP_BYTES * 8 // bits)
    return Vectors(bits * group // 8, 32 // group, fused=True, by_scalar=True, long_products=True, group=group)


# Scalable vectors of Arm, for which fixed ones are better than NEON's if they are longer.
_ARM_LENGTHS = (512, 256)

_X86_64 = Architecture(
    "x86_64",
    "x86_64",
    r"x86_64|amd64",
    cpu="x86-64",
    required=("64bit", "sse2"),
    extensions=(
        VectorExtension(("avx512f", "avx512vl"), Vectors(64, 32, fused=True)),
        VectorExtension(("avx", "fma"), Vectors(32, 16, fused=True)),
        VectorExtension(("avx",), Vectors(32, 16, fused=False)),
        VectorExtension((), Vectors(16, 16, fused=False)),
    ),
    checked=(
        *("sse3", "ssse3", "sse4.1", "sse4.2", "sse4a", "popcnt", "lzcnt", "movbe"),
        *("avx", "f16c", "fma", "avx2", "bmi", "bmi2", "fma4", "xop", "tbm", "gfni"),
        *("avxvnni", "avxvnniint8", "avxvnniint16", "avxifma", "avxneconvert"),
        *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2"),
        *("avx512vnni", "avx512bitalg", "avx512vpopcntdq", "avx512bf16", "avx512fp16", "avx10.1", "avx10.2"),
        *("egpr", "push2pop2", "ppx", "ccmp", "cf", "ndd", "nf", "zu"),
    ),
    tiles=("amx-tile", "amx-bf16", "amx-int8"),
    cpuinfo={
        "sse3": "pni",
        "sse4.1": "sse4_1",
        "sse4.2": "sse4_2",
        "bmi": "bmi1",
        "lzcnt": "abm",
        "avxvnni": "avx_vnni",
        **{f"amx-{n}": f"amx_{n}" for n in ("tile", "bf16", "int8")},
        **{f"avx512{n}": f"avx512_{n}" for n in ("vnni", "bf16", "vbmi2", "bitalg", "vpopcntdq", "fp16")},
    },
    tuning=r"(fast|faster|slow|false-deps|prefer|no-bypass|use|tuning|allow|idiv[lq]|lea|pad)-.*"
    r"|branch-?fusion|macrofusion|branch-hint|ermsb|fsrm|sbb-dep-breaking|vzeroupper",
)

# Programs of 32 bits: the same instructions, half of the registers or fewer.
_X86 = replace(
    _X86_64,
    name="x86",
    llvm="i686",
    spellings=r"i[3-6]86|x86",
    required=("sse2",),
    extensions=tuple(replace(each, vectors=replace(each.vectors, registers=8)) for each in _X86_64.extensions),
    tiles=(),
    pointer_bits=32,
)

ARCHITECTURES = (
    _X86_64,
    _X86,
    Architecture(
        "aarch64",
        "aarch64",
        r"aarch64|arm64",
        cpu="generic",
        required=("neon",),
        extensions=(
            *(
                VectorExtension(("sve", f"sve{n}"), Vectors(n // 8, 32, fused=True, by_lane=True, scale=n // 128))
                for n in _ARM_LENGTHS
            ),
            VectorExtension((), Vectors(16, 32, fused=True, by_lane=True, long_products=True)),
        ),
        checked=(
            *("dotprod", "fullfp16", "fp16fml", "bf16", "i8mm", "lse", "rdm", "sve", "sve2"),
            *(f"sve{n}" for n in _ARM_LENGTHS),
        ),
        tiles=("sme",),
        includes={f"sme2{version}": "sme" for version in ("", "p1", "p2")},
        lengths={"sve512": ("a64fx",), "sve256": ("neoverse-v1",)},
        cpuinfo={
            "dotprod": "asimddp",
            "fullfp16": "asimdhp",
            "fp16fml": "asimdfhm",
            "lse": "atomics",
            "rdm": "asimdrdm",
        },
        # the first line are families of processors
        tuning=r"a\d+\w*|(ampere|apple-|c1-|cortex-|exynos|fujitsu-|neoverse|oryon-|thunderx).*|carmel|falkor|kryo|olympus"
        r"|saphira|tsv110|v[89](\.\d+)?[ar]"
        r"|(addr-lsl|aggressive|arith|avoid|balance|cmp|disable|fuse|max-interleave|slow|use|zcm|zcz)-.*"
        r"|alternate-sextload-cvt-f32-pattern|alu-lsl-fast|enable-select-opt|force-32bit-jump-tables|no-sve-fp-ld1r"
        r"|no-zcz-fpr64|(ldp|stp)-aligned-only|predictable-select-expensive|store-pair-suppress|strict-align",
    ),
    Architecture(
        "arm",
        "armv7a",
        r"armv7(a|l)?|arm",
        cpu="generic",
        required=("aclass", "neon", "d32"),
        extensions=(
            VectorExtension(("neon", "vfp4"), Vectors(16, 16, fused=True, long_products=True)),
            VectorExtension((), Vectors(16, 16, fused=False, long_products=True)),
        ),
        checked=("neon", "vfp4", "hwdiv-arm", "fp-armv8", "fullfp16", "fp16fml", "bf16", "dotprod", "i8mm"),
        tuning=r"a\d+c?|cortex-.*|exynos|krait|kryo|m\d+|r\d+(plus)?|swift|armv\d.*|v[89](\.\d+)?a"
        r"|(avoid|cheap|disable|dont|expand|fix|fuse|neon-fpmovs|nonpipelined|prefer|slow|splat|use)-.*"
        r"|fpao|loop-align|branch-align-64|muxed-units|neon-fpmovs|neonfp|no-movt|prof-unpr|ret-addr-stack|slowfpvfmx"
        r"|slowfpvmlx|strict-align|vldn-align|vmlx-(forwarding|hazards)|wide-stride-vfp|zcz",
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
            *(VectorExtension(("v", f"zvl{n}b"), _riscv_vectors(n)) for n in RISCV_LENGTHS),
            # no vectors: 32 scalar registers, which LLVM uses four at a time
            VectorExtension((), Vectors(16, 8, fused=True, are_scalars=True)),
        ),
        checked=(
            *("v", *(f"zvl{2**n}b" for n in range(16, 6, -1))),
            *("zba", "zbb", "zbs", "zfh", "zfhmin", "zvfh", "zvfhmin", "zfa", "zicond", "zvbb"),
        ),
        tuning=r"andes45|sifive7|mips-p8700|ventana-veyron|.*-fusion|dlen-factor-2|log-vrgather|single-element-vec-fp64"
        r"|(disable|no|optimized|prefer|short-forward-branch|use)-.*|vl-dependent-latency|vxrm-pipeline-flush",
        abi="lp64d",
    ),
    Architecture(
        "wasm32",
        "wasm32",
        r"wasm32",
        cpu="generic",
        required=("simd128",),
        # an engine that lacks a feature refuses the module: nothing is left to switch off
        checked=("relaxed-simd", "relaxed-udot", "relaxed-sdot", "atomics"),
        # what the dot product of relaxed SIMD does with 8 bits where it is asked for 7 of an operand
        own={"relaxed-udot": "relaxed-simd", "relaxed-sdot": "relaxed-simd"},
        attributes=("+simd128",),
        tuning=r".*",
        extensions=(
            # x86's, of which engines keep one for themselves
            VectorExtension(("relaxed-simd",), Vectors(16, 15, fused=True)),
            VectorExtension((), Vectors(16, 15, fused=False)),
        ),
        pointer_bits=32,
    ),
    Architecture(
        "thumb",
        "thumb",
        r"thumb",
        cpu="cortex-m0plus",
        required=("mclass",),
        checked=("dsp", "mve", "mve.fp", "vfp2sp"),
        # who builds a program for a microcontroller knows which one it is: nothing is looked for at run time
        tuning=r".*",
        extensions=(
            VectorExtension(("mve.fp",), Vectors(16, 8, fused=True)),
            VectorExtension(("mve",), Vectors(16, 8, fused=False)),
            # no vectors: 32 scalar registers of the floating-point unit, or 13 others, which LLVM uses four at a time
            VectorExtension(("vfp2sp",), Vectors(16, 8, fused=True, are_scalars=True)),
            VectorExtension((), Vectors(16, 6, fused=False, are_scalars=True)),
        ),
        pointer_bits=32,
        hosted=False,
    ),
    Architecture(
        "riscv32",
        "riscv32",
        r"riscv32(imc)?",
        cpu="generic-rv32",
        required=("32bit", "m"),
        attributes=("+m", "+c"),
        tuning=r".*",
        extensions=(VectorExtension((), Vectors(16, 8, fused=False, are_scalars=True)),),
        pointer_bits=32,
        abi="ilp32",
        hosted=False,
    ),
)


def architecture_of(triple: str) -> Architecture:
    """Return the architecture of an LLVM triple.

    Raises:
        CompileError: it is unknown.
    """
    first = triple.partition("-")[0]
    for architecture in ARCHITECTURES:
        if re.fullmatch(architecture.spellings, first):
            return architecture
    known = ", ".join(architecture.name for architecture in ARCHITECTURES)
    raise CompileError(f"unknown instruction set {first!r} in the triple {triple!r}", hint=f"nnefc knows {known}")
