"""Describes the named targets in words, for `nnefc targets` and the documentation."""

from __future__ import annotations

from dataclasses import dataclass

from nnefc.targets.machine.cpu.architecture import Vectors
from nnefc.targets.machine.named_targets import C_SOURCE, DEFAULT_GPUS, NAMED_TARGETS

__all__ = ["Row", "target_rows"]


@dataclass(frozen=True)
class Row:
    """The description of a named target."""

    name: str
    triple: str
    about: str
    file: str
    vectors: str
    features: str
    proof: str


_CUDA = Row(
    name="cuda",
    triple="NVIDIA GPU",
    about="NVIDIA GPUs, " + ", ".join(f"sm_{number}" for number in DEFAULT_GPUS) + " and newer",
    file="ELF .so",
    vectors="threads",
    features="NVIDIA's driver, the architecture",
    proof="the kernels' source executed on a CPU, the runtime on a driver that records",
)


_C_SOURCE = Row(
    name=C_SOURCE,
    triple="any",
    about="C99 source for any C compiler; with -mcpu=cortex-m4 and the like the DSP instructions of Arm",
    file="C .c",
    vectors="none",
    features="nothing",
    proof="GCC, Clang; qemu-system-arm, qemu-riscv32",
)


def target_rows() -> list[Row]:
    """Returns the named targets, in their order, C source, and GPUs."""
    rows = []
    for known in NAMED_TARGETS:
        file = f"{known.format.title} {known.format.suffix if known.hosted else '.a'}"
        features = (" ".join(known.features) if known.hosted else "") or "nothing"
        rows.append(Row(known.name, known.triple, known.about, file, _words(known.vectors), features, known.proof))
    return [*rows, _C_SOURCE, _CUDA]


def _words(vectors: Vectors) -> str:
    if vectors.are_scalars:
        return "none, FMA" if vectors.fused else "none"
    width = f"{vectors.group} × " * (vectors.group > 1) + str(8 * vectors.bytes // vectors.group)
    return f"{vectors.registers} × {width}{', FMA' if vectors.fused else ''}"
