"""Links objects, runtime, constants and description into one shared library.

A compiled library has four parts:

- the network's objects, which define one hidden C function, the entry
  `int32_t nnefc_network(void* input…, void* output…, uint8_t* state, uint8_t* workspace, const uint8_t* constants)`;
- the runtime (`runtime/*.c`), the same for every network, compiled for the target's baseline processor, so that it can
  say what is wrong on a processor that is too old for the network; for a GPU `runtime/cuda/*.c` in place of what
  runs a network on processors;
- the constants, one read-only section: `elf_constants.py` adds it to ELF files, other linkers get it as a file;
- a C file written here: the library's description and the call of the entry with the right number of arguments.

The compiler and linker is zig (`ziglang` on PyPI), which has the C library's headers and stubs for every target, or,
where it is not installed, the system's for this machine. The same arguments give the same bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import naming, temporary_folder
from nnefc.targets.description.c_source import model_source, model_sources
from nnefc.targets.description.c_strings import c_string
from nnefc.targets.description.library import DEFAULT_PREFIX, LibraryDescription, TensorDescription, check_description
from nnefc.targets.description.library_functions import public_symbols
from nnefc.targets.link.android import stub_libraries
from nnefc.targets.link.coff_object import join_coff
from nnefc.targets.link.compilers import compiler_for, stand_in
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.elf_object import write_constants_object
from nnefc.targets.link.elf_symbols import hide_symbols
from nnefc.targets.link.linking import CONSTANTS, Linking, linking_for
from nnefc.targets.link.mach_o_platform import with_platform
from nnefc.targets.link.mach_o_symbols import hide_mach_o_symbols
from nnefc.targets.link.runtime_objects import SHARED, joined_sources, runtime_objects
from nnefc.targets.link.system_compiler import has_zig, system_archiver
from nnefc.targets.link.zig import run_compiler, zig
from nnefc.targets.machine.system import MACOS, FileFormat, format_of, is_android, platform_of

__all__ = [
    "LibraryDescription",
    "TensorDescription",
    "archive",
    "link_library",
    "link_object",
    "model_source",
    "public_symbols",
    "runtime_sources",
]

RUNTIME = Path(__file__).parents[1] / "runtime"

_OF_WEIGHTS = "weights.c"  # only in libraries whose trained values are in a file of their own

# In small libraries small/pool.c replaces them.
_OF_THREADS = {
    "launches.c",
    "work_chunks.c",
    "pool.c",
    "pool_workers.c",
    "processors.c",
    "preempted_workers.c",
    "waiting.c",
    "workers.c",
}
_OF_CALLS = {"tvm_hooks.c", "per_thread.c"}  # only where the network's code calls the runtime

_FEW_BYTES = 1 << 20
"""Constants of fewer bytes are linked like other data: a section of their own would waste up to a page."""

_COMPILE_FLAGS = ("-std=c11", "-Os", "-fvisibility=hidden", "-fno-sanitize=all", "-Wall", "-Wextra", "-Wpedantic")


def link_library(
    objects: Sequence[Path],
    constants: Constants | None,
    description: LibraryDescription,
    output: Path,
    *,
    zig_target: str,
    zig_cpu: str = "baseline",
    cc: Sequence[str] = (),
) -> None:
    """Links a network's objects into the shared library `output`.

    Args:
        objects: object files for the target; one of them defines `nnefc_network`. For a GPU, sources in C and assembly
            besides.
        constants: the trained values, which begin a page of the library; None if the network has none, or has them in
            a file of their own.
        description: see there; it is checked against the constants.
        output: the library; its file name becomes the SONAME. Not written whole or not at all, but meant for a folder
            that is.
        zig_target: zig's name of the target, such as `x86_64-linux-gnu.2.28`.
        zig_cpu: the oldest processor that the runtime itself shall run on.
        cc: the command of a compiler and linker for the target that takes GCC's options, in place of zig.

    Raises:
        CompileError: an inconsistent description, a file that cannot be read or written, an error of the linker.
    """
    check_description(description, _constant_bytes(constants, description))
    if constants is not None:
        description = replace(description, checksum=constants.checksum)
    if not output.parent.is_dir():
        raise CompileError(f"cannot write {output}: there is no folder {output.parent}")
    form, cc = format_of(zig_target), cc or stand_in(zig_target)
    compiler = compiler_for(zig_target, zig_cpu, cc)
    if form not in _RUNTIMES[description.device].formats:
        raise CompileError(
            f"libraries for {description.device} are made for systems with the format ELF, not {form.title}",
            hint="choose a host that runs Linux",
        )
    with temporary_folder("nnefc-link-") as folder:
        linking = linking_for(form, zig_cpu, description.small)
        inputs = _inputs(folder, objects, description, linking, () if cc else compiler, zig_target)
        few = form is FileFormat.ELF and constants is not None and constants.size < _FEW_BYTES
        # other linkers may lay it out otherwise
        append = None if cc or constants is None or constants.size < _FEW_BYTES else linking.append
        if constants is not None and form is FileFormat.ELF and not cc:
            inputs.append(_constants_object(folder, constants, objects, few, append is not None))
        elif constants is not None and append is not None and linking.room is not None:
            inputs += linking.room(constants.size)
        elif constants is not None:
            inputs += _constants_source(folder, constants, few)
        ways = [_with_everything(description, linking)]
        if not cc and is_android(zig_target):
            ways = _for_android(folder, compiler)
        elif not cc:
            ways = [*_alone(folder, description, linking, compiler), *ways]
        linker = compiler_for(zig_target, linking.cpu or zig_cpu, cc)
        _link(folder, inputs, description, output, linking, linker, ways, constants, append)
        platform = platform_of(zig_target)
        if platform is not None and not cc:
            output.write_bytes(with_platform(output.read_bytes(), platform))


def _link(
    folder: Path,
    inputs: Sequence[str],
    description: LibraryDescription,
    output: Path,
    linking: Linking,
    compiler: Sequence[str],
    ways: Sequence[Sequence[str]],
    constants: Constants | None,
    append: Callable[[Path, Constants], None] | None,
) -> None:
    """Link a shared library.

    Args:
        ways: options after the inputs; the first that leave no undefined symbols are used.
        append: adds the constants to the linked file, if they are not among the inputs.
    """
    names = sorted(
        {name for prefix in (DEFAULT_PREFIX, description.prefix) for name in public_symbols(description, prefix)}
    )
    with naming(output):
        flags = [*_compile_flags(description), *linking.compile_flags, *linking.link_flags]
        flags += linking.name_flags(output.name, names, folder)
        command = [*compiler, f"-I{RUNTIME}", "-o", str(output), *flags, *inputs]
        *first, last = ways
        for way in first:
            with contextlib.suppress(CompileError):
                run_compiler([*command, *way], folder)
                break
        else:
            run_compiler([*command, *last], folder)
        if linking.linked is not None:
            linking.linked(output)
        if append is not None and constants is not None:
            append(output, constants)
        linking.finish(output, constants, append is not None)


def _with_everything(description: LibraryDescription, linking: Linking) -> list[str]:
    """Return the options for linking with all libraries that the compiler has for the target."""
    return [*linking.libraries, *_RUNTIMES[description.device].libraries]


def _alone(
    folder: Path, description: LibraryDescription, linking: Linking, compiler: Sequence[str]
) -> Iterator[list[str]]:
    """Return the options for linking without the compiler's libraries, for formats that allow it."""
    alone = linking.alone
    if alone is not None:
        objects = _runtime_objects([RUNTIME / name for name in alone.sources], description, linking, compiler, folder)
        libraries = [*alone.libraries, *_RUNTIMES[description.device].libraries]
        yield ["-nostdlib", *alone.flags, *map(str, objects), *libraries]


