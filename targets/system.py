"""Operating systems: what a library is called there, which file format it has, and what the linker is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnefc.diagnostics import CompileError
from nnefc.targets.private_symbols import for_windows, hide_mach_o, keep

__all__ = ["ELF", "MACH_O", "SYSTEMS", "WASM", "FileFormat", "System", "format_of", "system_of", "zig_target"]


@dataclass(frozen=True)
class FileFormat:
    """How libraries are stored.

    Attributes:
        name: what it is called.
        suffix: of a library's name.
        compile_flags: for the runtime.
        link_flags: for the library.
        libraries: that the runtime needs.
        prepare: what is done to the network's objects before they are linked.
        name_flags: what tells the linker the library's own name and the only names that it shall show, from the two
            and a folder for files.
    """

    name: str
    suffix: str
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    libraries: tuple[str, ...]
    name_flags: Callable[[str, Sequence[str], Path], list[str]]
    prepare: Callable[[bytes], bytes] = keep


def _for_linker(*flags: str) -> list[str]:
    return [part for flag in flags for part in ("-Xlinker", flag)]  # -Wl, would cut names at commas


def _elf_names(library: str, names: Sequence[str], folder: Path) -> list[str]:
    script = folder / "exports.map"
    script.write_text("{ global: " + " ".join(f"{name};" for name in names) + " local: *; };\n")
    return _for_linker("-soname", library, "--version-script", str(script))


def _mach_o_names(library: str, names: Sequence[str], folder: Path) -> list[str]:
    return _for_linker("-install_name", f"@rpath/{library}")  # visibility does the rest


def _pe_names(library: str, names: Sequence[str], folder: Path) -> list[str]:
    definition = folder / "exports.def"
    definition.write_text("EXPORTS\n" + "".join(f"    {name}\n" for name in names))
    return [str(definition)]


def _wasm_names(library: str, names: Sequence[str], folder: Path) -> list[str]:
    return [f"-Wl,--export={name}" for name in (*names, "malloc", "free")]  # callers bring their tensors inside


ELF = FileFormat(
    "ELF",
    ".so",
    compile_flags=("-fPIC", "-ffunction-sections", "-fdata-sections"),
    link_flags=(
        "-shared",
        "-s",
        "-Wl,--gc-sections",
        "-Wl,--build-id=none",
        "-Wl,--no-undefined",
        "-Wl,-Bsymbolic",
    ),
    libraries=("-lm", "-lpthread"),
    name_flags=_elf_names,
)
MACH_O = FileFormat(
    "Mach-O",
    ".dylib",
    compile_flags=("-fPIC",),
    link_flags=("-shared", "-s", "-Wl,-dead_strip"),
    libraries=(),
    name_flags=_mach_o_names,
    prepare=hide_mach_o,
)
PE = FileFormat(
    "PE",
    ".dll",
    compile_flags=("-ffunction-sections", "-fdata-sections"),
    link_flags=("-shared", "-s", "-Wl,--gc-sections"),
    libraries=("-lpthread",),
    name_flags=_pe_names,
    prepare=for_windows,
)
WASM = FileFormat(
    "WebAssembly",
    ".wasm",
    compile_flags=("-ffunction-sections", "-fdata-sections"),
    # a stack as large as that of threads elsewhere
    link_flags=("-mexec-model=reactor", "-s", "-Wl,--gc-sections", "-Wl,-z,stack-size=1048576"),
    libraries=("-lm",),
    name_flags=_wasm_names,
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
