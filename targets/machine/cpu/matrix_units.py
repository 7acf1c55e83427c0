"""Lists the tile shapes of matrix units: instructions that multiply several rows by several columns.

An instruction of a new shape is a row here. Layouts, schedules and code generators ask the rows, and have no shape of
their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

__all__ = ["AMX", "ROW_PAIRS", "SME", "TILE_PRODUCTS", "MatrixUnit", "OuterProducts", "TileProduct"]


@dataclass(frozen=True)
class MatrixUnit:
    """The shapes of a unit that multiplies tiles.

    Attributes:
        rows: of a tile at most.
        lanes: columns of a tile, as many as a vector of the machine has.
        terms: dot operands of a row of a tile, at most.
        min_terms: where a row is cut, those of a part; zeros fill it.
        min_rows: with fewer, vectors do as well.
        columns: tiles of columns that are computed together with so many tiles of rows.
        smaller: rows of the tail tiles of a dynamic axis.
        block_bytes: of a pixel that are read together, at most; 0 where the blocks of vectors do.
        registers: that hold a tile each; 0 where registers of vectors do.
        cycles: from one product of two full tiles to the next.
        wide: columns, and rows of a tile with so many, which holds as many sums; none if empty. Tiles of rows that
            follow each other in memory have `rows` of so many columns, of which the sums are made one part after the
            other.
        interleaved: whether a register holds the dot operands of a column one after the other, and not those of all
            columns.
    """

    rows: int
    lanes: int
    terms: int
    min_terms: int
    min_rows: int
    columns: Mapping[int, int]
    smaller: tuple[int, ...]
    block_bytes: int = 0
    registers: int = 0
    cycles: int = 1
    wide: tuple[int, int] | tuple[()] = ()
    interleaved: bool = False

    def for_columns(self, columns: int, contiguous: bool) -> MatrixUnit:
        """Returns the unit with wide tiles, if they divide so many vectors of columns: they read fewer rows.

        Args:
            contiguous: whether rows follow each other in memory.
        """
        if not self.wide or columns % self.wide[0]:
            return self
        if contiguous:
            return replace(self, columns={1: self.wide[0]})
        smaller = tuple(rows for rows in self.smaller if rows < self.wide[1])
        return replace(self, rows=self.wide[1], columns={1: self.wide[0]}, smaller=smaller)

    def part(self, steps: int) -> int:
        """Returns into parts of how many dot operands a sum is cut; 0 if vectors do as well."""
        part = max(part for part in range(1, self.terms + 1) if steps % part == 0)
        return part if part >= max(2, min(steps, self.min_terms)) else 0


@dataclass(frozen=True)
class TileProduct:
    """Instructions that compute, in tiles, the same products as an instruction for vectors.

    Attributes:
        feature: LLVM's, that a machine with them has.
        unit: their shape.
        instructions: LLVM's names, where the left operand of the vectors' instruction has the rows, and where the right
            one has them.
    """

    feature: str
    unit: MatrixUnit
    instructions: tuple[str, str]


@dataclass(frozen=True)
class OuterProducts:
    """A unit that adds outer products of two vectors to a matrix in registers of its own.

    Attributes:
        feature: LLVM's, that a machine with it has.
        lanes: of a vector that costs are estimated for; its length is known at run time.
        product_cycles: from one outer product to the next.
        begin_cycles: to enter and leave the mode that it works in.
        moved: numbers that are packed, or stored, in a cycle.
    """

    feature: str
    lanes: int
    product_cycles: float
    begin_cycles: int
    moved: float

    def cycles(self, rows: int, steps: int, columns: int, tasks: int, reading: float) -> float:
        """Estimates the cycles of a product with so many steps of a sum, in so many calls; a factor comes from memory
        in `reading`."""
        tiles = -(-rows // self.lanes) * -(-columns // self.lanes)
        moving = rows * (steps + columns) / self.moved
        return max(tiles * steps * self.product_cycles, reading) + moving + tasks * self.begin_cycles


AMX = MatrixUnit(16, 16, 16, 6, 1, {2: 2, 1: 4}, (8, 4, 1), block_bytes=64, registers=8, cycles=16)
"""Of x86: eight registers of 16 rows of 64 bytes, and a product of two whole ones every 16 cycles (Intel)."""

ROW_PAIRS = MatrixUnit(8, 4, 2, 2, 2, {1: 2}, (4, 2, 1), wide=(4, 6), interleaved=True)
"""Of 64-bit Arm: registers of vectors hold two rows of eight bytes, of four of which a tile is made (Arm's reference
manual: SMMLA, UMMLA, BFMMLA)."""

TILE_PRODUCTS = {
    "nnefc.vdpbf16ps": TileProduct("amx-bf16", AMX, ("tdpbf16ps", "tdpbf16ps")),
    "nnefc.vpdpbusd": TileProduct("amx-int8", AMX, ("tdpbusd", "tdpbsud")),
    "nnefc.bfdot": TileProduct("bf16", ROW_PAIRS, ("bfmmla", "bfmmla")),
    "nnefc.sdot": TileProduct("i8mm", ROW_PAIRS, ("smmla", "smmla")),
    "nnefc.udot": TileProduct("i8mm", ROW_PAIRS, ("ummla", "ummla")),
}
"""By the operator of the instruction for vectors, see `passes/tir/dot/dot_instructions.py`."""

SME = OuterProducts("sme", 16, 1.0, 500, 1.0)
"""Of 64-bit Arm: matrices of 16 by 16 numbers where vectors have 512 bits, as on Apple M4, whose unit begins about one
product of float32 in a cycle (estimate from published rates of GEMM; the other numbers are estimates too)."""
