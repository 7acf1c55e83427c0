"""Selects the convolutions and products that use Winograd's or Strassen's algorithm within a budget of constant memory.

    convolution in tiles of 4 × 4     4 times its filter           saves a million cycles      not taken
    the same in tiles of 2 × 2        16/9 of its filter           saves most of them          taken
    convolution in tiles of 4 × 4     4 times a smaller filter     saves as many               taken
    product by Strassen's algorithm   7/4 of its constant factor   saves half a million        taken

Which ones save most together, one for each constant, and add no more than so many bytes, is a multiple-choice knapsack
problem, solved exactly but for the rounding of sizes. More memory never saves less time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nnefc.passes.compute.winograd import Tile

__all__ = ["Candidate", "FastAlgorithms", "best_saving"]

_UNITS = 4096  # that all sizes together are rounded to


@dataclass(frozen=True)
class Candidate:
    """One form of a constant, as a faster algorithm would read it.

    Attributes:
        constant: address of its elements, as the network has it.
        tile: results that Winograd's algorithm computes together; None for Strassen's.
        saved: cycles of a run, by all computations that read it.
        added: bytes.
        narrow: whether the products are those of 16-bit floats.
    """

    constant: int
    tile: Tile | None
    saved: float
    added: int
    narrow: bool = False


@dataclass(frozen=True)
class FastAlgorithms:
    """The constants that are read by faster algorithms, by the addresses of their elements; none by default.

    Questions are about such a constant, or a view of it from its first element on.

    Attributes:
        tiles: of Winograd's algorithm, for filters.
        strassen: factors of products by Strassen's.
        narrow: filters whose products are those of 16-bit floats, by Winograd's.
    """

    tiles: Mapping[int, Tile] = field(default_factory=dict)
    strassen: frozenset[int] = frozenset()
    narrow: frozenset[int] = frozenset()

    @classmethod
    def of(cls, chosen: Iterable[Candidate]) -> FastAlgorithms:
        """Returns the selection of these candidates, one for each constant."""
        found = list(chosen)
        return cls(
            {candidate.constant: candidate.tile for candidate in found if candidate.tile is not None},
            frozenset(candidate.constant for candidate in found if candidate.tile is None),
            frozenset(candidate.constant for candidate in found if candidate.narrow),
        )

    def tile(self, constant: np.ndarray) -> Tile | None:
        """Returns the tile of Winograd's algorithm, if that is the faster one for this filter."""
        return self.tiles.get(constant.ctypes.data)

    def narrows(self, constant: np.ndarray) -> bool:
        """Whether Winograd's algorithm multiplies 16-bit floats with this filter."""
        return constant.ctypes.data in self.narrow

    def by_strassen(self, constant: np.ndarray) -> bool:
        """Whether Strassen's algorithm is the faster one for products with this factor."""
        return constant.ctypes.data in self.strassen


def best_saving(candidates: Sequence[Candidate], allowance: float) -> list[Candidate]:
    """Selects the candidates, at most one per constant, that save most and add at most `allowance` bytes."""
    by_constant: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        by_constant.setdefault(candidate.constant, []).append(candidate)
    groups = list(by_constant.values())  # in the network's order: addresses differ from one compilation to the next
    best_of_each = [max(group, key=lambda candidate: (candidate.saved, -candidate.added)) for group in groups]
    total = sum(candidate.added for candidate in best_of_each)
    if total <= allowance:
        return best_of_each
    unit = max(1, math.ceil(total / _UNITS))
    room = int(allowance // unit)
    best = np.zeros(room + 1)  # cycles saved in so many units, by the constants so far
    taken = np.full((len(groups), room + 1), -1, np.int8)  # which candidate of the group
    for group, row in zip(groups, taken, strict=True):
        without = best.copy()
        for number, candidate in enumerate(group):
            size = math.ceil(candidate.added / unit)
            if size <= room:
                with_it = without[: room + 1 - size] + candidate.saved
                row[size:][with_it > best[size:]] = number
                best[size:] = np.maximum(with_it, best[size:])
    chosen = []
    for group, row in zip(reversed(groups), reversed(taken), strict=True):
        if row[room] >= 0:
            candidate = group[row[room]]
            chosen.append(candidate)
            room -= math.ceil(candidate.added / unit)
    return chosen[::-1]
