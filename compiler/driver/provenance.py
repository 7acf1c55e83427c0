"""Records which model a library was compiled from, as a digest of the model's files."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from nnefc.driver.model_format import format_of
from nnefc.support.diagnostics import CompileError

__all__ = ["source_digest"]

_NNEF_SUFFIXES = {".nnef", ".dat", ".quant"}  # of the files in a model's folder that the standard knows


def source_digest(model: Path, further: Iterable[str] = ()) -> str:
    """Return `sha256:` and the digest of a model.

    For a model in one file it is the digest of the file. For several files, such as a document with its tensors, it is
    the digest of the lines `digest  name` that the command sha256sum prints for them, sorted by name; names are
    relative to the model's folder.

    Args:
        model: as given to the compiler.
        further: names of files next to the model that it may have read; those that do not exist are ignored.

    Raises:
        CompileError: a file cannot be read.
    """
    folder, names = _files(model)
    names = sorted({*names, *(name for name in further if (folder / name).is_file())})
    digests = [_digest(folder / name) for name in names]
    if len(digests) == 1:
        return f"sha256:{digests[0]}"
    lines = "".join(f"{digest}  {name}\n" for digest, name in zip(digests, names, strict=True))
    return f"sha256:{hashlib.sha256(lines.encode(errors='surrogateescape')).hexdigest()}"


def _files(model: Path) -> tuple[Path, list[str]]:
    if model.is_dir():
        found = (file for file in model.rglob("*") if file.suffix in _NNEF_SUFFIXES and file.is_file())
        return model, [file.relative_to(model).as_posix() for file in found]
    if format_of(model).name == "PNNX":
        return model.parent, [model.name, model.with_suffix(".bin").name]
    return model.parent, [model.name]


_SETTLED = 2_000_000_000
"""Nanoseconds after which a file's digest is cached: coarse clocks of file systems do not show that a file was
written twice within that time.
"""

_known: dict[tuple[int, ...], str] = {}
"""Digests of files by their state (inode, size, time): a model is looked up in the cache by its digest, and its
library contains the digest.
"""


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            now = os.fstat(file.fileno())
            state = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
            if state not in _known:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if time.time_ns() - max(now.st_mtime_ns, now.st_ctime_ns) < _SETTLED:
                    return digest
                _known[state] = digest
            return _known[state]
    except OSError as error:
        raise CompileError(f"{path} cannot be read: {error.strerror or error}") from error
