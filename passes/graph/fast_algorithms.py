"""Algorithms that are faster and need larger constants, Winograd's and Strassen's: what a budget of memory allows.

    convolution by Winograd's     4 times its filter           saves a million cycles      taken
    convolution by Winograd's     4 times another filter       saves as many               not taken: twice as large
    product by quarters           7/4 of its constant factor   saves half a million        taken

Which ones save most together, and add no more than so many bytes, is a knapsack problem, solved exactly but for the
rounding of sizes. More memory never saves less time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Candidate", "FastAlgorithms", "most_saving"]

_UNITS = 4096  # that all sizes together are rounded to


@dataclass(frozen=True)
class Candidate:
    """A constant that a faster algorithm would read in another form.

    Attributes:
        constant: address of its items, as the network has it.
        saved: cycles of a run, by all computations that read it.
        added: bytes.
    """

    constant: int
    saved: float
    added: int


@dataclass(frozen=True)
class FastAlgorithms:
    """The constants that are read by faster algorithms, by the addresses of their items; none by default."""

    constants: frozenset[int] = frozenset()

    def take(self, constant: np.ndarray) -> bool:
        """Whether the algorithm that reads this constant, or a view of it from its first item on, is the faster one."""
        return constant.ctypes.data in self.constants


def most_saving(candidates: Sequence[Candidate], allowance: float) -> list[Candidate]:
    """Those of `candidates` that save most together, and add at most `allowance` bytes."""
    total = sum(candidate.added for candidate in candidates)
    if total <= allowance:
        return list(candidates)
    unit = max(1, math.ceil(total / _UNITS))
    room = int(allowance // unit)
    best = np.zeros(room + 1)  # cycles saved in so many units, by the candidates so far
    taken = np.zeros((len(candidates), room + 1), bool)
    for candidate, row in zip(candidates, taken, strict=True):
        size = math.ceil(candidate.added / unit)
        if size <= room:
            with_it = best[: room + 1 - size] + candidate.saved
            row[size:] = with_it > best[size:]
            best[size:] = np.maximum(with_it, best[size:])
    chosen = []
    for candidate, row in zip(reversed(candidates), reversed(taken), strict=True):
        if row[room]:
            chosen.append(candidate)
            room -= math.ceil(candidate.added / unit)
    return chosen[::-1]
