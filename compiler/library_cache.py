"""Libraries that are kept in a folder, so that the same model is compiled once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from nnefc.artifact import compiler_version
from nnefc.diagnostics import CompileError
from nnefc.driver import compile as compile_model
from nnefc.formats import format_of
from nnefc.frontends.onnx.reading import read_proto
from nnefc.loader import Model
from nnefc.loader import load as load_library
from nnefc.provenance import source_digest
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["cached_library", "load_model"]

_FOLDER_VARIABLE = "NNEFC_CACHE"

_DIGITS = 32
"""Of the digest that a library is named by."""


def load_model(
    model: str | os.PathLike[str],
    target: str,
    options: Mapping[str, Any],
    cache: str | os.PathLike[str] | None,
    **load: Any,
) -> Model:
    """Compile a model and load its library.

    Args:
        model, target, options: as of `nnefc.compile`.
        cache: a folder that keeps libraries; None: the one that the environment variable NNEFC_CACHE names, or none.
        load: options of `nnefc.load`.
    """
    folder = cache or os.environ.get(_FOLDER_VARIABLE)
    if not folder:
        return compile_model(model, target, **options).load(**load)
    return load_library(cached_library(model, target, options, folder), **load)


def cached_library(
    model: str | os.PathLike[str], target: str, options: Mapping[str, Any], folder: str | os.PathLike[str]
) -> Path:
    """The library of a model, compiled if the folder does not have it.

    It is known again by the contents of the model's files, the target with its features, the options and the version of
    the compiler. Processes may share a folder: libraries are written whole or not at all. Nothing is ever removed.

    Args:
        model, target, options: as of `nnefc.compile`.
        folder: made if it is not there.

    Raises:
        CompileError: the model cannot be read or compiled, or the folder cannot be written.
    """
    path, machine = Path(model), parse_any_target(target)
    said = [compiler_version(), repr(machine), repr(sorted(options.items())), source_digest(path, _beside(path))]
    name = hashlib.sha256("\n".join(said).encode()).hexdigest()[:_DIGITS]
    library = Path(folder) / f"{path.stem[:40]}-{name}{machine.format.suffix}"
    if not library.exists():
        try:
            library.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CompileError(f"cannot write to {folder}: {error.strerror}") from error
        compile_model(path, target, **options).export(library)
    return library


def _beside(path: Path) -> set[str]:
    """The files with constants that an ONNX model refers to; the compiler refuses those that are not in its folder."""
    if path.is_dir() or format_of(path).name != "ONNX":
        return set()
    names = {ExternalDataInfo(tensor).location for tensor in _tensors(read_proto(path).graph)}
    inside = {name for name in names if not Path(name).is_absolute() and ".." not in Path(name).parts}
    return {name for name in inside if (path.parent / name).is_file()}


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The trained values in other files, of the graph and of those in its attributes."""
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    values = [*graph.initializer, *(attribute.t for attribute in attributes)]
    yield from (tensor for tensor in values if uses_external_data(tensor))
    for attribute in attributes:
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)
