"""Operating systems: what a library is called there, which file format it has, and what the linker is told."""

from __future__ import annotations

from dataclasses import dataclass

from nnefc.diagnostics import CompileError

__all__ = ["ELF", "SYSTEMS", "FileFormat", "System", "format_of", "system_of"]


@dataclass(frozen=True)
class FileFormat:
    """How programs and libraries are stored.

    Attributes:
        name: what it is called.
        suffix: of a library's name.
        compile_flags, link_flags: for a shared library.
        libraries: that the runtime needs.
    """

    name: str
    suffix: str
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    libraries: tuple[str, ...] = ()


ELF = FileFormat(
    "ELF",
    ".so",
    ("-fPIC", "-ffunction-sections", "-fdata-sections"),
    (
        "-shared",
        "-s",
        "-Wl,--gc-sections",
        "-Wl,--build-id=none",
        "-Wl,--no-undefined",
        "-Wl,-Bsymbolic",
    ),
    ("-lm", "-lpthread"),
)
MACH_O = FileFormat("Mach-O", ".dylib", ("-fPIC",), ("-shared", "-s", "-Wl,-dead_strip"))
PE = FileFormat("PE", ".dll", (), ("-shared", "-s", "-Wl,--gc-sections"))
WASM = FileFormat(
    "WebAssembly",
    ".wasm",
    ("-ffunction-sections", "-fdata-sections"),
    ("-mexec-model=reactor", "-s", "-Wl,--gc-sections"),
    ("-lm",),
)


@dataclass(frozen=True)
class System:
    """An operating system with its C library.

    Attributes:
        name: how users' triples end, without what says who made the machine.
        llvm: how LLVM's triples end.
        zig: how zig's targets end.
        format: of its libraries.
        threads: whether it has any.
    """

    name: str
    llvm: str
    zig: str
    format: FileFormat
    threads: bool = True


# Versions are the oldest that a library shall load on: glibc 2.17 is of 2012, 2.27 RISC-V's first.
SYSTEMS = (
    System("linux-gnu", "unknown-linux-gnu", "linux-gnu.2.17", ELF),
    System("linux-gnueabihf", "unknown-linux-gnueabihf", "linux-gnueabihf.2.17", ELF),
    System("linux-musl", "unknown-linux-musl", "linux-musl", ELF),
    System("linux-musleabihf", "unknown-linux-musleabihf", "linux-musleabihf", ELF),
    System("linux-android", "unknown-linux-android28", "linux-android", ELF),
    System("macos", "apple-macosx11.0.0", "macos.11.0", MACH_O),
    System("windows-gnu", "w64-windows-gnu", "windows-gnu", PE),
    System("wasi", "unknown-wasi", "wasi", WASM, threads=False),
)

_FIRST_GLIBC = {"riscv64": "linux-gnu.2.27"}  # architectures that came later

_VENDORS = {"unknown", "pc", "w64", "apple", "none"}  # may stand between the instruction set and the system, or not


def system_of(triple: str) -> System:
    """The system that `triple` ends with.

    Raises:
        CompileError: none that is known.
    """
    _, *rest = triple.split("-")
    if rest and rest[0] in _VENDORS:
        rest = rest[1:]
    for system in SYSTEMS:
        if "-".join(rest) == system.name:
            return system
    known = ", ".join(system.name for system in SYSTEMS)
    raise CompileError(f"unknown system in the triple {triple!r}", hint=f"nnefc knows {known}")


def zig_target(architecture: str, system: System) -> str:
    """What zig calls a machine."""
    if system.name == "linux-gnu":
        return f"{architecture}-{_FIRST_GLIBC.get(architecture, system.zig)}"
    return f"{architecture}-{system.zig}"


def format_of(zig_target: str) -> FileFormat:
    """The file format of libraries for a machine that zig calls `zig_target`; ELF for those that zig alone knows."""
    _, _, tail = zig_target.partition("-")
    return next((system.format for system in SYSTEMS if tail.startswith(system.zig.partition(".")[0])), ELF)
