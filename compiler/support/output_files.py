"""Writes output files atomically, and reports disk errors: full, read-only, permission denied, over quota.

An output is written into a new folder next to its target, then renamed: an error or an interruption leaves the old file
intact.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nnefc.support.diagnostics import WriteError

__all__ = [
    "check_folder",
    "naming",
    "output_folder",
    "readable_bytes",
    "scratch_next_to",
    "temporary_errors",
    "temporary_folder",
    "write_error",
    "write_text",
    "write_together",
    "written_whole",
]

_HINTS = {
    errno.ENOSPC: "{folder} has {free} free: make room there, or {other}",
    errno.EDQUOT: "your quota on {folder} is used up, of whose disk {free} are free: make room there, or {other}",
    errno.EROFS: "{folder} is read-only, with {free} free: {other}",
    errno.EACCES: "you have no permission to write to {folder}, with {free} free: {other}",
}
"""What users can do, by the kind of error."""

_TEMPORARY = "name another folder for temporary files: TMPDIR=/path/to/folder"


def write_error(
    path: Path, error: OSError, other: str = "write to another folder", shown: str | None = None
) -> WriteError:
    """The error for a file or folder that cannot be written: its path, the reason, the free space and a way out.

    Args:
        path: what was to be written.
        other: what else users can do than make room, for the hint.
        shown: what it is called; None: by its path.
    """
    kind = errno.EACCES if error.errno == errno.EPERM else error.errno
    folder = _existing(path if path.is_dir() else path.parent)
    hint = _HINTS.get(kind) if kind is not None else None
    return WriteError(
        f"cannot write {shown or path}: {error.strerror or error}",
        hint=None if hint is None else hint.format(folder=folder, free=_free(folder), other=other),
    )


def _existing(folder: Path) -> Path:
    """The folder, or of those that it is in the innermost that exists."""
    return next((each for each in (folder, *folder.parents) if each.is_dir()), folder)


def _free(folder: Path) -> str:
    """Returns the free space of a folder's disk for this user, as text."""
    try:
        return readable_bytes(shutil.disk_usage(folder).free)
    except OSError:
        return "an unknown amount"


def readable_bytes(count: float) -> str:
    """Returns a number of bytes as text, in units of 1,000: `345 KB`, `4.3 GB`."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


@contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """The folder, made with those that it is in; new ones are removed where the body fails and leaves them empty.

    Raises:
        WriteError: it cannot be made.
    """
    new = _made(folder)
    try:
        yield folder
    except BaseException:
        _remove_empty(new)
        raise


def check_folder(folder: Path) -> None:
    """Raises the error of a folder that cannot be made; makes none.

    Raises:
        WriteError: it cannot be made.
    """
    _remove_empty(_made(folder))


def _made(folder: Path) -> list[Path]:
    """Makes a folder; returns those that are new, the innermost first."""
    new = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_empty(new)
        raise write_error(folder, error) from error
    return new


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def scratch_next_to(output: Path, folder: Path | None = None) -> Iterator[Path]:
    """A new folder in the folder of `output`, from which files are renamed; it is removed in the end.

    Args:
        output: what errors name.
        folder: where the new folder is, if it is not that of `output`.

    Raises:
        WriteError: the folder cannot be made, or an OSError of the body, as an error that names `output`.
    """
    import tempfile

    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{output.name[:40]}.", dir=folder or output.parent, ignore_cleanup_errors=True
        ) as name:
            yield Path(name)
    except OSError as error:
        if error.filename is not None and not _is_in(folder or output.parent, error.filename):
            raise WriteError(f"cannot write {output}: {os.fsdecode(error.filename)}: {error.strerror}") from error
        raise write_error(output, error) from error


@contextmanager
def written_whole(output: Path) -> Iterator[Path]:
    """The path of a new file, which replaces `output` at the end of the body; what is no file is written to.

    Raises:
        WriteError: the file cannot be written; what was at `output` stays.
    """
    if output.exists() and not output.is_file():  # such as /dev/stdout
        try:
            yield output
        except OSError as error:
            raise write_error(output, error) from error
        return
    with scratch_next_to(output) as folder:
        yield folder / output.name
        (folder / output.name).replace(output.resolve())  # links keep what they lead to


def write_text(output: Path, text: str) -> None:
    """Write a file of text whole, in UTF-8.

    Raises:
        WriteError: it cannot be written; what was there stays.
    """
    with written_whole(output) as new:
        new.write_text(text, encoding="utf-8")


def write_together(folder: Path, write: Callable[[Path], object], *, last: str = "") -> list[Path]:
    """Let `write` fill a new folder, then move its files into `folder`: nothing is there by halves if it fails.

    The file called `last` is moved after the others, which it may need. Returns where the files are now.

    Raises:
        WriteError: a file cannot be written; what was there under its name stays.
    """
    with scratch_next_to(folder / last, folder) as new:
        write(new)
        files = sorted(new.iterdir(), key=lambda file: (file.name == last, file.name))
        _refuse_folders(folder / file.name for file in files)
        return [file.replace(folder / file.name) for file in files]


def _refuse_folders(locations: Iterable[Path]) -> None:
    for location in locations:
        if location.is_dir():
            raise WriteError(f"cannot write {location}: it is a folder")


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder for temporary files, removed in the end.

    Raises:
        WriteError: the folder cannot be made, or the body raised an OSError (a full disk and so on) that names a file
            in it, or no file. An OSError that names another file is raised as it is.
    """
    import tempfile

    with ExitStack() as stack:
        with temporary_errors():
            made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
        stack.enter_context(temporary_errors(folder))
        yield folder


@contextmanager
def temporary_errors(folder: Path | None = None) -> Iterator[None]:
    """Convert errors of the disk that has temporary files into errors that name it and say how to choose another.

    Args:
        folder: where the files are that errors name, among the temporary ones; None: all of these.

    Raises:
        WriteError: there is no folder for temporary files, or the disk of it is full, read-only and so on.
    """
    import tempfile

    try:
        root = Path(tempfile.gettempdir())
    except OSError as error:  # its message lists all folders that were tried
        raise WriteError("there is no folder that temporary files can be written to", hint=_TEMPORARY) from error
    try:
        yield
    except OSError as error:
        if not root.is_dir():
            raise WriteError(f"cannot write temporary files to {root}: it does not exist", hint=_TEMPORARY) from error
        if error.errno not in _HINTS or not (error.filename is None or _is_in(folder or root, error.filename)):
            raise
        raise write_error(root, error, _TEMPORARY, f"temporary files to {root}") from error


@contextmanager
def naming(output: Path) -> Iterator[None]:
    """Let errors of files that name none name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(output)) from error


def _is_in(folder: Path, name: str | bytes) -> bool:
    return Path(os.path.abspath(os.fsdecode(name))).is_relative_to(os.path.abspath(folder))
