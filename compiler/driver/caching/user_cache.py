"""Names the user's folders of cached libraries and kernels, their limits, and what identifies a compiler.

    NNEFC_CACHE=0             no cache
    NNEFC_CACHE=/some/folder  another folder than nnefc/libraries in the user's folder of caches
    NNEFC_CACHE_SIZE=500M     another limit than 4G

Kernels are in the folder `kernels`, next to `nnefc/libraries` or in the folder that is named, within an eighth of the
limit.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from functools import cache as computed_once
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from nnefc.support.diagnostics import CompileError
from nnefc.support.distribution import versions_of
from nnefc.support.file_cache import FileCache
from nnefc.support.user_folders import user_cache

__all__ = ["Cache", "compiler_state", "kernel_files", "library_cache"]

Cache: TypeAlias = "str | os.PathLike[str] | bool | None"
"""A folder; False: no cache; True or None: the folder in NNEFC_CACHE, or the user's."""

_FOLDER, _SIZE = "NNEFC_CACHE", "NNEFC_CACHE_SIZE"

_OFF = ("0", "off", "no", "false")

_MAX_BYTES = 4 << 30

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_KERNELS = "kernels"

_SHARE = 8
"""How many times more the libraries may take than the kernels, which are small."""

_PACKAGES = ("apache-tvm", "ziglang", "onnx")
"""Those that a library depends on, besides nnefc."""


def library_cache(cache: Cache = None) -> FileCache | None:
    """Returns the cache of libraries; None if it is switched off, or if the user has no folder of caches.

    Raises:
        CompileError: NNEFC_CACHE_SIZE is not a size.
    """
    named = _named_folder(cache)
    if named is not None:
        return FileCache(named, _max_bytes())
    folder = None if _is_off(cache) else user_cache()
    return None if folder is None else FileCache(folder / "nnefc" / "libraries", _max_bytes())


def kernel_files(cache: Cache = None) -> FileCache | None:
    """Returns the cache of kernels; None and errors as of :func:`library_cache`."""
    libraries = library_cache(cache)
    if libraries is None:
        return None
    folder = libraries.folder if _named_folder(cache) is not None else libraries.folder.parent
    return FileCache(folder / _KERNELS, libraries.max_bytes // _SHARE)


def _is_off(cache: Cache) -> bool:
    """Returns whether nothing is cached; a folder that a caller names is used whatever the environment says."""
    if isinstance(cache, str | os.PathLike):
        return False
    return cache is False or os.environ.get(_FOLDER, "").lower() in _OFF


def _named_folder(cache: Cache) -> Path | None:
    """Returns the folder that a caller or the environment names."""
    if isinstance(cache, str | os.PathLike):
        return Path(cache)
    named = os.environ.get(_FOLDER, "")
    return Path(named) if named and not _is_off(cache) else None


def _max_bytes() -> int:
    """Returns the limit of the sizes of all libraries.

    Raises:
        CompileError: the environment names something else than a size.
    """
    given = os.environ.get(_SIZE, "")
    if not given:
        return _MAX_BYTES
    found = re.fullmatch(r"(\d{1,9})([KMGT]?)(i?B)?", given.strip(), re.IGNORECASE)
    if found is None:
        raise CompileError(f"{_SIZE} is {given!r}, which is not a size", hint="such as 500M or 4G")
    return int(found[1]) * _UNITS[found[2].upper()]


@computed_once
def compiler_state() -> str:
    """Returns the versions of nnefc and of what it compiles with, and the state of its own files."""
    digest = hashlib.sha256()
    for path, size, changed in sorted(_own_files()):
        digest.update(f"{path} {size} {changed}\n".encode(errors="surrogateescape"))
    names = ("nnefc", *_PACKAGES)
    versions = versions_of(names)
    return " ".join([*(versions.get(name, "-") for name in names), digest.hexdigest()])


def _own_files() -> Iterator[tuple[str, int, int]]:
    """Yields the files of the compiler: path, size, and the time of the last change."""
    folders = [
        folder
        for package in ("nnefc", "nnefc.passes", "nnefc.targets")
        for spec in [find_spec(package)]
        for folder in (spec.submodule_search_locations or () if spec is not None else ())
    ]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders += [entry.path] * (entry.name != "__pycache__")
                else:
                    state = entry.stat()
                    yield entry.path, state.st_size, state.st_mtime_ns
