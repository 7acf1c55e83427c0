"""Caches compiled libraries in a folder, so that a model is compiled once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.driver.artifact import Artifact, compiler_version
from nnefc.driver.compile import compile_model
from nnefc.driver.option_fields import given_values
from nnefc.driver.options import CompileOptions, DebugOptions
from nnefc.driver.progress import Progress
from nnefc.driver.provenance import source_digest
from nnefc.frontends.nnef.files.archive import DOCUMENT
from nnefc.loader import Model
from nnefc.loader import load as load_library
from nnefc.operators.custom import FORMATS, custom_operators
from nnefc.support.output_files import write_error, write_together
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["load_model"]

_FOLDER_VARIABLE = "NNEFC_CACHE"

_DIGITS = 32
"""Of the digest that a library is named by."""


def load_model(
    model: str | os.PathLike[str],
    options: CompileOptions,
    cache: str | os.PathLike[str] | None,
    progress: Progress | None = None,
    **load: Any,
) -> Model:
    """Compiles a model and loads its library.

    Libraries are not kept where the program is dumped, where there are custom operators, whose code may be anywhere, or
    where options have values of unknown types.

    Args:
        model: as of `nnefc.compile`.
        options: how it is compiled.
        progress: called at the beginning and end of every phase.
        cache: a folder that keeps libraries; None: the one that the environment variable NNEFC_CACHE names, or none.
        load: options of `nnefc.load`.
    """
    folder = cache or os.environ.get(_FOLDER_VARIABLE)
    said = _said(options) if folder else None
    compiled = partial(compile_model, model, options, progress)
    if not folder or said is None:
        return compiled().load(**load)
    return load_library(_cached_library(Path(model), options.target, compiled, said, Path(folder)), **load)


def _cached_library(model: Path, target: str, compiled: Callable[[], Artifact], said: str, folder: Path) -> Path:
    """Returns the library of a model from the folder, and compiles it if it is not there.

    It is known again by the contents of the model's files, the target with its features, the options, as `said`, and
    the version of the compiler. Which files next to the model are read follows from the contents of those before: a
    list of their names is kept for what else is known. Processes may share a folder: files are written whole or not at
    all. Nothing is ever removed.

    Raises:
        CompileError: the model cannot be read or compiled, or the folder cannot be written.
    """
    machine = parse_any_target(target)
    document = model / DOCUMENT
    known = [compiler_version(), repr(machine), said, source_digest(document if document.is_file() else model)]
    listed = folder / f"files-{_digest(known)}.json"

    def library(source: str) -> Path:
        return folder / f"{model.stem[:40]}-{_digest([*known, source])}{machine.format.suffix}"

    if listed.exists():
        found = library(source_digest(model, json.loads(listed.read_text(encoding="utf-8"))))
        if found.exists():
            return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    artifact = compiled()
    made = library(artifact.description.source)
    artifact.export(made)
    write_together(folder, lambda new: (new / listed.name).write_text(json.dumps(artifact.files), encoding="utf-8"))
    return made


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def _said(options: CompileOptions) -> str | None:
    """Returns a text that identifies the options; None where they do not determine the library."""
    watched = options.debug != DebugOptions() or options.passes or options.observers
    if watched or options.read.operators or any(map(custom_operators, FORMATS)):
        return None
    given = given_values(options.read) | given_values(options.code) | given_values(options.precision)
    calibrate = given.get("calibrate")
    try:
        if isinstance(calibrate, str | os.PathLike):
            given["calibrate"] = np.fromfile(calibrate, np.uint8)
        return _text(given)
    except (OSError, TypeError):  # the compiler says what is wrong
        return None


def _text(value: Any) -> str:
    """A value as text.

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
