"""Collects a network's GPU code (source, machine code, launches) and embeds it in a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from nnefc.targets.codegen.cuda.compiler import DeviceImage
from nnefc.targets.codegen.cuda.device_functions import DeviceCode, Launch
from nnefc.targets.codegen.cuda.launches import IMAGE
from nnefc.targets.description.c_strings import c_string

__all__ = ["CudaCode"]


@dataclass(frozen=True)
class CudaCode:
    """A network's code for GPUs.

    Attributes:
        objects: what the host runs, as object files.
        kernels: the CUDA source, and how it is launched.
        image: the same as machine code, and what its kernels take.
        launches: the C file that launches it, see `launches.py`.
        calls: the functions of `kernels` that a run calls, in order; those of branches, and of a loop's body, once.
    """

    objects: tuple[bytes, ...] = field(repr=False)
    kernels: DeviceCode
    image: DeviceImage
    launches: str = field(repr=False)
    calls: tuple[str, ...] = ()

    device = "cuda"
    texts: ClassVar[Mapping[str, Sequence[str]]] = {"cuda": ("kernels.cu",)}

    @property
    def arrival_bytes(self) -> int:
        """Returns the bytes in which launches count the blocks that have arrived."""
        return self.kernels.arrival_bytes

    @property
    def launches_of_run(self) -> tuple[Launch, ...]:
        """Returns the launches of a run, in order."""
        by_name = {function.name: function for function in self.kernels.functions}
        return tuple(launch for name in self.calls for launch in by_name[name].launches)

    def write_sources(self, folder: Path) -> list[Path]:
        """Writes what the linker compiles besides the objects; returns the files among them that it is to be given."""
        image, launches = folder / "device.fatbin", folder / "launches.c"
        image.write_bytes(self.image.image)
        lines = _ASSEMBLY.format(symbol=IMAGE, file=c_string(str(image).encode())).splitlines()
        quoted = "\n".join(f'    "{c_string(line.encode())}\\n"' for line in lines)
        launches.write_text(f"{self.launches}\n__asm__(\n{quoted});\n")
        return [launches]

    def write_text(self, _kind: str, folder: Path) -> list[Path]:
        """Writes the CUDA source."""
        (folder / "kernels.cu").write_text(self.kernels.source)
        return [folder / "kernels.cu"]

    def summary(self) -> str:
        """Returns a short summary of the kernels' resources."""
        usage = self.image.usage
        spilled = sum(kernel.spill_stores + kernel.spill_loads > 0 for kernel in usage)
        registers = max((kernel.registers for kernel in usage), default=0)
        return (
            f"{len(self.launches_of_run)} launches; {self.image.compiler}: at most {registers} registers a thread, "
            f"{spilled or 'no'} kernels with registers in memory"
        )

    def resources(self) -> list[str]:
        """Returns the kernels' resources as a table: a line for each kernel and architecture."""
        lines = ["kernel architecture registers shared stack spilled"]
        for usage in self.image.usage:
            spilled = usage.spill_stores + usage.spill_loads
            numbers = usage.registers, usage.shared_bytes, usage.stack_bytes, spilled
            lines.append(" ".join([usage.kernel, f"sm_{usage.architecture}", *map(str, numbers)]))
        return lines


_ASSEMBLY = """\
.pushsection .rodata.{symbol},"a",%progbits
.p2align 6
.globl {symbol}
.hidden {symbol}
.type {symbol}, %object
{symbol}:
.incbin "{file}"
.Limage_end:
.size {symbol}, .Limage_end - {symbol}
.popsection
"""
