"""Arranges the rows of a tile in pairs, and loads the dot operands of both rows of a pair as one vector (64-bit Arm).

    memory                     load    rows          registers: of which rows each has eight bytes
    rows of 16 bytes           ld4     r … r + 3     r, r + 2    r, r + 2    r + 1, r + 3    r + 1, r + 3
                               ld2     r, r + 1      r, r + 1    r, r + 1
    one row of 16 bytes        ld2r    r             r, r        r, r
    rows of 8 bytes            ld1     r, r + 1      r, r + 1
    one row of 8 bytes         ld1r    r             r, r

Of two registers with the same rows the first one has their first eight bytes. So rows that follow each other in memory
are loaded in the order in which `smmla` reads them. Rows elsewhere are loaded one by one, and interleaved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["LOADS", "PREFIX", "LoadedPairs", "RowPair", "pairs_in_memory", "pairs_of"]

PREFIX = "nnefc_pairs_"
"""The prefix of function names for pairs of rows; a load's name goes on with its instruction, `_`, and the register."""


@dataclass(frozen=True)
class LoadedPairs:
    """An instruction that loads pairs of rows.

    Attributes:
        rows: how many it loads.
        registers: that it loads, each with eight bytes of two rows; a row that is loaded alone stands for two.
        steps: of the sum that it loads, each of eight bytes of a row.
    """

    rows: int
    registers: int
    steps: int


LOADS = {
    "ld4": LoadedPairs(4, 4, 2),
    "ld2": LoadedPairs(2, 2, 2),
    "ld2r": LoadedPairs(1, 2, 2),
    "ld1": LoadedPairs(2, 1, 1),
    "ld1r": LoadedPairs(1, 1, 1),
}
"""Load instructions by name; those that load more rows come first."""


@dataclass(frozen=True)
class RowPair:
    """Two rows of a tile, or the last one alone.

    Attributes:
        rows: their numbers.
        load: the instruction that loads them; "" where they do not follow each other in memory.
        begin: the first row that it loads.
        register: of those that it loads, the one of the first step; others follow.
    """

    rows: tuple[int, ...]
    load: str = ""
    begin: int = 0
    register: int = 0


def pairs_of(rows: int) -> list[RowPair]:
    """Returns pairs of rows at any addresses."""
    return [RowPair(tuple(range(row, min(row + 2, rows)))) for row in range(0, rows, 2)]


def pairs_in_memory(rows: int, steps: int) -> list[RowPair]:
    """Returns pairs of rows that follow each other in memory, for this number of steps of eight bytes of a row."""
    return list(_loaded(rows, steps))


def _loaded(rows: int, steps: int) -> Iterator[RowPair]:
    begin = 0
    while begin < rows:
        load, found = next((n, f) for n, f in LOADS.items() if f.steps == steps and f.rows <= rows - begin)
        apart = found.registers // found.steps
        for first in range(apart):
            own = range(begin + first, begin + found.rows, apart)
            yield RowPair(tuple(own), load, begin, first * steps)
        begin += found.rows
    assert begin == rows
