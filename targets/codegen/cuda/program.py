"""All of a network that is for its GPU: source, machine code and launches, and how they go into a library."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nnefc.targets.codegen.cuda.compiler import DeviceImage
from nnefc.targets.codegen.cuda.kernels import DeviceCode
from nnefc.targets.codegen.cuda.launches import IMAGE
from nnefc.targets.description.library import c_string

__all__ = ["DeviceProgram"]


@dataclass(frozen=True)
class DeviceProgram:
    """A network's code for GPUs.

    Attributes:
        code: the CUDA source, and how it is launched.
        image: the same as machine code, and what its kernels take.
        launches: the C file that launches it, see `launches.py`.
    """

    code: DeviceCode
    image: DeviceImage
    launches: str = field(repr=False)

    def write(self, folder: Path) -> list[Path]:
        """Write what the linker compiles; returns the files among them that it is to be given."""
        image, assembly, launches = (folder / name for name in ("device.fatbin", "device.S", "launches.c"))
        image.write_bytes(self.image.image)
        assembly.write_text(_ASSEMBLY.format(symbol=IMAGE, file=c_string(str(image).encode())))
        launches.write_text(self.launches)
        return [assembly, launches]

    def resources(self) -> list[str]:
        """What the kernels take, as a table: a line for each kernel and architecture."""
        lines = ["kernel architecture registers shared stack spilled"]
        for usage in self.image.usage:
            spilled = usage.spill_stores + usage.spill_loads
            numbers = usage.registers, usage.shared_bytes, usage.stack_bytes, spilled
            lines.append(" ".join([usage.kernel, f"sm_{usage.architecture}", *map(str, numbers)]))
        return lines


_ASSEMBLY = """\
    .section .rodata.{symbol},"a",%progbits
    .p2align 6
    .globl {symbol}
    .hidden {symbol}
    .type {symbol}, %object
{symbol}:
    .incbin "{file}"
.Lend:
    .size {symbol}, .Lend - {symbol}
    .section .note.GNU-stack,"",%progbits
"""
