"""Networks as C source: compiled by compilers that are here, and called."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path

import numpy as np

from nnefc.driver.artifact import Artifact
from nnefc.targets.link.zig import zig

__all__ = ["CLANG", "COMPILERS", "GCC", "STRICT", "TCC", "CNetwork", "compiled", "written"]

GCC = ("gcc",) if shutil.which("gcc") else ()
CLANG = (*zig(), "cc")
TCC = ("tcc",) if shutil.which("tcc") else ()
"""A compiler that optimizes nothing, where it is installed."""
COMPILERS = tuple(command for command in (GCC, CLANG) if command)

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wdouble-promotion", "-pedantic", "-Werror")
STRICT = ("-std=c99", *WARNINGS)
"""Options with which generated code compiles without a warning."""


_NUMBERS = count()


@dataclass
class CNetwork:
    """A network that was written as C source.

    Attributes:
        artifact: what was written.
        path: the C file.
        separate: whether its trained values are in a file of their own.
        text_bytes: memory for strings that a run makes.
    """

    artifact: Artifact
    path: Path
    separate: bool = False
    text_bytes: int = 4096
    library: ctypes.CDLL | None = None

    @property
    def prefix(self) -> str:
        """What its functions begin with."""
        return self.path.stem

    @cached_property
    def arena(self) -> np.ndarray:
        """The memory of its runs, all of whose bytes are set before the first."""
        (size,) = re.findall(r"_ARENA_BYTES (\d+)", self.path.with_suffix(".h").read_text())
        return np.full(int(size) + 8, 0xA5, np.uint8)

    @cached_property
    def weights(self) -> np.ndarray:
        """The trained values in a file of their own."""
        return np.fromfile(self.path.with_suffix(".weights"), np.uint8)

    def reset(self) -> None:
        """Gives the states their first values."""
        getattr(self._loaded, f"{self.prefix}_reset")(*self._memory)

    def run(self, inputs: Mapping[str, np.ndarray], status: int = 0) -> dict[str, np.ndarray]:
        """Runs it once, which has to end with a status."""
        given = [_stored(inputs[tensor.name], tensor.dtype) for tensor in self.artifact.inputs]
        strings = [array for array in given if array.dtype.kind == "S"]
        given = [_addresses(array) if array.dtype.kind == "S" else array for array in given]
        outputs = self.artifact.description.outputs
        made = [np.zeros(t.limits or tuple(map(int, t.shape)), _STORED.get(t.dtype, t.dtype)) for t in outputs]
        shapes = [np.full(len(t.shape), -1, np.int32) for t in outputs]
        results = [
            each
            for t, array, shape in zip(outputs, made, shapes, strict=True)
            for each in (array, *[shape] * bool(t.limits))
        ]
        function = getattr(self._loaded, f"{self.prefix}_run")
        function.restype = ctypes.c_int
        assert function(*map(_address, (*given, *results)), *self._memory, *self._text_memory) == status
        if status:
            return {t.name: array for t, array in zip(outputs, made, strict=True)}
        results = [
            _of_shape(array, shape) if t.limits else array
            for t, array, shape in zip(outputs, made, shapes, strict=True)
        ]
        found = {t.name: _strings(r) if t.dtype == "string" else r for t, r in zip(outputs, results, strict=True)}
        del strings  # which those of outputs may have been
        return found

    @property
    def _text_memory(self) -> list[object]:
        """The memory for strings that a run makes, if it takes any."""
        if "text_memory_bytes" not in self.path.with_suffix(".h").read_text():
            return []
        self.texts = np.full(self.text_bytes, 0xA5, np.uint8)
        return [_address(self.texts), ctypes.c_uint32(self.text_bytes)]

    @property
    def _memory(self) -> list[ctypes.c_void_p]:
        return [_address(self.arena), *([_address(self.weights)] if self.separate else [])]

    @property
    def _loaded(self) -> ctypes.CDLL:
        assert self.library is not None
        return self.library


def _stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns elements as a network reads them: bfloat16 as its bits."""
    if dtype == "string":
        texts = [str(text).encode() for text in np.asarray(array).reshape(-1)]
        return np.array([text + b"\0" for text in texts], f"S{max(map(len, texts), default=0) + 1}").reshape(
            array.shape
        )
    if dtype != "bfloat16":
        return np.ascontiguousarray(array, dtype)
    return np.ascontiguousarray(array).view(np.uint16)


_STORED = {"bfloat16": "uint16", "string": "uintp"}
"""What tensors are stored as whose elements NumPy has no type for."""


def _addresses(strings: np.ndarray) -> np.ndarray:
    """Returns pointers to strings, which a zero byte ends."""
    first, width = strings.ctypes.data, strings.dtype.itemsize
    return np.arange(first, first + width * strings.size, width, np.uintp).reshape(strings.shape)


def _strings(pointers: np.ndarray) -> np.ndarray:
    """Returns the strings that pointers point to."""
    texts = [ctypes.string_at(int(pointer)).decode() for pointer in pointers.reshape(-1)]
    return np.array(texts, object).reshape(pointers.shape)


def _of_shape(array: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Returns the elements of a tensor of this shape, which are the first of its memory."""
    assert (shape >= 0).all() and math.prod(shape.tolist()) <= array.size
    return array.reshape(-1)[: math.prod(shape.tolist())].reshape(shape)


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def written(artifact: Artifact, path: Path, weights: str | None = None) -> CNetwork:
    """Writes a network, compiled for C source."""
    artifact.export(path, weights=weights)
    return CNetwork(artifact, path, weights == "separate")


def compiled(networks: Sequence[CNetwork], command: Sequence[str], *options: str) -> Sequence[CNetwork]:
    """Compiles several networks to one shared library, without a warning, and loads it for each."""
    library = networks[0].path.with_name(f"library{next(_NUMBERS)}.so")  # no name is loaded twice
    words = [*command, "-O1", *options, "-shared", "-fPIC", *(str(network.path) for network in networks)]
    done = subprocess.run([*words, "-lm", "-o", str(library)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    loaded = ctypes.CDLL(str(library))
    for network in networks:
        network.library = loaded
    return networks
