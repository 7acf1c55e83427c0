"""Describes operating systems: library names and file formats."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nnefc.support.diagnostics import CompileError

__all__ = [
    "MACOS",
    "SYSTEMS",
    "ApplePlatform",
    "FileFormat",
    "System",
    "format_of",
    "is_android",
    "is_hosted",
    "linker_target",
    "platform_of",
    "system_of",
    "zig_target",
]


class FileFormat(Enum):
    """The file format of libraries; `targets/link/linking.py` has the linker's options for each.

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
class ApplePlatform:
    """The platform that a Mach-O file names (LC_BUILD_VERSION).

    Attributes:
        number: of the platform.
        oldest: the oldest version of the system, major and minor.
    """

    number: int
    oldest: tuple[int, int]


MACOS = ApplePlatform(1, (11, 0))


@dataclass(frozen=True)
class System:
    """An operating system with its C library.

    Attributes:
        name: the end of users' triples, without the vendor.
        llvm: the end of LLVM's triples.
        zig: the end of zig's targets.
        format: of its libraries.
        threads: whether it has threads.
        hosted: whether it is an operating system; without one, a network is an archive to be linked into a program.
        platform: for Apple's systems.
    """

    name: str
    llvm: str
    zig: str
    format: FileFormat
    threads: bool = True
    hosted: bool = True
    platform: ApplePlatform | None = None


def _apple(name: str, llvm: str, zig: str, platform: ApplePlatform) -> System:
    version = ".".join(map(str, platform.oldest))
    system, _, environment = llvm.partition("-")
    triple = f"apple-{system}{version}.0{'-' * bool(environment)}{environment}"
    return System(name, triple, f"{zig}.{version}", FileFormat.MACH_O, platform=platform)


# Versions are the oldest that a library shall load on: glibc 2.17 is of 2012, 2.27 RISC-V's first.
SYSTEMS = (
    System("linux-gnu", "unknown-linux-gnu", "linux-gnu.2.17", FileFormat.ELF),
    System("linux-gnueabihf", "unknown-linux-gnueabihf", "linux-gnueabihf.2.17", FileFormat.ELF),
    System("linux-musl", "unknown-linux-musl", "linux-musl", FileFormat.ELF),
    System("linux-musleabihf", "unknown-linux-musleabihf", "linux-musleabihf", FileFormat.ELF),
    System("linux-android", "unknown-linux-android28", "linux-android", FileFormat.ELF),
    System("linux-androideabi", "unknown-linux-androideabi28", "linux-androideabi", FileFormat.ELF),
    _apple("macos", "macosx", "macos", MACOS),
    _apple("ios", "ios", "ios", ApplePlatform(2, (14, 0))),
    _apple("ios-simulator", "ios-simulator", "ios-simulator", ApplePlatform(7, (14, 0))),
    _apple("ios-macabi", "ios-macabi", "ios-macabi", ApplePlatform(6, (14, 0))),
    _apple("tvos", "tvos", "tvos", ApplePlatform(3, (14, 0))),
    _apple("tvos-simulator", "tvos-simulator", "tvos-simulator", ApplePlatform(8, (14, 0))),
    _apple("xros", "xros", "xros", ApplePlatform(11, (1, 0))),
    _apple("xros-simulator", "xros-simulator", "xros-simulator", ApplePlatform(12, (1, 0))),
    System("windows-gnu", "w64-windows-gnu", "windows-gnu", FileFormat.PE),
    System("wasi", "unknown-wasi", "wasi", FileFormat.WASM, threads=False),
    System("eabihf", "unknown-none-eabihf", "freestanding-eabihf", FileFormat.ELF, threads=False, hosted=False),
    System("eabi", "unknown-none-eabi", "freestanding-eabi", FileFormat.ELF, threads=False, hosted=False),
    System("elf", "unknown-none-elf", "freestanding-none", FileFormat.ELF, threads=False, hosted=False),
)

_FIRST_GLIBC = {"riscv64": "linux-gnu.2.27"}  # architectures that came later

_VENDORS = {"unknown", "pc", "w64", "apple", "none"}  # may stand between the instruction set and the system, or not


def system_of(triple: str) -> System:
    """Return the system of a triple.

    Raises:
        CompileError: it is unknown.
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
    """Return the file format of libraries for zig's target; ELF for targets that only zig knows."""
    system = _system_for(zig_target)
    return system.format if system is not None else FileFormat.ELF


def is_hosted(zig_target: str) -> bool:
    """Return whether zig's target has an operating system."""
    system = _system_for(zig_target)
    return system is None or system.hosted


def platform_of(zig_target: str) -> ApplePlatform | None:
    """Return the platform that files for zig's target name, if it is one of Apple's."""
    system = _system_for(zig_target)
    return system.platform if system is not None else None


def linker_target(zig_target: str) -> str:
    """Return the target for which zig compiles and links in place of `zig_target`.

    For Apple's systems zig has the headers and the library of macOS only. Those of the other systems have the same
    functions, types and calling convention; files differ by the platform that they name.
    """
    architecture, _, _ = zig_target.partition("-")
    return f"{architecture}-{_MACOS_ZIG}" if platform_of(zig_target) is not None else zig_target


def is_android(zig_target: str) -> bool:
    """Return whether a target has Android's C library."""
    return "-linux-android" in zig_target


_MACOS_ZIG = next(system.zig for system in SYSTEMS if system.platform is MACOS)


def _system_for(zig_target: str) -> System | None:
    """Return the system of zig's target, whose version is ignored."""
    _, _, tail = zig_target.partition("-")
    fitting = [system for system in SYSTEMS if tail.startswith(system.zig.partition(".")[0])]
    return max(fitting, key=lambda system: len(system.zig.partition(".")[0]), default=None)
