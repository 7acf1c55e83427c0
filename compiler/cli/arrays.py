"""Reads input arrays of `nnefc run` from files and writes its outputs to files."""

from __future__ import annotations

import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnefc.ir.sample_inputs import Arrays, Port
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Arrays", "file_names", "read_inputs", "write_outputs"]

LONGEST_FILE_NAME = 100

# What NumPy and zipfile raise for files that are cut off or made up.
UNREADABLE = (
    ValueError,
    EOFError,
    MemoryError,
    OverflowError,
    SyntaxError,
    RuntimeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_inputs(options: Sequence[str], ports: Sequence[Port]) -> Arrays:
    """Return the arrays of the `--input` options by input name.

    Raises:
        CompileError: a file has no arrays, its input is unknown, or an input is given twice.
    """
    known = [port.name for port in ports]
    arrays: Arrays = {}
    for option in options:
        name, equals, file = option.partition("=")
        found = {name: read_array(Path(file), name)} if equals and name in known else read_unnamed(option, known)
        for twice in sorted(arrays.keys() & found.keys()):
            raise CompileError(f"two values for input {twice!r}", hint="give each input once")
        arrays |= found
    return arrays


def read_unnamed(option: str, known: Sequence[str]) -> Arrays:
    """Return the arrays of an option without the name of an input: of an .npz file, or of an .npy file for the only
    input.

    Raises:
        CompileError: as :func:`read_inputs`.
    """
    path = Path(option)
    if not path.exists() and "=" in option:
        raise CompileError(
            f"{option.partition('=')[0]!r} is not an input of this library", hint=f"its inputs are {', '.join(known)}"
        )
    loaded = read_file(path)
    if isinstance(loaded, dict):
        for name in sorted(loaded.keys() - set(known)):
            raise CompileError(
                f"{path} holds {name!r}, which is not an input of this library",
                hint=f"its inputs are {', '.join(known)}",
            )
        return loaded
    if len(known) != 1:
        raise CompileError(
            f"it is not clear which input {path} is for", hint=f"say --input NAME={path}; inputs: {', '.join(known)}"
        )
    return {known[0]: loaded}


def read_array(path: Path, name: str) -> np.ndarray[Any, Any]:
    """Return one array: that of an .npy file, or the array `name` or the only array of an .npz file.

    Raises:
        CompileError: the file has no such array.
    """
    loaded = read_file(path)
    if not isinstance(loaded, dict):
        return loaded
    if name in loaded:
        return loaded[name]
    if len(loaded) != 1:
        raise CompileError(f"{path} holds no array {name!r}", hint=f"it holds {', '.join(loaded) or 'none'}")
    return next(iter(loaded.values()))


def read_file(path: Path) -> np.ndarray[Any, Any] | Arrays:
    """Return the array of an .npy file, or the arrays of an .npz file by name.

    The file is memory-mapped, so that a header with a wrong size is an error instead of a huge allocation.

    Raises:
        CompileError: the file cannot be read, or has Python objects.
    """
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False, mmap_mode="r")
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            arrays = {name: loaded[name] for name in loaded.files}
            for name, array in arrays.items():
                if not isinstance(array, np.ndarray):  # NumPy gives other files of the archive as bytes
                    raise ValueError(f"{name} in it is not an array")
            return arrays
    except UNREADABLE as error:
        if not starts_as_arrays(path):
            raise no_arrays(path) from error
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        if "Python objects" in reason or "allow_pickle" in reason:
            raise CompileError(
                f"{path} holds Python objects, not numbers",
                hint="convert them first: numpy.save(FILE, array.astype(TYPE))",
            ) from error
        raise CompileError(
            f"{path} is not a readable .npy or .npz file ({reason})", hint="write one with numpy.save or numpy.savez"
        ) from error


def starts_as_arrays(path: Path) -> bool:
    """Returns whether a file begins as NumPy's files and their archives do."""
    with path.open("rb") as file:
        return file.read(6).startswith((b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06"))


def no_arrays(path: Path) -> CompileError:
    """Return the error for a file that does not begin like an .npy or .npz file."""
    if path.stat().st_size == 0:
        return CompileError(f"{path} is not a .npy or .npz file: it is empty", hint="write one with numpy.save")
    return CompileError(
        f"{path} is not a .npy or .npz file: it does not begin as they do",
        hint="to convert raw numbers, in Python, with the type and shape that `nnefc inspect` shows: "
        f"numpy.save('x.npy', numpy.fromfile({str(path)!r}, TYPE).reshape(SHAPE))",
    )


def file_names(names: Sequence[str]) -> list[str]:
    """Return distinct file names for names of tensors, with letters, digits, `_`, `-` and inner points only."""
    chosen: list[str] = []
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".-")[:LONGEST_FILE_NAME] or "output"
        candidate, count = stem, 1
        taken = {other.lower() for other in chosen}
        while candidate.lower() in taken:
            count += 1
            candidate = f"{stem}_{count}"
        chosen.append(candidate)
    return chosen


def write_outputs(folder: Path, results: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write each result as `folder`/NAME.npy; an interrupted write leaves no partial file.

    Raises:
        CompileError: the folder or a file cannot be written.
    """
    import numpy as np

    from nnefc.support.output_files import output_folder, written_whole

    if folder.exists() and not folder.is_dir():
        raise CompileError(f"{folder} is a file: the outputs go into a folder", hint="give the name of another folder")
    with output_folder(folder):
        for stem, array in zip(file_names(list(results)), results.values(), strict=True):
            with written_whole(folder / f"{stem}.npy") as new, new.open("wb") as file:
                np.save(file, array.astype(np.str_) if array.dtype.hasobject else array, allow_pickle=False)
