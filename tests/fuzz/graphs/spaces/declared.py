"""How attribute spaces are declared, and what their entries choose with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from steps import Rejected
from walk import Tensor, Walk

__all__ = ["ANY", "BOOL", "I32", "I64", "INTEGERS", "SPACES", "F", "axes_of", "axis_of", "some", "space"]

Space = Callable[[Walk], object]
SPACES: dict[str, Space] = {}

F, I64, I32, BOOL = np.float32, np.int64, np.int32, np.bool_
INTEGERS = (I64, I32, np.int8, np.uint8)
ANY = (F, F, F, *INTEGERS, BOOL)


def space(*names: str) -> Callable[[Callable[[Walk, str], object]], Callable[[Walk, str], object]]:
    """Declare how nodes of these operators are made, by a function of the walk and the operator's name."""

    def declare(make: Callable[[Walk, str], object]) -> Callable[[Walk, str], object]:
        for name in names:
            SPACES[name] = lambda walk, name=name: make(walk, name)  # type: ignore[misc]
        return make

    return declare


def some(w: Walk, **choices: Any) -> dict[str, Any]:
    """Some of the attributes, the others left at their defaults."""
    return {name: value for name, value in choices.items() if w.chance(0.6)}


def axis_of(w: Walk, t: Tensor, extra: int = 0) -> int:
    """An axis of a tensor, from the front or from the back."""
    rank = t.array.ndim + extra
    if not rank:
        raise Rejected("a scalar has no axes")
    return w.number(-rank, rank - 1)


def axes_of(w: Walk, t: Tensor) -> list[int]:
    """Several axes of a tensor, each once."""
    rank = t.array.ndim
    if not rank:
        raise Rejected("a scalar has no axes")
    chosen = w.rng.permutation(rank)[: w.number(1, rank)]
    return [int(axis) - rank * w.chance(0.3) for axis in chosen]
