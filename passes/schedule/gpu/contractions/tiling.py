"""Chooses tile sizes of a contraction and the number of slices of its reduced axis, by a cost model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tvm import tirx

from nnefc.passes.tir.common.expressions import number
from nnefc.passes.tir.common.shapes import Size
from nnefc.passes.tir.gpu.narrow_indices import MAX_ELEMENTS
from nnefc.symbolic.dims import bounds, ceil_div, is_known, size_hint
from nnefc.targets.machine.gpu.description import WARP, Gpu

__all__ = ["TILES", "AnyTile", "BlockTile", "Tiling", "choose_tiling", "fit_in_slices", "slices_at_once"]

_GROUP = 4  # neighbouring rows, and columns, of a thread
_JOIN_REGISTERS = 8  # of a thread that may add up slices
_INSTRUCTIONS_TO_FETCH = 4  # of one element: its index, condition, load and store


@dataclass(frozen=True)
class AnyTile(ABC):
    """The tile that a block of threads computes at once, by any instruction.

    Attributes:
        rows, columns: of the result.
        depth: products of each sum between two barriers.
        element_bytes: of what is multiplied.
    """

    rows: int
    columns: int
    depth: int

    element_bytes: ClassVar[int]

    @property
    def is_copied(self) -> bool:
        """Whether the operands are copied to shared memory past the registers."""
        return False

    @property
    def ahead(self) -> int:
        """Returns how many tiles of the depth are on their way while one is multiplied."""
        return 1

    @property
    def blocks_of_cluster(self) -> int:
        """Returns how many blocks, whose tiles follow one another along the rows, work together."""
        return 1

    @property
    def fetched_columns(self) -> int:
        """Returns the columns of which the block itself fetches the right operand."""
        return self.columns

    @property
    def step_bytes(self) -> int:
        """Returns the bytes of both operands that a block fetches for a tile of the depth."""
        return self.element_bytes * (self.rows + self.fetched_columns) * self.depth

    @abstractmethod
    def multiply_adds(self, gpu: Gpu) -> float:
        """Returns how many multiply-adds of such operands one processor begins in a cycle."""

    def max_blocks(self, gpu: Gpu) -> int:
        """Returns how many blocks a processor has room for, registers and threads apart."""
        return gpu.architecture.blocks_per_processor

    def resident_blocks(self, gpu: Gpu, more_registers: int = 0) -> int:
        """Estimates how many blocks are on a processor at once, if threads have some registers more; at least 1."""
        limits = gpu.architecture
        by_registers = limits.registers_per_processor // ((self.registers + more_registers) * self.launched_threads)
        by_threads = limits.threads_per_processor // self.launched_threads
        return max(1, min(by_registers, by_threads, self.max_blocks(gpu)))

    @property
    @abstractmethod
    def threads(self) -> int:
        """Returns the threads of a block that multiply."""

    @property
    def launched_threads(self) -> int:
        """Returns all threads of a block."""
        return self.threads

    @property
    def allows_slices(self) -> bool:
        """Whether blocks may have slices of the depth."""
        return True

    def busy_warps(self, gpu: Gpu) -> int:
        """Returns how many warps that multiply keep a processor busy."""
        return gpu.busy_warps

    @abstractmethod
    def efficiency(self, gpu: Gpu) -> float:
        """Estimates the share of the peak that a processor reaches."""

    @property
    @abstractmethod
    def registers(self) -> int:
        """Estimates the registers of one thread."""


@dataclass(frozen=True)
class BlockTile(AnyTile):
    """A tile of which each thread has rows and columns: groups of four neighbours, the groups evenly spread.

    Attributes:
        thread_rows, thread_columns: those of one thread.
    """

    thread_rows: int
    thread_columns: int

    element_bytes: ClassVar[int] = 4

    def multiply_adds(self, gpu: Gpu) -> float:
        """Returns how many multiply-adds of float32 one processor begins in a cycle."""
        return gpu.architecture.multiply_adds

    @property
    def threads(self) -> int:
        """Returns the threads of a block."""
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)

    @property
    def row_distance(self) -> int:
        """Rows from one group of a thread to its next."""
        return self.rows * _GROUP // self.thread_rows

    @property
    def column_distance(self) -> int:
        """Columns from one group of a thread to its next."""
        return self.columns * _GROUP // self.thread_columns

    def position(self, thread: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
        """First row and first column of a thread in the tile.

        The threads of a warp are a rectangle of eight columns of threads: what they read from shared memory together
        is as little as can be.
        """
        across, down = self.columns // self.thread_columns, self.rows // self.thread_rows
        wide = min(8, across)
        high = min(WARP // wide, down)
        wide = WARP // high if high < WARP // wide else wide
        warps_across = across // wide
        lane, warp = tirx.floormod(thread, number(WARP)), tirx.floordiv(thread, number(WARP))
        row = tirx.floordiv(warp, number(warps_across)) * number(high) + tirx.floordiv(lane, number(wide))
        column = tirx.floormod(warp, number(warps_across)) * number(wide) + tirx.floormod(lane, number(wide))
        return row * number(_GROUP), column * number(_GROUP)

    def efficiency(self, gpu: Gpu) -> float:
        """Estimates the share of the peak that a processor reaches between loads from shared memory and the loops."""
        work, sides = self.thread_rows * self.thread_columns, self.thread_rows + self.thread_columns
        fetched = (self.rows + self.columns) / self.threads
        return work / (max(work, gpu.shared_cycles * sides) + sides / 2 + _INSTRUCTIONS_TO_FETCH * fetched + 2)

    @property
    def registers(self) -> int:
        """Estimates the registers of one thread."""
        return self.thread_rows * self.thread_columns + 2 * (self.thread_rows + self.thread_columns) + 32


@dataclass(frozen=True)
class Tiling:
    """Tiles of the result and slices of the depth. There is one slice where the depth is open.

    Attributes:
        moved_bytes: what memory reads and writes at least, for size hints.
    """

    tile: AnyTile
    batch: Size
    rows: Size
    columns: Size
    depth: Size
    wanted_slices: int
    moved_bytes: int = 0

    @property
    def row_tiles(self) -> Size:
        """Tiles from the first row to the last, and those beyond it that fill the last cluster of blocks."""
        blocks = self.tile.blocks_of_cluster
        return ceil_div(self.rows, self.tile.rows * blocks) * blocks

    @property
    def column_tiles(self) -> Size:
        """Tiles from the first column to the last."""
        return ceil_div(self.columns, self.tile.columns)

    @property
    def tiles(self) -> Size:
        """Returns the tiles of the result."""
        return self.batch * self.row_tiles * self.column_tiles

    @property
    def tiles_of_slice(self) -> Size:
        """Tiles of the depth in a slice."""
        tiles = ceil_div(self.depth, self.tile.depth)
        return ceil_div(tiles, min(self.wanted_slices, tiles)) if self.wanted_slices > 1 else tiles

    @property
    def slices(self) -> int:
        """Returns the slices of the reduced axis; each is non-empty."""
        tiles = ceil_div(self.depth, self.tile.depth)
        return ceil_div(tiles, self.tiles_of_slice) if self.wanted_slices > 1 else 1

    @property
    def blocks(self) -> Size:
        """Returns the blocks of the grid."""
        return self.tiles * self.slices

    @property
    def expected(self) -> Tiling:
        """Returns the tiling for size hints."""
        sizes = (self.batch, self.rows, self.columns, self.depth)
        batch, rows, columns, depth = (max(1, size_hint(size)) for size in sizes)
        return replace(self, batch=batch, rows=rows, columns=columns, depth=depth)

    def fetched_bytes(self, gpu: Gpu) -> int:
        """Returns the bytes of both operands that the busiest processor fetches; all sizes are known.

        They are few where tiles are large, and where blocks fill the device.
        """
        return self.tile.step_bytes * self.tiles_of_slice * -(-self.blocks // gpu.processors)

    def cycles(self, gpu: Gpu, joined: bool = True) -> float:
        """Estimates the cycles of the whole product on a device; all sizes are known.

        Args:
            joined: whether the last block of a tile adds up the slices of the depth, rather than a second launch.
        """
        tile = self.tile
        resident = tile.resident_blocks(gpu, _JOIN_REGISTERS if self.slices > 1 and joined else 0)
        of_processor = -(-self.blocks // gpu.processors)  # of the one that has most to do
        together = min(resident, of_processor)
        busy = min(1.0, together * tile.threads / WARP / tile.busy_warps(gpu))
        multiply = tile.rows * tile.columns * tile.depth / tile.multiply_adds(gpu) / (tile.efficiency(gpu) * busy)
        fetch = tile.step_bytes / gpu.fetch_bytes_per_cycle
        step = max(multiply, fetch, gpu.step_cycles / together, gpu.fetch_cycles / (together * tile.ahead))
        memory = self.moved_bytes / gpu.memory_bytes_per_cycle
        results = tile.element_bytes * self.batch * self.rows * self.columns / gpu.memory_bytes_per_cycle
        sums = max(of_processor * self.tiles_of_slice * step, memory - results)  # all else is read meanwhile
        written = tile.element_bytes * tile.rows * tile.columns * gpu.processors / gpu.memory_bytes_per_cycle
        meetings = gpu.cluster_cycles if tile.blocks_of_cluster > 1 else 0
        ends = of_processor * (max(gpu.block_cycles, written) + meetings)
        total = max(sums, ends) + min(sums, ends) / together  # a block multiplies while another one writes
        total = max(total, memory)
        if self.slices > 1 and joined:
            size = tile.rows * tile.columns
            fetches = -(-self.slices // slices_at_once(self.slices, max(1, size // tile.threads)))
            join = gpu.join_cycles + fetches * gpu.fetch_cycles + 4 * self.slices * size / gpu.fetch_bytes_per_cycle
            total += join * -(-self.tiles // gpu.processors)
        elif self.slices > 1:
            moved = 8 * self.slices * self.batch * self.rows * self.columns
            total += gpu.launch_cycles + moved / gpu.memory_bytes_per_cycle
        return total


TILES = tuple(
    BlockTile(rows, columns, depth, thread_rows, thread_columns)
    for rows, columns, thread_rows, thread_columns, depths in (
        (128, 128, 8, 8, (8, 16)),
        (64, 128, 8, 8, (8, 16)),
        (128, 64, 8, 8, (8, 16)),
        (64, 64, 8, 4, (16,)),
        (64, 64, 4, 4, (16,)),
        (32, 128, 4, 8, (16,)),
        (128, 32, 8, 4, (16,)),
        (32, 64, 4, 4, (16, 32)),
        (64, 32, 4, 4, (16, 32)),
        (32, 32, 4, 4, (16, 32)),
        (16, 64, 4, 4, (16, 32)),
        (64, 16, 4, 4, (16, 32)),
        (16, 128, 4, 4, (16,)),
        (128, 16, 4, 4, (16,)),
        (8, 128, 4, 4, (16,)),
        (128, 8, 4, 4, (16,)),
        (4, 256, 4, 4, (8,)),
        (256, 4, 4, 4, (8,)),
    )
    for depth in depths
)
_SUMS_AT_ONCE = 64  # of a thread, that are on their way from other blocks
_SLICES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_SLICED = 1.05  # times the time: what slices must save, for their sums take as much memory again as the result, each


def choose_tiling(
    batch: Size,
    rows: Size,
    columns: Size,
    depth: Size,
    gpu: Gpu,
    tiles: Sequence[AnyTile] = TILES,
    moved_bytes: int = 0,
) -> Tiling:
    """Returns the tiling that the model takes to be fastest on a device, for size hints.

    Of several that memory alone limits, it is the one whose processors fetch the fewest bytes, then the one that would
    be fastest if memory were no limit.

    Args:
        moved_bytes: what memory reads and writes at least, for size hints; 0 leaves the limit of memory out.
    """
    sizes = batch, rows, columns, depth
    joined = is_known(batch, rows, columns)
    numbers = _SLICES if is_known(*sizes) or fit_in_slices(batch * rows * columns, depth, _SLICES[-1]) else (1,)
    expected = Tiling(tiles[0], *sizes, 1, moved_bytes).expected
    candidates = [
        replace(expected, tile=tile, wanted_slices=slices)
        for tile in tiles
        for slices in numbers
        if slices == 1 or tile.allows_slices
    ]
    times = [tiling.cycles(gpu, joined) * (_SLICED if tiling.slices > 1 else 1) for tiling in candidates]
    shortest = min(times)
    equal = [tiling for tiling, cycles in zip(candidates, times, strict=True) if cycles == shortest]
    fastest = min(equal, key=lambda it: (it.fetched_bytes(gpu), replace(it, moved_bytes=0).cycles(gpu, joined)))
    return replace(fastest, batch=batch, rows=rows, columns=columns, depth=depth)


def slices_at_once(slices: int, sums: int) -> int:
    """Returns how many slices' sums a thread fetches together, of which each has so many for it."""
    return max(1, min(slices, _SUMS_AT_ONCE // sums))


def fit_in_slices(results: Size, depth: Size, slices: int) -> bool:
    """Whether so many slices of dynamic sizes are always few enough sums for indices of 32 bits."""
    return is_known(depth) and bounds(results)[1] * slices <= MAX_ELEMENTS
