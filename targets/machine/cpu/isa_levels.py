"""Lists the ISA levels that one library may have code for, from the oldest on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LEVELS", "IsaLevel"]


@dataclass(frozen=True)
class IsaLevel:
    """A kind of processor.

    Attributes:
        name: in messages, and of the target that a session says it runs.
        cpu: LLVM's name of a processor that is one; "" for the oldest.
        attributes: LLVM features besides those of that.
        about: what it adds, where the name does not say so.
    """

    name: str
    cpu: str
    attributes: tuple[str, ...] = ()
    about: str = ""


_VNNI = ("+avx512vnni",)
_BF16 = (*_VNNI, "+avx512bf16")
_AMX = (*_BF16, "+avx512fp16", "+amx-tile", "+amx-bf16", "+amx-int8")

LEVELS = {
    "x86_64": (
        IsaLevel("x86-64-v2", "x86-64-v2"),
        IsaLevel("x86-64-v3", "x86-64-v3"),
        IsaLevel(
            "x86-64-v3-vnni", "x86-64-v3", ("+avxvnni",), "AVX-VNNI: Intel's processors without AVX-512 from 2021 on"
        ),
        IsaLevel("x86-64-v4", "x86-64-v4"),
        IsaLevel("x86-64-v4-vnni", "x86-64-v4", _VNNI),
        IsaLevel("x86-64-v4-bf16", "x86-64-v4", _BF16),
        IsaLevel("x86-64-v4-amx", "x86-64-v4", _AMX),
    ),
    "aarch64": (
        IsaLevel("armv8-a", ""),
        IsaLevel("armv8.2-a", "cortex-a76", about="dot products, half precision"),
        IsaLevel("armv8.6-a", "cortex-a76", ("+fp16fml", "+bf16", "+i8mm"), "bfloat16, matrices of bytes"),
    ),
}
"""By the instruction set. A library has no code for a level whose code would be that of the one before."""
