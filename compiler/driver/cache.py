"""Caches compiled libraries in a folder of the user's, so that a session compiles each model once.

    NNEFC_CACHE=0             no cache
    NNEFC_CACHE=/some/folder  another folder than nnefc/libraries in the user's folder of caches
    NNEFC_CACHE_SIZE=500M     another limit than 4G

A library is found by the contents of the model's files, the options, the target, the processor, and the compiler. A
session whose library is there needs neither TVM nor a front end.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache as computed_once
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nnefc.driver.option_fields import given_values
from nnefc.driver.options import CompileOptions, DebugOptions
from nnefc.driver.progress import Progress
from nnefc.driver.provenance import source_digest
from nnefc.driver.terminal_progress import session_progress
from nnefc.frontends.file_names import NNEF_DOCUMENT
from nnefc.loader import Model
from nnefc.loader import load as load_library
from nnefc.support.diagnostics import CompileError
from nnefc.support.file_cache import FileCache
from nnefc.support.user_folders import user_cache

if TYPE_CHECKING:
    from nnefc.driver.artifact import Artifact

__all__ = ["Cache", "library_cache", "library_of", "load_model"]

Cache: TypeAlias = "str | os.PathLike[str] | bool | None"
"""A folder; False: no cache; True or None: the folder in NNEFC_CACHE, or the user's."""

_FOLDER, _SIZE = "NNEFC_CACHE", "NNEFC_CACHE_SIZE"

_OFF = ("0", "off", "no", "false")

_MAX_BYTES = 4 << 30

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_DIGITS = 32
"""Of the digest that a library is named by."""

_PACKAGES = ("apache-tvm", "ziglang", "onnx")
"""Those that a library depends on, besides nnefc."""

_PROCESSOR = re.compile(
    r"^(vendor_id|cpu family|model|model name|stepping|cache size|flags|Features|CPU \w+|isa|uarch)\s*:.*$",
    re.MULTILINE,
)
"""Lines of /proc/cpuinfo that are the same whenever they are read."""


def load_model(
    model: str | os.PathLike[str],
    options: CompileOptions,
    cache: Cache = None,
    progress: Progress | None = None,
    **load: Any,
) -> Model:
    """Compiles a model, unless its library is in the cache, and loads it.

    Libraries are not cached where the program is dumped, where there are custom operators, whose code may be anywhere,
    or where options have values of unknown types.

    Args:
        model: as of `nnefc.compile`.
        options: how it is compiled.
        cache: see :data:`Cache`.
        progress: called at the beginning and end of every phase; None: a line on stderr, if that is a terminal.
        load: options of `nnefc.load`.

    Raises:
        CompileError: the model cannot be read or compiled, the folder that `cache` or NNEFC_CACHE names cannot be
            written, or NNEFC_CACHE_SIZE is not a size.
        LoadError: the library cannot be loaded.
    """
    compiled = partial(_compiled, model, options, progress)
    cached = _cached(Path(model), options, compiled, cache)
    return compiled().load(**load) if cached is None else load_library(cached, **load)


def library_of(
    model: Path, options: CompileOptions, folder: Path, *, cache: Cache = None, progress: Progress | None = None
) -> Path:
    """Returns the library of a model: from the cache, or compiled.

    Args:
        folder: where the library is written if it is not cached.
        model, options, cache, progress: as of :func:`load_model`.

    Raises:
        CompileError: as of :func:`load_model`.
    """
    compiled = partial(_compiled, model, options, progress)
    cached = _cached(model, options, compiled, cache)
    if cached is not None:
        return cached
    path = folder / f"{model.name.partition('.')[0] or 'model'}{_suffix()}"
    compiled().export(path)
    return path


def library_cache(cache: Cache = None) -> FileCache | None:
    """Returns the cache of libraries; None if it is switched off, or if the user has no folder of caches.

    Raises:
        CompileError: NNEFC_CACHE_SIZE is not a size.
    """
    named = os.environ.get(_FOLDER, "")
    if cache is False or (not isinstance(cache, str | os.PathLike) and named.lower() in _OFF):
        return None
    if isinstance(cache, str | os.PathLike):
        return FileCache(Path(cache), _max_bytes())
    if named:
        return FileCache(Path(named), _max_bytes())
    folder = user_cache()
    return None if folder is None else FileCache(folder / "nnefc" / "libraries", _max_bytes())


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


