"""Writes a network as a static archive with a header, for programs without an operating system.

The archive has two members: the network, of whose symbols only its functions are visible, and an arena, which the
linker leaves out of programs that bring their own. The constants are in a section of their own, so that a linker script
locates them: `.rodata.NAME_constants`. Or they are an image in a file of its own, whose address is given to each run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nnefc.support.output_files import temporary_folder
from nnefc.targets.description.c_strings import c_string
from nnefc.targets.description.freestanding_source import (
    ARENA_ALIGNMENT,
    arena_source,
    freestanding_functions,
    freestanding_header,
    freestanding_source,
)
from nnefc.targets.description.library import LibraryDescription, check_description
from nnefc.targets.description.weights_image import HEADER_BYTES, WeightsImage, identity_of
from nnefc.targets.link.compilers import compiler_for
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.elf_symbols import hide_symbols
from nnefc.targets.link.encrypted_weights import write_encrypted_image
from nnefc.targets.link.toolchain import RUNTIME, archive
from nnefc.targets.link.weights_file import write_image
from nnefc.targets.link.zig import run_compiler

__all__ = ["write_freestanding_archive"]

_FLAGS = (
    *("-std=c11", "-O2", "-ffreestanding", "-ffunction-sections", "-fdata-sections", "-fno-sanitize=all", "-g0"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables"),
)
# Tables for exceptions, and for debuggers: they would take room, and call functions of a C++ library.
_SCRIPT = (
    "__aeabi_unwind_cpp_pr0 = 0; "
    "SECTIONS { /DISCARD/ : { *(.ARM.exidx*) *(.ARM.extab*) *(.eh_frame*) *(.debug*) *(.comment) } }\n"
)
_CONSTANTS = RUNTIME / "bare" / "constants.S"


def write_freestanding_archive(
    objects: Sequence[Path],
    constants: Constants | None,
    description: LibraryDescription,
    path: Path,
    *,
    zig_target: str,
    zig_cpu: str,
    cc: Sequence[str] = (),
    weights: Path | None = None,
    key: bytes | None = None,
    weights_version: int = 0,
) -> None:
    """Writes the archive at `path`, and the header next to it, into a folder that is whole or not at all.

    The arguments are those of :func:`nnefc.targets.link.outputs.write_network`, but for `weights`, the path of an image
    of the constants, encrypted if there is a key; None: they are in the archive.

    Raises:
        CompileError: a network that needs an operating system, or an error of the compiler.
    """
    check_description(description, constants.size if constants is not None else 0)
    compiler = [*compiler_for(zig_target, zig_cpu, cc), *_FLAGS, f"-I{RUNTIME}"]
    compiler += ["-DNNEFC_CHECKED"] * description.checked
    prefix, image = description.prefix, None
    if weights is not None and constants is not None:
        image = replace(_image(objects, constants, description), encrypted=key is not None)
        if key is None:
            write_image(constants, image, weights)
        else:
            write_encrypted_image(constants, image, key, weights_version, weights)
    with temporary_folder("nnefc-link-") as folder:
        whole, arena = folder / f"{prefix}.o", folder / f"{prefix}_arena.o"
        inputs = [*map(str, objects), *_sources(folder, description, image)]
        if constants is not None and image is None:
            inputs += _constants(folder, constants, prefix)
        script = folder / "discard.ld"
        script.write_text(_SCRIPT)
        run_compiler([*compiler, "-nostdlib", "-r", "-T", str(script), *inputs, "-o", str(whole)], folder)
        (folder / "arena.S").write_text(arena_source(description), encoding="utf-8")
        run_compiler([*compiler, "-c", str(folder / "arena.S"), "-o", str(arena)], folder, "the compiler failed")
        hide_symbols(whole, freestanding_functions(description, image))
        archive([whole, arena], path)
    path.with_name(f"{prefix}.h").write_text(freestanding_header(description, image), encoding="utf-8")


def _image(objects: Sequence[Path], constants: Constants, description: LibraryDescription) -> WeightsImage:
    """Returns what the code expects of its weights."""
    code = [path.read_bytes() for path in objects]
    identity = identity_of([*code, freestanding_source(description).encode(), str(constants.size).encode()])
    return WeightsImage(identity, HEADER_BYTES + constants.size, ARENA_ALIGNMENT)


def _sources(folder: Path, description: LibraryDescription, image: WeightsImage | None) -> list[str]:
    """Returns the C files of the functions and of the runtime."""
    model = folder / "model.c"
    model.write_text(freestanding_source(description, image), encoding="utf-8")
    return [str(model), *map(str, sorted((RUNTIME / "bare").glob("*.c")))]


def _constants(folder: Path, constants: Constants, prefix: str) -> list[str]:
    """Returns the constants as a source in assembly, with its definitions."""
    content = constants.save(folder / "constants.bin")
    return [
        f'-DNNEFC_CONSTANTS="{c_string(os.fsencode(content.resolve()))}"',
        f"-DNNEFC_NAME={prefix}_constants",
        str(_CONSTANTS),
    ]
