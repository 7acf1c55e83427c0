"""Describes tensors by name, element type and shape, and defines the loader's errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "DTYPES",
    "MAX_LISTED",
    "TYPES",
    "Dimension",
    "LoadError",
    "RunCancelled",
    "RunError",
    "RunTimedOut",
    "StateMemory",
    "Tensor",
    "check_names",
    "listed",
]

TYPES = {  # nnefc_type → the name of the element type, NumPy's type for it
    1: ("bool", np.dtype(np.bool_)),
    2: ("int8", np.dtype(np.int8)),
    3: ("int16", np.dtype(np.int16)),
    4: ("int32", np.dtype(np.int32)),
    5: ("int64", np.dtype(np.int64)),
    6: ("uint8", np.dtype(np.uint8)),
    7: ("uint16", np.dtype(np.uint16)),
    8: ("uint32", np.dtype(np.uint32)),
    9: ("uint64", np.dtype(np.uint64)),
    10: ("float16", np.dtype(np.float16)),
    11: ("bfloat16", np.dtype(np.uint16)),
    12: ("float32", np.dtype(np.float32)),
    13: ("float64", np.dtype(np.float64)),
    14: ("string", np.dtype(np.object_)),
}

DTYPES = dict(TYPES.values())


class LoadError(Exception):
    """A library that cannot be loaded here. The message says why, and what to do."""


class RunError(RuntimeError):
    """A run that fails: arrays that do not fit the model, a closed model, a failure of the network's code."""


class RunCancelled(RunError):
    """A run that another thread has ended with :meth:`Model.cancel`."""


class RunTimedOut(RunError, TimeoutError):
    """A run that has taken longer than :meth:`Model.set_time_limit` allows."""


@dataclass(frozen=True)
class StateMemory:
    """What the states of a session take of the machine's memory, in bytes.

    Attributes:
        own: pages that belong to one sequence.
        shared: pages that several sequences have in common, also of other sessions, each once.
        mapped: the same pages, once for each sequence of the session that has them.
    """

    own: int
    shared: int
    mapped: int


@dataclass(frozen=True)
class Dimension:
    """A dynamic dimension: its name, its min and max, the number that divides it, and a size hint."""

    name: str
    minimum: int
    maximum: int
    multiple: int
    size_hint: int

    @property
    def least(self) -> int:
        """Deprecated name of :attr:`minimum`."""
        return self.minimum

    @property
    def most(self) -> int:
        """Deprecated name of :attr:`maximum`."""
        return self.maximum

    @property
    def typical(self) -> int:
        """Deprecated name of :attr:`size_hint`."""
        return self.size_hint

    def __str__(self) -> str:
        of = f" in steps of {self.multiple}" if self.multiple > 1 else ""
        return f"{self.name}: {self.minimum} to {self.maximum}{of}"


@dataclass(frozen=True)
class Tensor:
    """An input, output or state: its name, its element type (NumPy's name, or bfloat16) and its shape."""

    name: str
    dtype: str
    shape: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of its elements as NumPy holds them, where all sizes are known, without the texts of strings."""
        return int(math.prod(self.shape)) * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


MAX_LISTED = 8
MAX_COMPARED = 100
"""Characters of names that are looked at for one that was meant: the time grows with their square."""


def listed(tensors: Sequence[object]) -> str:
    """Formats tensors in one line, or as many of them as fit."""
    if len(tensors) > MAX_LISTED + 1:
        return f"{listed(tensors[:MAX_LISTED])} and {len(tensors) - MAX_LISTED} more"
    return ", ".join(map(str, tensors)) or "none"


def check_names(role: str, given: Mapping[str, Any], tensors: tuple[Tensor, ...], *, complete: bool) -> None:
    names = [tensor.name for tensor in tensors]
    if list(given) == names:
        return
    unknown = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if unknown:
        from difflib import get_close_matches

        beginnings = {name[:MAX_COMPARED]: name for name in missing}
        close = get_close_matches(str(unknown[0])[:MAX_COMPARED], beginnings, 1)
        end = f': did you mean "{beginnings[close[0]]}"? Its' if close else "; its"
        raise RunError(f'the model has no {role} "{unknown[0]}"{end} {role}s are {listed(tensors)}')
    if complete and missing:
        raise RunError(f'{role} "{missing[0]}" is missing; the {role}s are {listed(tensors)}')
