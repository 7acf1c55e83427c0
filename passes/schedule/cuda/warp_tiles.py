"""Lists the tiles of a product by tensor cores: how many rows and columns a block, and each of its warps, has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from tvm import tirx

from nnefc.passes.schedule.gpu.contractions.tiling import AnyTile
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.cuda.capabilities import (
    MATRIX_INSTRUCTIONS,
    TENSOR_MEMORY_COLUMNS,
    TENSOR_MEMORY_INSTRUCTION,
    WARPGROUP,
    WARPGROUP_INSTRUCTION,
    MatrixInstruction,
)
from nnefc.targets.machine.gpu.description import (
    LOAD_BYTES,
    SCHEDULERS,
    SHARED_BYTES_PER_CYCLE,
    WARP,
    Architecture,
    Gpu,
)

__all__ = [
    "BYTE_TILES",
    "COPIED_TILES",
    "FLOAT16_TILES",
    "SINGLE_TILES",
    "BulkTile",
    "CopiedTile",
    "PairTile",
    "TensorMemoryTile",
    "UnpackingTile",
    "WarpTile",
    "WarpgroupTile",
    "bulk_tiles",
    "tensor_memory_tiles",
    "unpacking_tiles",
    "warpgroup_tiles",
]

_UNPACK_INSTRUCTIONS = 4  # of a thread for an element, from its bytes to shared memory
_COPY_INSTRUCTIONS = 8  # for 16 bytes of the other operand: an address, a condition, a copy
_STEP_INSTRUCTIONS = 85  # for a tile of the depth besides
_UNPACK_REGISTERS = 24


@dataclass(frozen=True)
class WarpTile(AnyTile):
    """A tile of which each warp has `warp_rows` rows and `warp_columns` columns."""

    warp_rows: int
    warp_columns: int

    element_bytes: ClassVar[int] = 2

    def multiply_adds(self, gpu: Gpu) -> float:
        """Returns how many multiply-adds the tensor cores of one processor begin in a cycle."""
        return gpu.tensor_core_rate(self.element_bytes)

    @property
    def threads(self) -> int:
        """Returns the threads of a block."""
        return WARP * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def row_step(self) -> int:
        """Returns the distance between the rows of a warp's instructions, one after another."""
        return MATRIX_INSTRUCTIONS["float16"].rows

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


