"""Describes operating systems: library names and file formats."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nnefc.support.diagnostics import CompileError

__all__ = ["SYSTEMS", "FileFormat", "System", "format_of", "is_hosted", "system_of", "zig_target"]


class FileFormat(Enum):
    """The file format of libraries; the linker's options for each are in `targets/link/linking.py`.

    Attributes:
        suffix: of a library's name.
    """

    ELF = "ELF", ".so"
    MACH_O = "Mach-O", ".dylib"
    PE = "PE", ".dll"
    WASM = "WebAssembly", ".wasm"

    def __init__(self, title: str, suffix: str) -> None:
        self.title = title
        self.suffix = suffix


@dataclass(frozen=True)
class System:
    """An operating system with its C library.

    Attributes:
        name: how users' triples end, without what says who made the machine.
        llvm: how LLVM's triples end.
        zig: how zig's targets end.
        format: of its libraries.
        threads: whether it has any.
        hosted: whether it is an operating system; without one a network is an archive to be linked into a program.
    """

    name: str
    llvm: str
    zig: str
    format: FileFormat
    threads: bool = True
    hosted: bool = True


# Versions are the oldest that a library shall load on: glibc 2.17 is of 2012, 2.27 RISC-V's first.
SYSTEMS = (
    System("linux-gnu", "unknown-linux-gnu", "linux-gnu.2.17", FileFormat.ELF),
    System("linux-gnueabihf", "unknown-linux-gnueabihf", "linux-gnueabihf.2.17", FileFormat.ELF),
    System("linux-musl", "unknown-linux-musl", "linux-musl", FileFormat.ELF),
    System("linux-musleabihf", "unknown-linux-musleabihf", "linux-musleabihf", FileFormat.ELF),
    System("linux-android", "unknown-linux-android28", "linux-android", FileFormat.ELF),
    System("macos", "apple-macosx11.0.0", "macos.11.0", FileFormat.MACH_O),
    System("windows-gnu", "w64-windows-gnu", "windows-gnu", FileFormat.PE),
    System("wasi", "unknown-wasi", "wasi", FileFormat.WASM, threads=False),
    System("eabihf", "unknown-none-eabihf", "freestanding-eabihf", FileFormat.ELF, threads=False, hosted=False),
    System("eabi", "unknown-none-eabi", "freestanding-eabi", FileFormat.ELF, threads=False, hosted=False),
    System("elf", "unknown-none-elf", "freestanding-none", FileFormat.ELF, threads=False, hosted=False),
)

_FIRST_GLIBC = {"riscv64": "linux-gnu.2.27"}  # architectures that came later

_VENDORS = {"unknown", "pc", "w64", "apple", "none"}  # may stand between the instruction set and the system, or not


def system_of(triple: str) -> System:
    """Returns the system that `triple` ends with.

    Raises:
        CompileError: none that is known.
    """
    _, *tail = triple.split("-")
    if tail and tail[0] in _VENDORS:
        tail = tail[1:]
    for system in SYSTEMS:
        if "-".join(tail) == system.name:
            return system
    known = ", ".join(system.name for system in SYSTEMS)
    raise CompileError(f"unknown system in the triple {triple!r}", hint=f"nnefc knows {known}")


def zig_target(architecture: str, system: System) -> str:
    """Returns zig's name of a machine."""
    if system.name == "linux-gnu":
        return f"{architecture}-{_FIRST_GLIBC.get(architecture, system.zig)}"
    return f"{architecture}-{system.zig}"


def format_of(zig_target: str) -> FileFormat:
    """Returns the file format of libraries for a machine that zig calls `zig_target`; ELF for those that zig alone
    knows.
    """
    system = _system_for(zig_target)
    return system.format if system is not None else FileFormat.ELF


def is_hosted(zig_target: str) -> bool:
    """Whether a machine that zig calls `zig_target` has an operating system."""
    system = _system_for(zig_target)
    return system is None or system.hosted


def _system_for(zig_target: str) -> System | None:
    _, _, tail = zig_target.partition("-")
    return next((system for system in SYSTEMS if tail.startswith(system.zig.partition(".")[0])), None)