def _for_android(folder: Path, compiler: Sequence[str]) -> list[list[str]]:
    """Return the options for linking with stub libraries of Android, without and with the compiler's arithmetic
    functions.
    """
    alone = ["-nostdlib", *stub_libraries(compiler, folder)]
    return [alone, [*alone, "-lcompiler_rt"]]


def link_object(
    objects: Sequence[Path],
    constants: Constants | None,
    description: LibraryDescription,
    output: Path,
    *,
    zig_target: str,
    zig_cpu: str = "baseline",
    cc: Sequence[str] = (),
) -> None:
    """Link a network and its runtime to one relocatable object, to be linked into programs.

    Only the functions of `nnefc.h`, with the description's prefix, are visible to other objects, so that a program can
    have several networks. The arguments are those of :func:`link_library`.

    Raises:
        CompileError: as :func:`link_library`; the target has no linkable objects.
    """
    format_ = format_of(zig_target)
    if format_ not in _JOINED:
        raise CompileError(
            f"object files and archives are not made in the format {format_.title}",
            hint=f"write a module: a name that ends with {format_.suffix}",
        )
    check_description(description, _constant_bytes(constants, description))
    if constants is not None:
        description = replace(description, checksum=constants.checksum)
    cc = cc or stand_in(zig_target)
    compiler = compiler_for(zig_target, zig_cpu, cc)
    with temporary_folder("nnefc-link-") as folder:
        linking = linking_for(format_, small=description.small)
        inputs = _inputs(folder, objects, description, linking, () if cc else compiler, zig_target)
        if constants is not None:
            few = format_ is FileFormat.ELF and constants.size < _FEW_BYTES
            if format_ is FileFormat.ELF and not cc:
                inputs.append(_constants_object(folder, constants, objects, few, appended=False))
            else:
                inputs += _constants_source(folder, constants, few)
        command = [*compiler, f"-I{RUNTIME}", *_compile_flags(description), *linking.compile_flags, "-g0"]
        _JOINED[format_](command, inputs, output, folder, public_symbols(description, description.prefix))
        platform = platform_of(zig_target)
        if platform is not None and not cc:
            output.write_bytes(with_platform(output.read_bytes(), platform))


