"""Caches compiled libraries in a folder of the user's, so that a session compiles each model once.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache as computed_once
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnefc.driver.caching.user_cache import Cache, compiler_state, library_cache
from nnefc.driver.option_fields import given_values
from nnefc.driver.options import CompileOptions, DebugOptions
from nnefc.driver.progress import Progress
from nnefc.driver.provenance import source_digest
from nnefc.driver.terminal_progress import session_progress
from nnefc.frontends.file_names import NNEF_DOCUMENT
from nnefc.loader import Model
from nnefc.loader import load as load_library
from nnefc.operators.custom_registry import FORMATS, custom_operators
from nnefc.support.diagnostics import CompileError, warn_of_cache
from nnefc.support.file_cache import FileCache

if TYPE_CHECKING:
    from nnefc.driver.artifact import Artifact

__all__ = ["find_library", "library_of", "load_cached", "load_model"]

_DIGITS = 32
"""Of the digest that a library is named by."""

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
        CompileError: the model cannot be read or compiled, or NNEFC_CACHE_SIZE is not a size.
        LoadError: the library cannot be loaded.
    """
    compiled = partial(_compiled, model, options, progress, cache)
    found = _library(Path(model), options, compiled, cache)
    return load_cached(found, model, **load) if isinstance(found, Path) else found.load(**load)


def load_cached(library: Path, model: str | os.PathLike[str], **load: Any) -> Model:
    """Loads a library, whose messages name the model that it was compiled from.

    Raises:
        LoadError: it cannot be loaded.
    """
    loaded = load_library(library, **load)
    loaded._library.shown = f"the model {Path(model).name}"
    return loaded


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
    compiled = partial(_compiled, model, options, progress, cache)
    found = _library(model, options, compiled, cache)
    if isinstance(found, Path):
        return found
    path = folder / f"{model.name.partition('.')[0] or 'model'}{_suffix()}"
    found.export(path)
    return path


def find_library(model: Path, options: CompileOptions, cache: Cache = None) -> Path | None:
    """Returns the library of a model from the cache; None if it is not there or is not cached.

    Args:
        model, options, cache: as of :func:`load_model`.

    Raises:
        CompileError: the model cannot be read, or NNEFC_CACHE_SIZE is not a size.
    """
    files = library_cache(cache)
    text = _options_text(options) if files is not None else None
    return None if files is None or text is None else _Key.of(model, options.target, text).find(files)


def _compiled(
    model: str | os.PathLike[str], options: CompileOptions, progress: Progress | None, cache: Cache
) -> Artifact:
    from nnefc.support.garbage_collection import age_modules, without_collections
    from nnefc.support.minimal_tvm import import_tvm

    with without_collections():
        import_tvm()
        from nnefc.driver.compile import compile_model

        age_modules()
        return compile_model(model, options, progress or session_progress(Path(model).name), cache)


def _library(model: Path, options: CompileOptions, compiled: Callable[[], Artifact], cache: Cache) -> Path | Artifact:
    """Returns the library of a model from the cache, to which it is added if it is not there; what is compiled where it
    is not cached, or where the folder cannot be written, which is warned of.

    Raises:
        CompileError: the model cannot be read or compiled.
    """
    files = library_cache(cache)
    text = _options_text(options) if files is not None else None
    if files is None or text is None:
        return compiled()
    key = _Key.of(model, options.target, text)
    found = key.find(files)
    if found is not None:
        return found
    artifact = compiled()
    try:  # the library last: nothing that is added later removes it from a small cache
        files.add(key.listed, lambda new: new.write_text(json.dumps(artifact.files), encoding="utf-8"))
        return files.add(key.library(artifact.description.source), artifact.export)
    except CompileError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        warn_of_cache(f"the library of {model.name} is not cached: {error.message}; NNEFC_CACHE names another folder")
        return artifact


@dataclass(frozen=True)
class _Key:
    """What a library depends on.

    Which files next to the model are read follows from the contents of those before: a list of their names is kept
    for all else that a library depends on.

    Attributes:
        model: its file or folder.
        known: all but the files next to the model.
    """

    model: Path
    known: tuple[str, ...]

    @classmethod
    def of(cls, model: Path, target: str, options: str) -> _Key:
        """Returns the key of a model's library; `options` is a text.

        Raises:
            CompileError: the model cannot be read.
        """
        document = model / NNEF_DOCUMENT
        own = source_digest(document if document.is_file() else model)
        return cls(model, (compiler_state(), target, _processor(target), options, own))

    @property
    def listed(self) -> str:
        """Returns the name of the list of files."""
        return f"files-{_digest(self.known)}.json"

    def library(self, source: str) -> str:
        """Returns the name of the library, by the digest of all files."""
        name = re.sub(r"[^0-9A-Za-z_]", "_", self.model.stem)[:40]
        return f"{name}-{_digest([*self.known, source])}{_suffix()}"

    def find(self, files: FileCache) -> Path | None:
        """Returns the library; None if it is not there."""
        names = files.find(self.listed)
        if names is None:
            return None
        return files.find(self.library(source_digest(self.model, json.loads(names.read_text(encoding="utf-8")))))


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


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def _options_text(options: CompileOptions) -> str | None:
    """Returns a text that identifies the options; None where they do not determine the library."""
    watched = options.debug != DebugOptions() or options.passes or options.observers
    if watched or options.read.operators or _has_custom_operators():
        return None
    given = given_values(options.read) | given_values(options.code) | given_values(options.precision)
    try:
        for name in ("calibrate", "tokenizer"):
            if isinstance(given.get(name), str | os.PathLike):
                given[name] = np.fromfile(given[name], np.uint8)
        return _text(given)
    except (OSError, TypeError):  # the compiler says what is wrong
        return None


def _has_custom_operators() -> bool:
    """Returns whether the program has registered operators."""
    return any(map(custom_operators, FORMATS))


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