class CopiedTile(WarpTile):
    """A tile whose operands are copied past the registers, several ahead."""

    @property
    def is_copied(self) -> bool:
        """Whether the operands are copied past the registers: yes."""
        return True

    @property
    def ahead(self) -> int:
        """Returns how many tiles of the depth are on their way while one is multiplied."""
        return 3

    @property
    def shared_bytes(self) -> int:
        """Returns the shared memory of a block, for any layout of the operands."""
        sides = (max(self.depth * (side + 8), side * (self.depth + 8)) for side in (self.rows, self.columns))
        return (self.ahead + 1) * self.element_bytes * sum(sides)

    def max_blocks(self, gpu: Gpu) -> int:
        """Returns how many blocks the shared memory of a processor has room for."""
        return max(1, gpu.architecture.shared_bytes_per_processor // self.shared_bytes)

    def efficiency(self, gpu: Gpu) -> float:
        """Estimates the share of the peak: a copy is one instruction for 16 bytes."""
        multiply = self.warp_rows * self.warp_columns / 16
        read = self.warp_rows + self.warp_columns
        copy = 8 * (self.rows + self.columns) / self.threads
        return multiply / (max(multiply, read) + read / 4 + copy)


class _DeepTile(CopiedTile):
    """The same with more tiles on their way: where a processor has one block, nothing else hides the time of a copy."""

    @property
    def ahead(self) -> int:
        """Returns how many tiles of the depth are on their way while one is multiplied."""
        return 7


class _ByteTile(CopiedTile):
    """The same of bytes: as many bytes of the depth are twice as many elements."""

    element_bytes: ClassVar[int] = 1


class _DeepByteTile(_DeepTile):
    """The same with more tiles on their way."""

    element_bytes: ClassVar[int] = 1


@dataclass(frozen=True)
class WarpgroupTile(WarpTile):
    """A tile that warpgroups multiply from shared memory, by `wgmma`: each has all columns, and 64 rows or more.

    Warpgroup g of G has the rows from 64 g on; of further instructions, those 64 G rows later. A quarter of these rows
    are a warp's (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts").

    Attributes:
        stages: tiles of the depth in shared memory: those on their way, one that is multiplied, and the one before it,
            whose products may not be complete yet.
    """

    stages: int

    multiplied: ClassVar[int] = 2
    instruction: ClassVar[MatrixInstruction] = WARPGROUP_INSTRUCTION
    max_columns: ClassVar[int] = WARPGROUP_INSTRUCTION.columns
    sums_of_registers: ClassVar[float] = 1 / 2  # the others are for copies and the epilogue

    def multiply_adds(self, gpu: Gpu) -> float:
        """Returns how many multiply-adds the tensor cores of one processor begin in a cycle, by the operands' size."""
        return gpu.warpgroup_multiply_adds * 2 / self.element_bytes

    @property
    def is_copied(self) -> bool:
        """Whether the operands are copied past the registers: yes."""
        return True

    @property
    def ahead(self) -> int:
        """Returns how many tiles of the depth are on their way while one is multiplied."""
        return self.stages - self.multiplied

    @property
    def row_step(self) -> int:
        """Returns the distance between the rows of a warp's instructions, one after another."""
        return WARPGROUP_INSTRUCTION.rows * self.threads // WARPGROUP

    @property
    def shared_bytes(self) -> int:
        """Returns the shared memory of a block."""
        return self.stages * self.element_bytes * self.depth * (self.rows + self.fetched_columns)

    @property
    def static_bytes(self) -> int:
        """Returns the shared memory of a block before its tiles, aligned as they are."""
        return 0

    def max_blocks(self, gpu: Gpu) -> int:
        """Returns how many blocks the shared memory of a processor has room for."""
        limits = gpu.architecture
        reserved = limits.shared_bytes_per_processor - limits.shared_bytes_per_block  # for each block, by the system
        return max(1, limits.shared_bytes_per_processor // (self.shared_bytes + self.static_bytes + reserved))

    def efficiency(self, gpu: Gpu) -> float:
        """Estimates the share of the peak that shared memory allows: copies write it, and tensor cores read it."""
        written = (self.rows + self.fetched_columns) * self.depth
        read = (self.instruction.rows + self.fetched_columns) * self.depth * self.rows // self.instruction.rows
        shared = self.element_bytes * (written + read) / SHARED_BYTES_PER_CYCLE
        multiply = self.rows * self.columns * self.depth / self.multiply_adds(gpu)
        return multiply / max(multiply, shared)

    @property
    def registers(self) -> int:
        """Estimates the registers of one thread."""
        return self.sums + 64

    def position(self, thread: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr, tirx.Expr]:
        """Returns the row and column at which the warp's part of the tile begins; then g and t of the thread."""
        warp, lane = tirx.floordiv(thread, number(WARP)), tirx.floormod(thread, number(WARP))
        row = warp * number(WARPGROUP_INSTRUCTION.rows * WARP // WARPGROUP)
        return row, number(0), tirx.floordiv(lane, number(4)), tirx.floormod(lane, number(4))


class _WarpgroupByteTile(WarpgroupTile):
    """The same of bytes."""

    element_bytes: ClassVar[int] = 1


@dataclass(frozen=True)
class UnpackingTile(WarpgroupTile):
    """The same, of which threads unpack one operand from integers of a few bits while products run.

    Attributes:
        bits: of an integer.
        unpacks_rows: whether it is the left operand, rather than the right one.
    """

    bits: int
    unpacks_rows: bool

    @property
    def step_bytes(self) -> int:
        """Returns the bytes of both operands that a block fetches for a tile of the depth."""
        packed, copied = (self.rows, self.columns) if self.unpacks_rows else (self.columns, self.rows)
        return (packed * self.bits // 8 + copied * self.element_bytes) * self.depth

    def efficiency(self, gpu: Gpu) -> float:
        """Estimates the share of the peak that shared memory and the instructions that unpack allow."""
        packed, copied = (self.rows, self.columns) if self.unpacks_rows else (self.columns, self.rows)
        copies = copied * self.element_bytes / LOAD_BYTES
        instructions = self.depth * (_UNPACK_INSTRUCTIONS * packed + _COPY_INSTRUCTIONS * copies) / WARP
        instructions += _STEP_INSTRUCTIONS * self.threads / WARP
        multiply = self.rows * self.columns * self.depth / self.multiply_adds(gpu)
        return min(super().efficiency(gpu), multiply / max(multiply, instructions / SCHEDULERS))

    @property
    def registers(self) -> int:
        """Estimates the registers of one thread."""
        return super().registers + _UNPACK_REGISTERS


@dataclass(frozen=True)
class BulkTile(WarpgroupTile):
    """The same, copied by a thread of one more warp, in boxes (`bulk_launch.py`).

    Attributes:
        registers_by_role: of a thread of the producer, which is a warpgroup then, and of one that multiplies; None
            where all threads have the same number, and the producer is a warp.
    """

    registers_by_role: tuple[int, int] | None = None

    @property
    def producer(self) -> int:
        """Returns the threads of the warps of which one thread copies."""
        return WARP if self.registers_by_role is None else WARPGROUP

    @property
    def launched_threads(self) -> int:
        """Returns all threads of a block: the last warp, or warpgroup, copies."""
        return self.threads + self.producer

    @property
    def registers(self) -> int:
        """Estimates the registers of one thread, when the block begins."""
        if self.registers_by_role is None:
            return super().registers
        of_producer, of_consumers = self.registers_by_role
        return (self.producer * of_producer + self.threads * of_consumers) // self.launched_threads

    def with_registers_by_role(self, architecture: Architecture) -> BulkTile | None:
        """Returns the tile with a producer that gives registers to the other threads; None if that is not enough."""
        warps = (self.threads + WARPGROUP) // WARP
        share = _registers(architecture, warps) // _REGISTERS_AT_ONCE * _REGISTERS_AT_ONCE
        spare = (share - _PRODUCER_REGISTERS) * WARPGROUP // self.threads
        taken = (share + spare) // _REGISTERS_AT_ONCE * _REGISTERS_AT_ONCE
        if not self.registers <= taken <= architecture.registers_per_thread:
            return None
        return replace(self, registers_by_role=(_PRODUCER_REGISTERS, taken))

    @property
    def allows_slices(self) -> bool:
        """Whether blocks may have slices of the depth: no, all threads of a block meet to add these up."""
        return False

    def busy_warps(self, gpu: Gpu) -> int:
        """Returns one for each scheduler: these only begin products, which run while they wait for the next tile."""
        return SCHEDULERS

    @property
    def static_bytes(self) -> int:
        """Returns the shared memory of barriers, before tiles at multiples of what the widest swizzle repeats after."""
        return SHARED_BYTES_PER_CYCLE * 8


class _BulkByteTile(BulkTile):
    """The same of bytes."""

    element_bytes: ClassVar[int] = 1


class _BulkSingleTile(BulkTile):
    """The same of single precision, which copies round."""

    element_bytes: ClassVar[int] = 4


@dataclass(frozen=True)
class TensorMemoryTile(BulkTile):
    """The same, multiplied by `tcgen05.mma` (`tensor_memory_launch.py`): one thread begins the products of all warps.

    Warp w of a warpgroup has the rows from 32 w on, of the second warpgroup those 16 rows later: it reaches no other
    lanes of tensor memory (PTX ISA, "Access restrictions").
    """

    instruction: ClassVar[MatrixInstruction] = TENSOR_MEMORY_INSTRUCTION

    def multiply_adds(self, gpu: Gpu) -> float:
        """Returns how many multiply-adds the tensor cores of one processor begin in a cycle, by the operands' size."""
        return gpu.tensor_memory_multiply_adds * 2 / self.element_bytes

    @property
    def parts(self) -> tuple[range, ...]:
        """Returns the columns that the block itself has fetched of each instruction's right operand."""
        most, own = self.instruction.columns // self.blocks_of_cluster, self.fetched_columns
        return tuple(range(first, min(first + most, own)) for first in range(0, own, most))

    def memory_column(self, column: tirx.Expr) -> tirx.Expr:
        """Returns the column of tensor memory in which a column of the tile is; 16 neighbours stay neighbours.

        Those of an instruction are side by side: its part of what the first block has fetched, then of the second one.
        """
        most, of_block = number(len(self.parts[0])), number(self.fetched_columns)
        block, own = tirx.floordiv(column, of_block), tirx.floormod(column, of_block)
        first = tirx.floordiv(own, most) * most
        of_part = tirx.min(most, of_block - first)
        return first * number(self.blocks_of_cluster) + block * of_part + own - first

    @property
    def memory_columns(self) -> int:
        """Returns the columns of tensor memory that a block allocates."""
        return 1 << (self.columns - 1).bit_length()

    def max_blocks(self, gpu: Gpu) -> int:
        """Returns how many blocks the shared and the tensor memory of a processor have room for."""
        return min(super().max_blocks(gpu), TENSOR_MEMORY_COLUMNS // self.memory_columns)

    @property
    def registers(self) -> int:
        """Estimates the registers of one thread, which has few sums at once."""
        return 72

    def position(self, thread: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr, tirx.Expr]:
        """Returns the row and column at which the warp's part of the tile begins; then g and t of the thread."""
        warp, lane = tirx.floordiv(thread, number(WARP)), tirx.floormod(thread, number(WARP))
        lanes = tirx.floormod(warp, number(WARPGROUP // WARP)) * number(WARP)
        row = lanes + tirx.floordiv(thread, number(WARPGROUP)) * number(self.warp_rows)
        return row, number(0), tirx.floordiv(lane, number(4)), tirx.floormod(lane, number(4))


class _TensorMemoryByteTile(TensorMemoryTile):
    """The same of bytes."""

    element_bytes: ClassVar[int] = 1


class _TensorMemorySingleTile(TensorMemoryTile):
    """The same of single precision."""

    element_bytes: ClassVar[int] = 4


class PairTile(TensorMemoryTile):
    """The same of a block of a pair (`pair_launch.py`): each fetches its rows, and half of the columns of both.

    A tile of more columns than an instruction has is multiplied by two, the second of which has the rows that the first
    one has read: no tile of as many rows needs fewer bytes of shared memory for a product. Portable code has registers
    for no more columns.
    """

    max_columns: ClassVar[int] = 384
    sums_of_registers: ClassVar[float] = 3 / 4

    @property
    def blocks_of_cluster(self) -> int:
        """Returns how many blocks, whose tiles follow one another along the rows, work together."""
        return 2

    @property
    def fetched_columns(self) -> int:
        """Returns the columns of which the block itself fetches the right operand."""
        return self.columns // self.blocks_of_cluster


class _PairByteTile(PairTile):
    """The same of bytes."""

    element_bytes: ClassVar[int] = 1


class _PairSingleTile(PairTile):
    """The same of single precision."""

    element_bytes: ClassVar[int] = 4


_WARPGROUP_TILES: Mapping[int, type[WarpgroupTile]] = {1: _WarpgroupByteTile, 2: WarpgroupTile}
_BULK_TILES: Mapping[int, type[BulkTile]] = {1: _BulkByteTile, 2: BulkTile, 4: _BulkSingleTile}
_TENSOR_MEMORY_TILES: Mapping[int, type[TensorMemoryTile]] = {
    1: _TensorMemoryByteTile,
    2: TensorMemoryTile,
    4: _TensorMemorySingleTile,
}
_PAIR_TILES: Mapping[int, type[PairTile]] = {1: _PairByteTile, 2: PairTile, 4: _PairSingleTile}


def warpgroup_tiles(architecture: Architecture, element_bytes: int = 2) -> tuple[WarpgroupTile, ...]:
    """Returns the tiles of warpgroups that the shared memory and the registers of a block have room for.

    Their columns are what makes grids of whole waves: from 64 to 256, in steps that 256 threads copy evenly.

    Args:
        element_bytes: of the operands, 1 or 2.
    """
    tiles = _tiles(_WARPGROUP_TILES[element_bytes], (4, 3), architecture)
    return tuple(tile for tile in tiles if _has_registers(tile, architecture))


def unpacking_tiles(architecture: Architecture, bits: int, unpacks_rows: bool) -> tuple[UnpackingTile, ...]:
    """Returns the same for a product of which one operand is unpacked; arguments are :class:`UnpackingTile`'s."""
    tiles = (
        UnpackingTile(it.rows, it.columns, it.depth, it.warp_rows, it.warp_columns, it.stages, bits, unpacks_rows)
        for it in _tiles(WarpgroupTile, (4, 3), architecture)
    )
    return tuple(tile for tile in tiles if _has_registers(tile, architecture))


def bulk_tiles(architecture: Architecture, element_bytes: int = 2) -> tuple[BulkTile, ...]:
    """Returns the same for bulk copies, which take no thread's time: more of them may be on their way.

    Args:
        element_bytes: of the operands, 1, 2 or 4.
    """
    tiles = _tiles(_BULK_TILES[element_bytes], (8, 6, 4, 3), architecture)
    small = [tile for tile in tiles if _has_registers(tile, architecture)]
    large = [tile.with_registers_by_role(architecture) for tile in tiles if not _has_registers(tile, architecture)]
    return (*small, *(tile for tile in large if tile is not None))


def tensor_memory_tiles(architecture: Architecture, element_bytes: int = 2) -> tuple[BulkTile, ...]:
    """Returns the tiles of bulk copies with sums in tensor memory, of blocks alone and of pairs of blocks."""
    kinds = (_TENSOR_MEMORY_TILES[element_bytes], _PAIR_TILES[element_bytes])
    tiles = [tile for kind in kinds for tile in _tiles(kind, (8, 6, 5, 4, 3), architecture)]
    return tuple(tile for tile in tiles if tile.rows == TENSOR_MEMORY_INSTRUCTION.rows)


_Tile = TypeVar("_Tile", bound=WarpgroupTile)


def _tiles(tile_of: type[_Tile], numbers_of_stages: Sequence[int], architecture: Architecture) -> tuple[_Tile, ...]:
    """Returns the tiles that shared memory, and the registers of a thread, have room for."""
    depth = SHARED_BYTES_PER_CYCLE // tile_of.element_bytes  # the 128 bytes of a row of the widest swizzle
    shapes = [
        (rows, columns, rows // groups // 4, stages)
        for groups, rows in ((1, 64), (2, 128), (2, 256))
        for columns in range(64, tile_of.max_columns + 1, 32)
        for stages in numbers_of_stages  # of equal ones, more
    ]
    tiles = (tile_of(rows, columns, depth, warp_rows, columns, stages) for rows, columns, warp_rows, stages in shapes)
    return tuple(
        tile
        for tile in tiles
        if tile.shared_bytes + tile.static_bytes <= architecture.shared_bytes_per_block
        and tile.sums <= (architecture.registers_per_thread + 1) * tile.sums_of_registers
    )


_REGISTERS_AT_ONCE = 8  # that numbers of registers are multiples of
_PRODUCER_REGISTERS = 40  # of a thread of a warpgroup that copies


def _has_registers(tile: WarpgroupTile, architecture: Architecture) -> bool:
    return tile.registers <= _registers(architecture, tile.launched_threads // WARP)


def _registers(architecture: Architecture, warps: int) -> int:
    """Returns the registers of a thread in a block of so many warps, of which each scheduler has its own."""
    return architecture.registers_per_processor // (SCHEDULERS * WARP * -(-warps // SCHEDULERS))


class _SingleTile(WarpTile):
    """The same of single precision."""

    element_bytes: ClassVar[int] = 4


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
_MAX_DEEP = 64 + 64  # rows and columns of a block that is one of few
_COPIED_SHAPES = ((128, 128, 64, 64), *_SHAPES)
_DEEP_SHAPES = tuple(shape for shape in _SHAPES if shape[0] + shape[1] <= _MAX_DEEP)
COPIED_TILES = (
    *(CopiedTile(rows, columns, 32, *warp) for rows, columns, *warp in _COPIED_SHAPES),
    *(_DeepTile(rows, columns, 32, *warp) for rows, columns, *warp in _DEEP_SHAPES),
)
BYTE_TILES = (
    *(_ByteTile(rows, columns, 64, *warp) for rows, columns, *warp in _COPIED_SHAPES),
    *(_DeepByteTile(rows, columns, 64, *warp) for rows, columns, *warp in _DEEP_SHAPES),
)
SINGLE_TILES = tuple(_SingleTile(rows, columns, 16, *warp) for rows, columns, *warp in _SHAPES)