def _joined_elf(
    command: Sequence[str], inputs: Sequence[str], output: Path, folder: Path, public: Sequence[str]
) -> None:
    run_compiler([*command, "-r", "-Wl,--strip-debug", *inputs, "-o", str(output)], folder)
    hide_symbols(output, public)


def _joined_mach_o(
    command: Sequence[str], inputs: Sequence[str], output: Path, folder: Path, public: Sequence[str]
) -> None:
    run_compiler([*command, "-r", *inputs, "-o", str(output)], folder)
    output.write_bytes(hide_mach_o_symbols(output.read_bytes(), public))


def _joined_coff(
    command: Sequence[str], inputs: Sequence[str], output: Path, folder: Path, public: Sequence[str]
) -> None:
    flags = [word for word in inputs if word.startswith("-")]
    files = [Path(word) for word in inputs if not word.startswith("-")]
    contents = []
    for number, file in enumerate(files):
        made = file
        if file.suffix != ".o":
            made = folder / f"part{number}.o"
            run_compiler([*command, *flags, "-c", str(file), "-o", str(made)], folder, "the compiler failed")
        contents.append((file.name, made.read_bytes()))
    output.write_bytes(join_coff(contents, public))


_JOINED: Mapping[FileFormat, Callable[[Sequence[str], Sequence[str], Path, Path, Sequence[str]], None]] = {
    FileFormat.ELF: _joined_elf,
    FileFormat.MACH_O: _joined_mach_o,
    FileFormat.PE: _joined_coff,
}
"""By the format what makes one object of sources and objects, of which programs see the public functions alone."""


def archive(members: Sequence[Path], output: Path) -> None:
    """Write a static library with `members` in their order; the same members give the same bytes."""
    with temporary_folder("nnefc-archive-") as folder:
        archiver = (*zig(), "ar") if has_zig() else system_archiver()
        run_compiler([*archiver, "rcsD", str(output), *map(str, members)], folder, output=output)


def _inputs(
    folder: Path,
    objects: Sequence[Path],
    description: LibraryDescription,
    linking: Linking,
    own: Sequence[str],
    zig_target: str,
) -> list[str]:
    """Return the sources and objects of a library, without its constants.

    The runtime is compiled to objects if `own`, zig's command, is given, and is passed as sources to another compiler.
    On Apple's systems objects have the platform of the linker's target, whereas zig writes macOS.
    """
    platform = platform_of(zig_target)
    models = []
    for name, text in model_sources(description).items():
        models.append(folder / name)
        models[-1].write_text(text, encoding="utf-8")
    sources = runtime_sources(description)
    if own:
        runtime = _runtime_objects(sources, description, linking, own, folder)
    else:
        runtime = joined_sources(sources, RUNTIME, folder)
    inputs = [*map(str, runtime), *map(str, models)]
    for number, path in enumerate(objects):
        if path.suffix != ".o":  # a source of the network's own
            inputs.append(str(path))
            continue
        prepared, content = folder / f"network{number}.o", linking.prepare(path.read_bytes())
        if platform is not None:
            content = with_platform(content, MACOS if own else platform)
        prepared.write_bytes(content)
        inputs.append(str(prepared))
    return inputs


def _runtime_objects(
    sources: Sequence[Path], description: LibraryDescription, linking: Linking, compiler: Sequence[str], folder: Path
) -> list[Path]:
    command = [*compiler, *_compile_flags(description), *linking.compile_flags, "-g0"]
    return runtime_objects(sources, RUNTIME, command, folder, linking.joined) if sources else []


