"""Lists the options of compiler and linker for each file format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnefc.targets.link import elf_constants, wasm_constants
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.library_checksum import add_seal
from nnefc.targets.link.private_symbols import for_windows, hide_mach_o, keep
from nnefc.targets.link.strip_elf import without_section_table, without_unwind_tables
from nnefc.targets.link.wasm_memory import note_memory
from nnefc.targets.machine.system import FileFormat

__all__ = ["CONSTANTS", "LINKING", "Alone", "Linking", "linking_for"]

CONSTANTS = Path(__file__).parents[1] / "runtime" / "constants.S"
"""What constants are linked as, or what leaves room for them."""


def _left_as_it_is(_library: Path, _constants: Constants | None, _are_last: bool) -> None:
    """Nothing is left to do."""


@dataclass(frozen=True)
class Alone:
    """Links libraries with the system's own libraries only, without any that zig would compile first.

    That is its part of the C library, for Windows, or all of it, for WebAssembly, and what compilers call for
    arithmetic that the processor does not have. Most networks need neither.

    Attributes:
        libraries: of the system.
        flags: for the linker, besides.
        sources: more files of the runtime.
    """

    libraries: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Linking:
    """The linker options for libraries of a format.

    Attributes:
        compile_flags: for the runtime.
        link_flags: for the library.
        libraries: that the runtime needs.
        prepare: what is done to the network's objects before they are linked.
        name_flags: what tells the linker the library's own name and the only names that it shall show, from the two
            and a folder for files.
        alone: how zig links them first; if a function is missing then, it links them as the others say. None if only
            that is possible.
        room: for constants of so many bytes that are added after linking: what is linked instead. None for ELF, where
            it is an object (`elf_object.py`).
        append: what adds them. None if constants are linked as all other data.
        linked: what is done to the file of the library before constants are added; None if nothing is.
        finish: what is done then to the file of the library, in which these constants are, at its end or somewhere.
        joined: whether the runtime's objects become one, which is sooner read and linked, and takes some bytes more.
        cpu: zig's name of the processor that they are linked for, whatever their code is for: zig compiles a C library,
            which takes half a minute, for each; "" if that is the code's own.
        small: the same for libraries that are compiled for size; None if nothing is different.
    """

    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    libraries: tuple[str, ...]
    name_flags: Callable[[str, Sequence[str], Path], list[str]]
    prepare: Callable[[bytes], bytes] = keep
    alone: Alone | None = None
    room: Callable[[int], list[str]] | None = None
    append: Callable[[Path, Constants], None] | None = None
    linked: Callable[[Path], None] | None = None
    finish: Callable[[Path, Constants | None, bool], object] = _left_as_it_is
    joined: bool = False
    cpu: str = ""
    small: Linking | None = None


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


def _shared_names(library: str, names: Sequence[str], folder: Path) -> list[str]:
    return _wasm_names(library, (*names, "nnefc_lend", "nnefc_lent", "nnefc_run_lent", "nnefc_may_wait"), folder)


def _sealed_as_a_whole(library: Path, _constants: Constants | None, _are_last: bool) -> None:
    """A small library does not compare its constants itself: one checksum is of all."""
    add_seal(library, None)


def _cut_and_sealed(library: Path, _constants: Constants | None, _are_last: bool) -> None:
    without_section_table(library)
    add_seal(library, None)


_HOST_ELF = Linking(
    append=elf_constants.append_constants,
    compile_flags=("-D_GNU_SOURCE", "-fPIC", "-ffunction-sections", "-fdata-sections"),
    link_flags=(
        "-shared",
        "-s",
        "-Wl,--gc-sections",
        "-Wl,--build-id=none",
        "-Wl,--hash-style=gnu",
        "-Wl,--no-undefined",
        "-Wl,-Bsymbolic",
    ),
    libraries=("-lm", "-lpthread"),
    name_flags=_elf_names,
    alone=Alone(libraries=("-lc", "-lm", "-lpthread")),
    finish=add_seal,
    joined=True,
)
_ELF = replace(
    _HOST_ELF,
    small=replace(
        _HOST_ELF,
        compile_flags=(
            *_HOST_ELF.compile_flags,
            "-fno-unwind-tables",
            "-fno-asynchronous-unwind-tables",
            "-fno-stack-protector",
        ),
        prepare=without_unwind_tables,
        finish=_cut_and_sealed,
        joined=False,
    ),
)
_MACH_O = Linking(
    compile_flags=("-fPIC",),
    link_flags=("-shared", "-s", "-Wl,-dead_strip"),
    libraries=(),
    name_flags=_mach_o_names,
    prepare=hide_mach_o,
    alone=Alone(libraries=("-lc",)),
)
_HOST_PE = Linking(
    compile_flags=("-ffunction-sections", "-fdata-sections"),
    link_flags=("-shared", "-s", "-Wl,--gc-sections"),
    libraries=(),
    name_flags=_pe_names,
    prepare=for_windows,
    alone=Alone(
        libraries=(
            "-lkernel32",
            *(
                f"-lapi-ms-win-crt-{part}-l1-1-0"
                for part in (
                    "convert",
                    "environment",
                    "heap",
                    "locale",
                    "math",
                    "private",
                    "runtime",
                    "stdio",
                    "string",
                    "utility",
                )
            ),
        ),
        flags=("-Wl,--entry,nnefc_library_main",),
        sources=("windows/libc_subset.c",),
    ),
    finish=add_seal,
)
_PE = replace(_HOST_PE, small=replace(_HOST_PE, finish=_sealed_as_a_whole))
_WASM = Linking(
    compile_flags=("-D_GNU_SOURCE", "-ffunction-sections", "-fdata-sections"),
    link_flags=("-mexec-model=reactor", "-s", "-Wl,--gc-sections", f"-Wl,-z,stack-size={wasm_constants.STACK_BYTES}"),
    libraries=("-lm",),
    name_flags=_wasm_names,
    room=wasm_constants.room_for,
    append=wasm_constants.append_constants,
    alone=Alone(sources=("wasm/libc_subset.c", "wasm/memory.c")),
    cpu="baseline",
)
_MAX_MEMORY = (1 << 32) - (1 << 16)  # zig reads a number of 32 bits
_SHARED_WASM = replace(
    _WASM,
    link_flags=(*_WASM.link_flags, "-Wl,--shared-memory", "-Wl,--import-memory", f"-Wl,--max-memory={_MAX_MEMORY}"),
    name_flags=_shared_names,
    linked=note_memory,
    cpu="baseline+atomics+bulk_memory",
)

LINKING: Mapping[FileFormat, Linking] = {
    FileFormat.ELF: _ELF,
    FileFormat.MACH_O: _MACH_O,
    FileFormat.PE: _PE,
    FileFormat.WASM: _WASM,
}


def linking_for(form: FileFormat, zig_cpu: str = "baseline", small: bool = False) -> Linking:
    """Returns the linker options of a format, for a processor by zig's name of it: WebAssembly modules for several
    threads have their own. `small`: the library is compiled for size."""
    if form is FileFormat.WASM and "+atomics" in zig_cpu:
        return _SHARED_WASM
    return (LINKING[form].small if small else None) or LINKING[form]
