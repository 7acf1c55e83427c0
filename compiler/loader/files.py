"""Checks library files before they are loaded, for their format, machine and completeness, and reads their metadata."""

from __future__ import annotations

import json
import mmap
import os
import platform
import struct
import sys
import sysconfig
import zlib
from pathlib import Path
from typing import Any

from .exports import missing_export
from .tensors import LoadError

__all__ = ["check_file", "labels_of", "next_to", "weights_next_to"]

# sys.platform → the system whose libraries load. platform.system() may hang on Windows, where it asks a service.
_SYSTEMS = {"android": "Linux", "darwin": "macOS", "linux": "Linux", "win32": "Windows"}

_MACHINES = {  # e_machine of ELF → bits → the name in Python's platform.machine()
    3: {32: "i686"},
    40: {32: "armv7l"},
    62: {64: "x86_64"},
    183: {64: "aarch64"},
    243: {32: "riscv32", 64: "riscv64"},
    258: {64: "loongarch64"},
}

_MACH_O_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_PE_MACHINES = {0x014C: "i686", 0x8664: "x86_64", 0xAA64: "aarch64"}
_SUFFIXES = {"Linux": ".so", "macOS": ".dylib", "Windows": ".dll"}


def check_file(path: Path, content: Path | None = None) -> None:
    """Check that a file is a complete library of a network for this machine, without loading it.

    The system's loader would run the initializers of any library, and its messages say little.

    Args:
        path: of the library, for messages.
        content: the file to read, a copy; None: `path`.

    Raises:
        LoadError: the file is something else, or damaged.
    """
    system = _SYSTEMS.get(sys.platform)
    try:
        with (content or path).open("rb") as file:
            header = file.read(4096)
            size = os.fstat(file.fileno()).st_size
            if system is None:
                return
            _check_kind(path, header, system)
            if system == "Linux":
                _check_elf(path, header)
                _check_segments(path, file, header, size)
            _check_seal(path, file, size)
            _check_exports(path, file)
    except FileNotFoundError:
        raise LoadError(f"{path} does not exist") from None
    except OSError as error:
        if path.is_dir() and (path / "graph.nnef").exists():
            raise LoadError(_model_text(path)) from None
        raise LoadError(f"{path} cannot be read: {error.strerror}") from error


def _check_kind(path: Path, header: bytes, system: str) -> None:
    """Check that a file is a shared library for this system.

    Raises:
        LoadError: it is not; the message says what it is.
    """
    write = f"write a shared one, nnefc compile MODEL -o {path.stem}{_SUFFIXES[system]}"
    if header.startswith(b"!<arch>\n"):
        raise LoadError(f"{path} is a static library, to be linked into a program: {write}")
    if header.startswith(b"NNEFCWTS"):
        raise LoadError(f"{path} is the weights file of a library: load the library that was written next to it")
    machine = _machine(header)
    if machine is None:
        if path.suffix.lower() in (".onnx", ".nnef", ".param", ".tgz", ".tar", ".gz"):
            raise LoadError(_model_text(path))
        raise LoadError(f"{path} is not a shared library: compile the model with nnefc and load what it writes")
    found, name = machine
    here = _processor()
    if found != system:
        raise LoadError(f"{path} was compiled for {found}, but this is {system}: compile the model for this machine")
    if system != "Linux" and name != here:
        raise LoadError(f"{path} was compiled for {name}, but this is {here}: compile the model for this machine")


def _model_text(path: Path) -> str:
    name = path.name.partition(".")[0]
    return f"{path} is a model, and this loads what is compiled: nnefc compile {path} -o {name}.so, then load that"


def _machine(header: bytes) -> tuple[str, str] | None:
    """Return the system and the processor that a library is for; None for other files.

    The processor of ELF files is empty: :func:`_check_elf` checks it.
    """
    if header[:4] == b"\x7fELF" and len(header) >= 20 and header[4] in (1, 2) and header[5] in (1, 2):
        return "Linux", ""
    if header[:4] == b"\xcf\xfa\xed\xfe" and len(header) >= 8:
        (number,) = struct.unpack_from("<I", header, 4)
        return "macOS", _MACH_O_MACHINES.get(number, f"machine {number}")
    if header[:4] == b"\0asm":
        return "WebAssembly", ""
    if header[:2] == b"MZ" and len(header) >= 64:
        (start,) = struct.unpack_from("<I", header, 60)
        if header[start : start + 4] == b"PE\0\0" and start + 6 <= len(header):
            (number,) = struct.unpack_from("<H", header, start + 4)
            return "Windows", _PE_MACHINES.get(number, f"machine {number}")
    return None


def _processor() -> str:
    """Return the processor that this Python runs on; on Windows, the one that it was built for and that may be
    emulated.
    """
    name = (
        sysconfig.get_platform().removeprefix("win-") if _SYSTEMS.get(sys.platform) == "Windows" else platform.machine()
    )
    return {"amd64": "x86_64", "arm64": "aarch64", "win32": "i686"}.get(name.lower(), name)


def _check_elf(path: Path, header: bytes) -> None:
    order = "<" if header[5] == 1 else ">"
    kind, machine = struct.unpack_from(order + "HH", header, 16)
    if kind == 1:
        raise LoadError(
            f"{path} is an object file, to be linked into a program: write a shared library, "
            f"nnefc compile MODEL -o {path.stem}.so"
        )
    if kind != 3:
        raise LoadError(f"{path} is an ELF file, but not a shared library")
    bits = 32 if header[4] == 1 else 64
    name = _MACHINES.get(machine, {}).get(bits, f"machine {machine} with {bits} bits")
    here = platform.machine()
    known = machine in _MACHINES or any(here in names.values() for names in _MACHINES.values())
    if struct.calcsize("P") * 8 != bits or (known and not _same_machine(name, here)):
        raise LoadError(
            f"{path} was compiled for {name}, but this is {here}: compile the model for this machine, as nnefc compile "
            "does without --target"
        )