def _compiled(model: str | os.PathLike[str], options: CompileOptions, progress: Progress | None) -> Artifact:
    from nnefc.driver.compile import compile_model  # TVM comes with it

    return compile_model(model, options, progress or session_progress(Path(model).name))


def _cached(model: Path, options: CompileOptions, compiled: Callable[[], Artifact], cache: Cache) -> Path | None:
    """Returns the library of a model from the cache, compiled if it is not there; None where it is not cached."""
    files = library_cache(cache)
    text = _options_text(options) if files is not None else None
    if files is None or text is None:
        return None
    return _cached_library(model, options.target, compiled, text, files)


def _cached_library(model: Path, target: str, compiled: Callable[[], Artifact], options: str, files: FileCache) -> Path:
    """Returns the library of a model from the cache, and compiles it if it is not there.

    Which files next to the model are read follows from the contents of those before: a list of their names is kept
    for all else that a library depends on.

    Args:
        options: as text.

    Raises:
        CompileError: the model cannot be read or compiled, or the folder cannot be written.
    """
    document = model / NNEF_DOCUMENT
    own = source_digest(document if document.is_file() else model)
    known = [_compiler(), target, _processor(target), options, own]
    listed = f"files-{_digest(known)}.json"

    def library(source: str) -> str:
        return f"{re.sub(r'[^0-9A-Za-z_]', '_', model.stem)[:40]}-{_digest([*known, source])}{_suffix()}"

    names = files.find(listed)
    if names is not None:
        found = files.find(library(source_digest(model, json.loads(names.read_text(encoding="utf-8")))))
        if found is not None:
            return found
    artifact = compiled()
    made = files.add(library(artifact.description.source), artifact.export)
    files.add(listed, lambda new: new.write_text(json.dumps(artifact.files), encoding="utf-8"))
    return made


@computed_once
def _compiler() -> str:
    """Returns the versions of nnefc and of what it compiles with, and the state of its own files."""
    digest = hashlib.sha256()
    for path, size, changed in sorted(_own_files()):
        digest.update(f"{path} {size} {changed}\n".encode(errors="surrogateescape"))
    return " ".join([*map(_version, ("nnefc", *_PACKAGES)), digest.hexdigest()])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


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


@computed_once
def _processor(target: str) -> str:
    """Returns what a library for this machine depends on of it."""
    try:
        content = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        from nnefc.targets.machine.any_target import parse_any_target  # which asks LLVM

        return repr(parse_any_target(target))
    lines = dict.fromkeys(found[0] for found in _PROCESSOR.finditer(content))  # processors may be of several kinds
    return "\n".join((platform.machine(), *platform.libc_ver(), *lines))


def _suffix() -> str:
    """Returns how the name of a library ends that runs here: the target of a session is this machine."""
    return {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def _options_text(options: CompileOptions) -> str | None:
    """Returns a text that identifies the options; None where they do not determine the library."""
    watched = options.debug != DebugOptions() or options.passes or options.observers
    if watched or options.read.operators or _has_custom_operators():
        return None
    given = given_values(options.read) | given_values(options.code) | given_values(options.precision)
    calibrate = given.get("calibrate")
    try:
        if isinstance(calibrate, str | os.PathLike):
            given["calibrate"] = np.fromfile(calibrate, np.uint8)
        return _text(given)
    except (OSError, TypeError):  # the compiler says what is wrong
        return None


def _has_custom_operators() -> bool:
    """Returns whether the program has registered operators, for which it has imported their module."""
    custom = sys.modules.get("nnefc.operators.custom")
    return custom is not None and any(map(custom.custom_operators, custom.FORMATS))


def _text(value: Any) -> str:
    """Returns a value as text.

    Raises:
        TypeError: it is of no type that options have.
    """
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case Mapping():
            return f"{{{', '.join(sorted(f'{_text(key)}: {_text(element)}' for key, element in value.items()))}}}"
        case list() | tuple():
            return f"[{', '.join(map(_text, value))}]"
        case np.ndarray() | np.generic() if value.dtype.hasobject:
            return f"{value.shape} {_text(value.tolist())}"
        case np.ndarray() | np.generic():
            return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    raise TypeError