def _constants_source(folder: Path, constants: Constants, few: bool) -> list[str]:
    """Return the constants as an assembly source, page-aligned unless they are `few`."""
    content = constants.save(folder / "constants.bin")
    name = c_string(os.fsencode(content.resolve()))
    return [f'-DNNEFC_CONSTANTS="{name}"', *["-DNNEFC_FEW_CONSTANTS"] * few, str(CONSTANTS)]


def _constants_object(folder: Path, constants: Constants, objects: Sequence[Path], few: bool, appended: bool) -> str:
    """Return the constants as an object, or reserve space for them if they are appended to the linked library."""
    like = next(path for path in objects if path.suffix == ".o")
    return str(write_constants_object(folder / "constants.o", constants, like, few=few, appended=appended))


def _compile_flags(description: LibraryDescription) -> list[str]:
    sizes = ["-DNNEFC_OPEN"] * description.is_dynamic
    if not description.metadata:
        sizes += ["-DNNEFC_NO_METADATA", *["-DNNEFC_KNOWN_SIZES"] * (not description.is_dynamic)]
    states = ["-DNNEFC_STATES"] * bool(description.states) + ["-DNNEFC_SEQUENCES"] * bool(description.sequence_axes)
    profile = ["-DNNEFC_PROFILE"] * bool(description.kernels)
    levels = ["-DNNEFC_LEVELS"] * bool(description.levels)
    levels += ["-DNNEFC_CHECKED"] * description.checked
    levels += ["-DNNEFC_REPRODUCIBLE", "-ffp-contract=off"] * description.reproducible
    levels += ["-DNNEFC_RELAXED_DOT"] * bool({"relaxed-udot", "relaxed-sdot"} & set(description.cpu_features))
    levels += ["-DNNEFC_CANCELLABLE"] * description.cancellable
    levels += ["-DNNEFC_SELECTS"] * description.selects
    levels += ["-DNNEFC_LOG"] * description.logs + ["-DNNEFC_CHAT"] * description.has_chat
    levels += ["-DNNEFC_WARMS_UP"] * description.warms_up
    small = ["-DNNEFC_SMALL", *["-DNNEFC_CALLED"] * description.is_called] if description.small else []
    return [*_COMPILE_FLAGS, *sizes, *["-DNNEFC_TEXT"] * description.has_text, *states, *profile, *levels, *small]


def runtime_sources(description: LibraryDescription) -> list[Path]:
    """Return the C files of the runtime that a library needs."""
    device = _RUNTIMES[description.device]
    left_out = {*device.left_out, *(() if description.weights else (_OF_WEIGHTS,))}
    if description.small:
        left_out |= _OF_THREADS if description.is_called else _OF_THREADS | _OF_CALLS
    found = [path for folder in SHARED for path in (RUNTIME / folder).glob("*.c") if path.name not in left_out]
    sources = sorted(found, key=lambda path: path.name)
    folders = [device.folder] * bool(device.folder) + ["open"] * description.is_dynamic
    folders += ["tokenizer"] * description.has_vocabulary + ["chat"] * description.has_chat
    folders += ["text", "images"] * description.has_text + ["states"] * bool(description.states)
    folders += ["profile"] * bool(description.kernels) + ["levels"] * bool(description.levels)
    folders += ["checked"] * description.checked
    folders += ["run_control", "shared_threads"] * description.cancellable + ["selection"] * description.selects
    folders += ["log"] * description.logs
    folders += ["small"] * description.small
    own = [path for folder in folders for path in sorted((RUNTIME / folder).glob("*.c"))]
    return [*sources, *(path for path in own if description.is_dynamic or path.name not in device.has_dynamic_sizes)]


@dataclass(frozen=True)
class _DeviceRuntime:
    """The parts of the runtime for a kind of device.

    Attributes:
        folder: in `runtime/`, with the device's files; empty for none.
        left_out: files in `runtime/` that its libraries do not have.
        has_dynamic_sizes: files in its folder that only networks with dynamic dimensions need.
        libraries: that are linked.
        formats: the file formats of its libraries.
    """

    folder: str = ""
    left_out: tuple[str, ...] = ()
    has_dynamic_sizes: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    formats: tuple[FileFormat, ...] = tuple(FileFormat)


_RUNTIMES = {
    "cpu": _DeviceRuntime(),
    # NVIDIA's driver is opened at run time
    "cuda": _DeviceRuntime(
        "cuda", ("engine.c",), ("data_dependent_sizes.c", "sized_memory.c"), ("-ldl",), (FileFormat.ELF,)
    ),
}


def _constant_bytes(constants: Constants | None, description: LibraryDescription) -> int:
    """Return the size of the constants in the library's description."""
    if description.weights:
        return description.constant_bytes
    return constants.size if constants is not None else 0
