"""Runs zig (`ziglang` on PyPI), the compiler and linker for every target, with its cache folders."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess, run

from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import write_error
from nnefc.support.user_folders import user_cache

__all__ = ["OTHER_COMPILERS", "run_compiler", "zig"]

_TEMPORARY = ("TMPDIR", "TMP", "TEMP")
"""Environment variables that name the folder for temporary files."""

_DISK_MESSAGES = {
    "No space left": errno.ENOSPC,
    "NoSpaceLeft": errno.ENOSPC,
    "uota": errno.EDQUOT,
    "ead-only file system": errno.EROFS,
    "ReadOnlyFileSystem": errno.EROFS,
    "ermission denied": errno.EACCES,
    "AccessDenied": errno.EACCES,
    "PermissionDenied": errno.EACCES,
}
"""What messages of compilers and linkers say of disks, in words of the system or of zig."""

_LITTLE_ROOM, _PROBE = 16 << 20, 1 << 16
"""Bytes: a disk with fewer free ones was full where a compiler failed because of one; and of a file to try."""

OTHER_COMPILERS = "install it, or give another; without one, zig comes with nnefc: pip install ziglang"
"""A hint for users whose compiler does not run."""


@functools.cache
def zig() -> tuple[str, ...]:
    """Return the command of zig: the program itself, since `python -m ziglang` would start another Python."""
    package = find_spec("ziglang")
    for position in (package.submodule_search_locations or ()) if package is not None else ():
        program = Path(position) / ("zig.exe" if os.name == "nt" else "zig")
        if program.is_file():
            return (str(program),)
    return (sys.executable, "-m", "ziglang")  # which says what is missing


def run_compiler(
    command: Sequence[str], folder: Path, failure: str = "the linker failed", output: Path | None = None
) -> None:
    """Run a compiler; zig gets a local cache in `folder`, and only the C library's stubs stay cached.

    Args:
        command: the words of the command.
        folder: for temporary files; its name is removed from messages.
        failure: the beginning of the message if the compiler fails.
        output: the file to write; None: the word after -o.

    Raises:
        CompileError: the command cannot be run, or fails, or may not open enough files.
        OSError: the disk is full or a folder cannot be written; the error names the folder.
    """
    environment = {**os.environ, "ZIG_LOCAL_CACHE_DIR": str(folder), **dict.fromkeys(_TEMPORARY, str(folder))}
    cache = user_cache()
    if cache is None:
        environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(folder / "global"))  # slower, for nothing is kept
    elif os.name == "posix" and not {"HOME", "XDG_CACHE_HOME"} & {name for name, value in os.environ.items() if value}:
        environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache / "zig"))  # where it would be if zig knew the home
    try:
        done = run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    except OSError as error:
        raise CompileError(
            f"cannot run the compiler {command[0]}: {error.strerror}",
            hint=OTHER_COMPILERS,
        ) from error
    if done.returncode != 0:
        outputs = [Path(after) for word, after in itertools.pairwise(command) if word == "-o"]
        _check_disks([folder, *(file.parent for file in (*outputs, *filter(None, [output])))], cache, done)
        if "FdQuotaExceeded" in done.stderr:
            raise CompileError("the compiler may not open as many files as it needs", hint="allow more: ulimit -n 256")
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        message = "\n".join(lines[:20]).replace(str(folder), "<link>") or f"it ended with status {done.returncode}"
        raise CompileError(
            f"{failure}:\n{message}",
            hint="is the ziglang package whole, and does zig know the target?" if not lines else None,
        )


def _check_disks(positions: Sequence[Path], cache: Path | None, done: CompletedProcess[str]) -> None:
    """Check whether a compiler failed because of a disk: its own messages are unclear, or a linker ends by a signal.

    Raises:
        OSError: the disk of one of the folders `positions` is full, or cannot be written.
        CompileError: the disk of the cache is.
    """
    kinds = {kind for text, kind in _DISK_MESSAGES.items() if text in done.stderr}
    for position in filter(Path.is_dir, (*positions, *([cache] if cache is not None else []))):
        kind = errno.ENOSPC if shutil.disk_usage(position).free < _LITTLE_ROOM else _refused(position)
        if kind is None or not (kind in kinds or done.returncode < 0):
            continue
        error = OSError(kind, os.strerror(kind), str(position))
        if position == cache:
            other = "name another folder for caches: XDG_CACHE_HOME=/path/to/folder"
            raise write_error(cache, error, other, f"the cache {cache}")
        raise error


def _refused(folder: Path) -> int | None:
    """Return the error number of writing a file in a folder; None if it succeeds."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE))
    except OSError as error:
        return error.errno
    return None
