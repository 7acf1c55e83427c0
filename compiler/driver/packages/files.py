"""Writes the files of a package as a folder or an archive: the same files give the same bytes.

Archives have their entries in the order of names, with one time and one owner for all.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import scratch_next_to, written_whole

__all__ = ["Files", "Link", "Program", "tar_archive", "write_file", "write_folder", "zip_archive"]


@dataclass(frozen=True)
class Link:
    """A symbolic link, to a path relative to its folder."""

    to: str


@dataclass(frozen=True)
class Program:
    """A file that can be executed."""

    content: bytes


Files: TypeAlias = Mapping[str, bytes | Link | Program]
"""Files by their paths, with slashes."""

_FIRST_TIME = (1980, 1, 1, 0, 0, 0)  # of zip archives
_NPM_TIME = 499162500  # what npm writes: some programs refuse the year 1970


def _content(file: bytes | Link | Program) -> bytes:
    if isinstance(file, Link):
        raise ValueError("archives of packages have no links")
    return file.content if isinstance(file, Program) else file


def zip_archive(files: Files) -> bytes:
    """Returns a zip archive of files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _FIRST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, on all systems
            entry.external_attr = (0o755 if isinstance(file, Program) else 0o644) << 16
            archive.writestr(entry, _content(file))
    return made.getvalue()


def tar_archive(files: Files) -> bytes:
    """Returns a tar archive of files, compressed by gzip."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, file in sorted(files.items()):
            entry, content = tarfile.TarInfo(name), _content(file)
            entry.size, entry.mtime = len(content), _NPM_TIME
            entry.mode = 0o755 if isinstance(file, Program) else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(made.getvalue(), mtime=0)


def write_file(content: bytes, output: Path) -> None:
    """Writes an archive whole or not at all, in place of a file that is there.

    Raises:
        CompileError: it cannot be written.
    """
    with written_whole(output) as new:
        new.write_bytes(content)


def write_folder(files: Files, output: Path) -> None:
    """Writes a new folder, whole or not at all.

    Raises:
        CompileError: there is a file or folder of this name, or it cannot be written.
    """
    if output.exists() or output.is_symlink():
        raise CompileError(f"cannot write {output}: it exists", hint="remove it first, or give another name")
    with scratch_next_to(output) as scratch:
        whole = scratch / output.name
        for name, file in sorted(files.items()):
            path = whole / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(file, Link):
                path.symlink_to(file.to)
                continue
            path.write_bytes(_content(file))
            path.chmod(0o755 if isinstance(file, Program) else 0o644)
        shutil.move(whole, output)
