"""Lists the tiles of a product by tensor cores: how many rows and columns a block, and each of its warps, has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import tirx

from nnefc.passes.schedule.cuda.tiling import AnyTile
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.cuda.gpus import WARP, Gpu

__all__ = ["COPIED_TILES", "FLOAT16_TILES", "SINGLE_TILES", "WarpTile"]


@dataclass(frozen=True)
class WarpTile(AnyTile):
    """A tile of which each warp has `warp_rows` rows and `warp_columns` columns."""

    warp_rows: int
    warp_columns: int

    element_bytes: ClassVar[int] = 2

    def multiply_adds(self, gpu: Gpu) -> float:
        """Returns how many multiply-adds the tensor cores of one processor begin in a cycle."""
        return gpu.tensor_multiply_adds

    @property
    def threads(self) -> int:
        """Returns the threads of a block."""
        return WARP * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def sums(self) -> int:
        """Returns the accumulators of one thread."""
        return self.warp_rows * self.warp_columns // WARP

    def efficiency(self, gpu: Gpu) -> float:
        """Estimates the share of the peak: loads from shared memory take some of the time, and so does fetching."""
        multiply = self.warp_rows * self.warp_columns / 16
        read = self.warp_rows + self.warp_columns
        fetch = 64 * (self.rows + self.columns) / self.threads
        return multiply / (max(multiply, read) + read / 4 + fetch)

    @property
    def registers(self) -> int:
        """Estimates the registers of one thread."""
        return self.sums + (self.warp_rows + self.warp_columns) // 2 + 64

    def position(self, thread: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr, tirx.Expr]:
        """Returns the row and column at which the warp's part of the tile begins; then g and t of the thread."""
        warp, lane = tirx.floordiv(thread, number(WARP)), tirx.floormod(thread, number(WARP))
        across = number(self.columns // self.warp_columns)
        row = tirx.floordiv(warp, across) * number(self.warp_rows)
        column = tirx.floormod(warp, across) * number(self.warp_columns)
        return row, column, tirx.floordiv(lane, number(4)), tirx.floormod(lane, number(4))


class _CopiedTile(WarpTile):
    """A tile whose operands are copied past the registers, several ahead."""

    ahead: ClassVar[int] = 3

    @property
    def shared_bytes(self) -> int:
        """Returns the shared memory of a block, for any layout of the operands."""
        sides = (max(self.depth * (side + 8), side * (self.depth + 8)) for side in (self.rows, self.columns))
        return (self.ahead + 1) * self.element_bytes * sum(sides)

    def max_blocks(self, gpu: Gpu) -> int:
        """Returns how many blocks the shared memory of a processor has room for."""
        return max(1, gpu.capability.shared_bytes_per_processor // self.shared_bytes)

    def efficiency(self, gpu: Gpu) -> float:
        """Estimates the share of the peak: a copy is one instruction for eight elements."""
        multiply = self.warp_rows * self.warp_columns / 16
        read = self.warp_rows + self.warp_columns
        copy = 8 * (self.rows + self.columns) / self.threads
        return multiply / (max(multiply, read) + read / 4 + copy)


class _SingleTile(WarpTile):
    """The same of single precision."""

    element_bytes: ClassVar[int] = 4

    def multiply_adds(self, gpu: Gpu) -> float:
        """Returns how many multiply-adds the tensor cores of one processor begin in a cycle."""
        return gpu.tensor_multiply_adds / 2


_SHAPES = (
    (128, 128, 64, 32),
    (64, 128, 32, 64),
    (128, 64, 64, 32),
    (64, 64, 32, 32),
    (32, 128, 16, 64),
    (128, 32, 64, 16),
    (32, 64, 16, 32),
    (64, 32, 32, 16),
    (32, 32, 16, 16),
)
FLOAT16_TILES = tuple(WarpTile(rows, columns, 32, *warp) for rows, columns, *warp in _SHAPES)
COPIED_TILES = tuple(_CopiedTile(rows, columns, 32, *warp) for rows, columns, *warp in ((128, 128, 64, 64), *_SHAPES))
SINGLE_TILES = tuple(_SingleTile(rows, columns, 16, *warp) for rows, columns, *warp in _SHAPES)
