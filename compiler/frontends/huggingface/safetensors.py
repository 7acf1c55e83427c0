"""Reads tensors in files of safetensors: one file, or several with an index.

A file is a u64 length, as many bytes of JSON, and the data. The JSON says of each tensor its `dtype`, its `shape` and
its `data_offsets` in the data. Every number is checked before it is used.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from nnefc.frontends.decoder import StoredTensor
from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.tensor_types.floats import BF16, F16, F32, F64, FP8_E4M3, FP8_E5M2
from nnefc.frontends.tensor_types.integers import INTEGERS
from nnefc.frontends.tensor_types.tensor_type import Bytes
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import map_path

__all__ = ["INDEX", "read_json", "read_shards"]

INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_POINTER = b"version https://git-lfs"
_NUMBERED = re.compile(r".*-\d{5}-of-(\d{5})\.safetensors", re.DOTALL)
_MAX_JSON, _MAX_SHARDS, _MAX_RANK, _MAX_ELEMENTS = 64 << 20, 10_000, 8, 1 << 40
_FLOATS = {"F64": F64, "F32": F32, "F16": F16, "BF16": BF16, "F8_E4M3": FP8_E4M3, "F8_E5M2": FP8_E5M2}
_TYPES = _FLOATS | INTEGERS


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a file of JSON.

    Raises:
        CompileError: there is none, or it is too large.
    """
    try:
        if path.stat().st_size > _MAX_JSON:
            raise CompileError(f"'{path}' is too large for a file of JSON: at most {_MAX_JSON:,} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise CompileError(f"cannot read '{path}': {error.strerror or error}") from None
    return _object(content, str(path))


def _object(content: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise CompileError(f"'{name}' is not in JSON") from None
    if not isinstance(found, dict):
        raise CompileError(f"'{name}' is not an object in JSON")
    return found


def read_shards(folder: Path) -> tuple[dict[str, StoredTensor], tuple[str, ...]]:
    """Returns the tensors of a folder, which are mapped, and the names of their files.

    Raises:
        CompileError: a file is missing, or is not as it must be.
    """
    names, index = _names(folder), {}
    if (folder / INDEX).is_file() and names != [_SINGLE]:
        index = _index(folder)
        names = sorted(set(index.values()))
    numbered = [int(found[1]) for name in names if (found := _NUMBERED.fullmatch(name))]
    if any(count > len(numbered) for count in numbered):
        raise CompileError(f"'{folder}' has {len(numbered)} of {max(numbered):,} files of safetensors, by their names")
    if not names:
        raise CompileError(
            f"'{folder}' has a config.json, but no file of safetensors",
            hint="save the model again: model.save_pretrained(FOLDER, safe_serialization=True)",
        )
    tensors: dict[str, StoredTensor] = {}
    for name in names:
        for label, tensor in _read(folder / name).items():
            if label in tensors:
                raise CompileError(f"'{folder}': the tensor '{shown(label)}' is in two files")
            tensors[label] = tensor
    for label, name in index.items():
        if label not in tensors:
            raise CompileError(f"'{folder / name}' has no tensor '{shown(label)}', which '{INDEX}' says")
    return tensors, tuple(names)


def _names(folder: Path) -> list[str]:
    """The files of a folder without an index."""
    if (folder / _SINGLE).is_file():
        return [_SINGLE]
    return sorted(path.name for path in folder.glob("*.safetensors"))


def _index(folder: Path) -> dict[str, str]:
    """The file of each tensor; files are in the folder itself."""
    found = read_json(folder / INDEX).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise CompileError(f"'{folder / INDEX}' has no object 'weight_map' of file names")
    names = set(found.values())
    if len(names) > _MAX_SHARDS:
        raise CompileError(f"'{folder / INDEX}' names {len(names):,} files, more than {_MAX_SHARDS:,}")
    for name in sorted(names):
        if "/" in name or "\\" in name or "\0" in name or not name.endswith(".safetensors"):
            raise CompileError(
                f"'{folder / INDEX}' names '{shown(name)}', which is no file of safetensors in the folder"
            )
    return found


def _read(path: Path) -> dict[str, StoredTensor]:
    try:
        data = map_path(path) if path.stat().st_size else np.empty(0, np.uint8)
    except OSError as error:
        raise CompileError(f"cannot read '{path}': {error.strerror or error}") from None
    if data[: len(_POINTER)].tobytes() == _POINTER:
        raise CompileError(f"'{path}' is a pointer of Git LFS's in place of the file", hint="fetch it: git lfs pull")
    size = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or size > min(_MAX_JSON, len(data) - 8):
        raise CompileError(f"'{path}' is not a valid file of safetensors: its header of {size:,} bytes is not there")
    header = _object(data[8 : 8 + size].tobytes(), f"{path} (header)")
    header.pop("__metadata__", None)
    tensors, ends = {}, []
    for label, entry in header.items():
        tensors[label], span = _tensor(path, label, entry, data[8 + size :])
        ends.append((*span, label))
    end, before = 0, ""
    for start, stop, label in sorted(ends):
        if start < end:
            raise CompileError(f"'{path}': the tensor '{shown(label)}' overlaps the tensor '{shown(before)}'")
        end, before = stop, label
    return tensors


def _tensor(path: Path, label: str, entry: Any, data: Bytes) -> tuple[StoredTensor, tuple[int, int]]:
    """Returns a tensor as a view of the data, and where that is."""

    def refused(reason: str) -> CompileError:
        return CompileError(f"'{path}': the tensor '{shown(label)}' {reason}")

    if not isinstance(entry, Mapping):
        raise refused("is no object in the header")
    shape, offsets, kind = entry.get("shape"), entry.get("data_offsets"), entry.get("dtype")
    if not _are_sizes(shape) or len(shape) > _MAX_RANK or math.prod(shape) > _MAX_ELEMENTS:
        raise refused(f"has no shape: {shown(shape)}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise refused(f"has no two offsets: {shown(offsets)}")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise refused(f"has elements of the type {shown(kind)}, which is not supported")
    start, stop = offsets
    if not 0 <= start <= stop <= len(data):
        raise refused(f"lies at {start:,} to {stop:,}, beyond the {len(data):,} bytes of data")
    if stop - start != _TYPES[kind].data_bytes(tuple(shape)):
        raise refused(f"of the shape {shape} has {stop - start:,} bytes, not {_TYPES[kind].data_bytes(tuple(shape)):,}")
    return StoredTensor(_TYPES[kind], tuple(shape), data[start:stop]), (start, stop)


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _MAX_ELEMENTS for size in value
    )
