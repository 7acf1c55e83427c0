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

TYPES = {  # nnefc_type → the name of the element type, NumPy's dtype
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
    """A library that cannot be loaded on this machine. The message says why, and what to do."""


class RunError(RuntimeError):
    """A run that fails: arrays that do not fit the model, a closed model, a failure of the network's code."""


class RunCancelled(RunError):
    """A run that another thread has ended with :meth:`Model.cancel`."""


class RunTimedOut(RunError, TimeoutError):
    """A run that has taken longer than :meth:`Model.set_time_limit` allows."""


@dataclass(frozen=True)
class StateMemory:
    """The machine's memory that a session's states take, in bytes.

    Attributes:
        own: pages of one sequence each.
        shared: pages that several sequences share, those of other sessions included; each page once.
        mapped: shared pages, once for each sequence of the session that has them.
    """

    own: int
    shared: int
    mapped: int


@dataclass(frozen=True)
class Dimension:
    """A dynamic dimension of a network.

    Attributes:
        name: of the dimension.
        minimum, maximum: bounds of its size.
        multiple: a number that divides each size.
        size_hint: the size for which the code is optimized.
    """

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
    """The description of an input, output or state.

    Attributes:
        name: of the tensor.
        dtype: the element type: NumPy's name, "bfloat16" or "string".
        shape: sizes; the name of a dynamic dimension; "?" for a data-dependent size.
    """

    name: str
    dtype: str
    shape: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a NumPy array for the tensor, without the texts of strings; all sizes must be known."""
        return int(math.prod(self.shape)) * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


MAX_LISTED = 8
MAX_COMPARED = 100
"""Characters of names that are compared to suggest a similar name: the time is quadratic in them."""


def listed(tensors: Sequence[object]) -> str:
    """Format tensors in one line, at most :data:`MAX_LISTED` of them."""
    if len(tensors) > MAX_LISTED + 1:
        return f"{listed(tensors[:MAX_LISTED])} and {len(tensors) - MAX_LISTED} more"
    return ", ".join(map(str, tensors)) or "none"


def check_names(role: str, given: Mapping[str, Any], tensors: tuple[Tensor, ...], *, complete: bool) -> None:
    """Check the names of arrays against tensors of the model.

    Args:
        role: "input" or "output", for messages.
        given: arrays by name.
        tensors: of the model.
        complete: whether an array must be given for each tensor.

    Raises:
        RunError: a name is unknown, or missing.
    """
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
