"""Reads a model of which GGUF has several files, and applies scales that it has in tensors of their own.

Files `NAME-00001-of-00003.gguf` have some of the tensors each, and the first one the metadata. A tensor `X.scale` is a
factor of `X.weight`, or has one for each of its experts: NVFP4 in files from ModelOpt's and compressed-tensors' models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nnefc.frontends.decoder import StoredTensor
from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.gguf.container import Container, read_container
from nnefc.support.diagnostics import CompileError

__all__ = ["read_files", "with_factors"]

_COUNT, _NUMBER, _TENSORS = "split.count", "split.no", "split.tensors.count"
_NAME = re.compile(r"(?P<name>.*)-\d{5}-of-\d{5}\.gguf", re.DOTALL)
_MAX_FILES = 10_000


def read_files(path: Path) -> tuple[Container, tuple[str, ...]]:
    """Reads all files of the model that a file belongs to.

    Returns:
        The metadata of the first and the tensors of all; and the names of the others.

    Raises:
        CompileError: a file is missing, or is not as it must be.
    """
    found = read_container(path)
    count = found.metadata.get(_COUNT, 1)
    if not isinstance(count, int) or not 0 <= count <= _MAX_FILES:
        raise CompileError(f"'{path}': the key '{_COUNT}' is {shown(count)}, where at most {_MAX_FILES:,} can be")
    if count < 2:
        return found, ()
    named = _NAME.fullmatch(path.name)
    if named is None:
        name = f"NAME-00001-of-{count:05}.gguf"
        raise CompileError(f"'{path}' is one of {count} files of a model: their names must be as {name}")
    names = [f"{named['name']}-{n + 1:05}-of-{count:05}.gguf" for n in range(count)]
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise CompileError(
            f"'{path}' is one of {count} files of a model: '{missing[0]}' is not next to it",
            hint="fetch all of them into one folder",
        )
    files = [found if name == path.name else read_container(path.parent / name) for name in names]
    return _joined(files), tuple(name for name in names if name != path.name)


def _joined(files: list[Container]) -> Container:
    tensors: dict[str, StoredTensor] = {}
    for n, file in enumerate(files):
        if (file.metadata.get(_COUNT), file.metadata.get(_NUMBER)) != (len(files), n):
            raise CompileError(f"'{file.path}' is not number {n} of {len(files)} files, as its name says")
        for name, tensor in file.tensors.items():
            if name in tensors:
                raise CompileError(f"'{file.path}': the tensor '{shown(name)}' is in two files")
            tensors[name] = tensor
    first = files[0]
    if first.metadata.get(_TENSORS, len(tensors)) != len(tensors):
        raise CompileError(
            f"'{first.path}' is the first of files with {shown(first.metadata[_TENSORS])} tensors, not {len(tensors)}"
        )
    return Container(first.path, first.metadata, tensors)


def with_factors(tensors: Mapping[str, StoredTensor], path: Path) -> dict[str, StoredTensor]:
    """Returns the tensors, those with a scale of their own multiplied by it; scales of activations are left out.

    Raises:
        CompileError: a scale has another number of elements than its tensor needs.
    """
    found = dict(tensors)
    for name in tensors:
        label, _, kind = name.rpartition(".")
        weight = found.get(f"{label}.weight")
        if weight is None or kind not in ("scale", "input_scale"):
            continue
        factors = found.pop(name)
        if kind == "scale":
            if factors.shape not in ((1,), (weight.shape[0],) * (len(weight.shape) == 3)):
                raise CompileError(
                    f"'{path}': the tensor '{shown(name)}' has the shape {list(factors.shape)}, where the matrix has "
                    f"{list(weight.shape)}"
                )
            found[f"{label}.weight"] = replace(weight, factors=factors.value_as_floats())
    return found
