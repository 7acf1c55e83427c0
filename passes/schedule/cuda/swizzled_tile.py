"""Lays an operand's tile out in shared memory without padding: vectors of 16 bytes are permuted within their row.

    tile of 64 depths, copied along depths     tile of 64 positions or more, copied along positions
    row: a position, 8 vectors of depths       row: a depth, 8 vectors of 64 neighbouring positions

A row of 128 bytes fills all banks. Vector v of row r is stored at vector v xor (r mod 8), so that vector v of eight
rows, which `ldmatrix` and `wgmma` read at once, falls into all banks too, as do the eight vectors of one row, which a
warp copies at once. Tiles whose length is no multiple of eight vectors have rows of four or two vectors; then two or
four rows fill the banks, and the number of the row is divided by as many. These are the swizzles of 128, 64 and 32
bytes of the PTX ISA ("Asynchronous Warpgroup Level Matrix Shared Memory Layout").
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from nnefc.passes.schedule.gpu.contractions.operand_tile import OperandTile
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.gpu.description import LOAD_BYTES, SHARED_BYTES_PER_CYCLE

__all__ = ["RowLayout", "RowTile", "SwizzledLayout", "SwizzledTile"]

_BANKS = SHARED_BYTES_PER_CYCLE // LOAD_BYTES  # vectors that shared memory gives at once


@dataclass(frozen=True)
class SwizzledLayout:
    """The layout of a tile of vectors of 16 bytes, in rows of eight, four or two of them, one group behind the other.

    Attributes:
        positions, depths: of the tile.
        lanes: elements of a vector.
        along_depth: whether these are at one position, rather than at one depth.
    """

    positions: int
    depths: int
    lanes: int
    along_depth: bool

    @property
    def size(self) -> int:
        """Elements of shared memory."""
        return self.positions * self.depths

    @property
    def row_vectors(self) -> int:
        """Returns the vectors of a row."""
        length = (self.depths if self.along_depth else self.positions) // self.lanes
        return next(count for count in (_BANKS, _BANKS // 2, _BANKS // 4) if length % count == 0)

    @property
    def name(self) -> str:
        """Returns a name of what a matrix instruction must know of the layout."""
        if self.along_depth:
            return f"depths{self.depths}"
        return f"positions{self.row_vectors * self.lanes}x{self.depths}"

    @property
    def leading_bytes(self) -> int:
        """Returns the distance between groups of positions; a vector where a row has all depths, and there are none."""
        return LOAD_BYTES * (1 if self.along_depth else self.depths * self.row_vectors)

    @property
    def stride_bytes(self) -> int:
        """Returns the distance between groups of eight rows."""
        return LOAD_BYTES * 8 * self.row_vectors

    def at(self, position: tirx.Expr, depth: tirx.Expr) -> tirx.Expr:
        """Returns the offset in shared memory of the vector that begins at a position and a depth."""
        row, along, rows = (position, depth, self.positions) if self.along_depth else (depth, position, self.depths)
        column, group = _divided(tirx.floordiv(along, number(self.lanes)), self.row_vectors)
        key, _ = _divided(tirx.floordiv(row, number(_BANKS // self.row_vectors)), self.row_vectors)
        vector = (group * number(rows) + row) * number(self.row_vectors) + tirx.bitwise_xor(column, key)
        return vector * number(self.lanes)

    def rows_at(self, position: tirx.Expr, depth: int) -> tirx.Expr:
        """Returns the offset from which a matrix instruction counts rows: of a group of positions, and a depth."""
        length = 1 if self.along_depth else self.row_vectors * self.lanes
        return position * number(self.depths) + number(depth * length)


@dataclass(frozen=True)
class RowLayout(SwizzledLayout):
    """The layout of a tile along depths whose rows have some of them: rows of all positions, then of the next depths.

    Where a row is a single vector, eight positions fill the banks, and no swizzle is needed.

    Attributes:
        row_depths: of a row.
    """

    row_depths: int

    @property
    def row_vectors(self) -> int:
        """Returns the vectors of a row."""
        return self.row_depths // self.lanes

    @property
    def name(self) -> str:
        """Returns a name of what a matrix instruction must know of the layout."""
        return f"vectors{self.positions}" if self.row_vectors == 1 else f"rows{self.row_depths}"

    @property
    def leading_bytes(self) -> int:
        """Returns the distance between a position's vectors, of those that an instruction reads."""
        return LOAD_BYTES * (self.positions if self.row_vectors == 1 else 1)

    def rows_at(self, position: tirx.Expr, depth: int) -> tirx.Expr:
        """Returns the offset from which a matrix instruction counts rows: of a position, and a multiple of lanes."""
        group, within = divmod(depth, self.row_depths)
        return position * number(self.row_depths) + number(group * self.positions * self.row_depths + within)


@dataclass(frozen=True)
class SwizzledTile(SwizzledLayout, OperandTile):
    """An operand's tile in a swizzled layout, distributed among the threads of a block."""

    @property
    def slots(self) -> int:
        """Positions that one thread copies to: one where it copies along positions and threads divide evenly."""
        period = _BANKS * self.positions // (self.lanes * self.row_vectors)  # threads from a position to its next depth
        return 1 if not self.along_depth and self.threads % period == 0 else self.vectors

    def position(self, thread: tirx.Expr, vector: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
        """Returns position and depth in the tile of a thread's vector, and whether it is in the tile at all.

        Eight threads copy as many rows as fill the banks; the next eight, those of the next group of positions.
        """
        if self.along_depth:
            return super().position(thread, vector)
        element = vector * number(self.threads) + thread
        column, tail = _divided(element, self.row_vectors)
        row, tail = _divided(tail, _BANKS // self.row_vectors)
        group, tail = _divided(tail, self.positions // (self.lanes * self.row_vectors))
        position = (group * number(self.row_vectors) + column) * number(self.lanes)
        depth = tail * number(_BANKS // self.row_vectors) + row
        return position, depth, element < number(self.size // self.lanes)


@dataclass(frozen=True)
class RowTile(RowLayout, SwizzledTile):
    """An operand's tile along depths whose rows have some of the depths."""


def _divided(value: tirx.Expr, divisor: int) -> tuple[tirx.Expr, tirx.Expr]:
    """Returns the remainder and the quotient."""
    return tirx.floormod(value, number(divisor)), tirx.floordiv(value, number(divisor))