def _same_machine(name: str, here: str) -> bool:
    """Return whether libraries for the machine `name` load on `here`.

    A 32-bit Python loads 32-bit libraries on a 64-bit system of the same family.
    """
    families = ({"i686", "i586", "i386", "x86_64"}, {"armv7l", "armv8l", "armv6l", "aarch64"})
    return name == here or (struct.calcsize("P") == 4 and any(name in f and here in f for f in families))


def _check_segments(path: Path, file: Any, header: bytes, size: int) -> None:
    """Check that a file has all of its segments: mapping a truncated file would end the process with a bus error.

    Raises:
        LoadError: the file is truncated.
    """
    wide, order = header[4] == 2, "<" if header[5] == 1 else ">"
    if len(header) < (64 if wide else 52):
        raise LoadError(f"{path} is cut off: copy it again")
    (start,) = struct.unpack_from(order + ("Q" if wide else "I"), header, 32 if wide else 28)
    entry, count = struct.unpack_from(order + "HH", header, 54 if wide else 42)
    if entry < (56 if wide else 32) or start + entry * count > size:
        raise LoadError(f"{path} is cut off: copy it again")
    file.seek(start)
    table = file.read(entry * count)
    for i in range(count):
        if wide:
            offset, length = struct.unpack_from(order + "8xQ16xQ", table, i * entry)
        else:
            offset, length = struct.unpack_from(order + "4xI8xI", table, i * entry)
        if offset + length > size:
            raise LoadError(f"{path} is cut off: it has {size} bytes of {offset + length}; copy it again")


_EXPORTS = ("describe", "create", "destroy", "run", "reset", "last_error", "status_name")
"""Functions that libraries of all versions export, without the prefix `nnefc_`."""


def _check_exports(path: Path, file: Any) -> None:
    """Check that a library has a network's functions: opening another one would run its constructors.

    Raises:
        LoadError: it has not, or its tables of symbols are damaged.
    """
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            missing = missing_export(content, [f"nnefc_{name}" for name in _EXPORTS])
        except ValueError as error:
            raise LoadError(f"{path} is damaged, or no shared library: {error}; copy it again") from error
    if missing is not None:
        raise LoadError(f"{path} is a shared library, but not a network compiled by nnefc: it has no {missing}")


_SEAL = struct.Struct("<QQII8s")  # written by targets/link/library_checksum.py
_PART = 1 << 20


def _check_seal(path: Path, file: Any, size: int) -> None:
    """Compare the file's checksum, if it has one, with its content without the constants.

    The library itself checks the constants (`nnefc_check`).

    Raises:
        LoadError: the checksum is wrong.
    """
    if size < _SEAL.size:
        return
    end = size - _SEAL.size
    file.seek(end)
    start, length, expected, _, magic = _SEAL.unpack(file.read(_SEAL.size))
    if magic != b"NNEFCCRC":
        return
    sum_ = 0
    for first, last in ((0, min(start, end)), (min(start + length, end), end)):
        file.seek(first)
        for at in range(first, last, _PART):
            sum_ = zlib.crc32(file.read(min(_PART, last - at)), sum_)
    if sum_ != expected:
        raise LoadError(f"{path} is damaged, or was changed after it was written: its checksum is wrong; copy it again")


_RECORD = b"\x89nnefc record\r\n\x01"  # begins the text metadata, JSON, within the library file


def labels_of(path: Path) -> dict[str, tuple[int | str, ...]]:
    """Return the labels of output columns by output; they are in the text metadata, not in `nnefc_describe`."""
    return {name: tuple(labels) for name, labels in _text_of(path, b'"labels"').get("labels", {}).items()}


def weights_next_to(path: Path, content: Path | None = None) -> Path | None:
    """Return the weights file that a library looks for in its folder, without loading it; None if it needs none.

    Args:
        path: of the library.
        content: the file to read, a copy; None: `path`.

    Raises:
        LoadError: as :func:`_text_of`.
    """
    name = _text_of(content or path, b'"weights"').get("weights")
    return next_to(path, Path(name).name) if isinstance(name, str) and name else None


def next_to(path: Path, name: str) -> Path:
    """Return the path of a file in the folder of a library, with symbolic links of the library's path resolved."""
    return Path(os.path.realpath(path)).with_name(name)


def _text_of(path: Path, wanted: bytes) -> dict[str, Any]:
    """Return the text metadata of a library; empty if it has none, or if `wanted` does not occur in it.

    Raises:
        LoadError: the file cannot be read, or the text is damaged.
    """
    try:
        return _parsed_text(path, wanted)
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, struct.error, RecursionError) as error:
        raise LoadError(f"{path} is damaged: copy it again") from error


def _parsed_text(path: Path, wanted: bytes) -> dict[str, Any]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_RECORD) + len(_RECORD)
        if start < len(_RECORD):
            return {}
        (length,) = struct.unpack_from("<I", content, start)
        text = content[start + 4 : start + 4 + length]
    fields = json.loads(text) if wanted in text else {}
    return fields if isinstance(fields, dict) else {}
