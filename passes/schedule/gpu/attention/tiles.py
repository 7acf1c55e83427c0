"""Chooses the tiles of an attention, the queries and keys that a block multiplies at once, by a cost model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from nnefc.passes.schedule.gpu.attention.analysis import Attention
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import ceil_div, size_hint
from nnefc.targets.machine.gpu.description import WARP, Gpu
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = [
    "INSTRUCTIONS_OF_POWER",
    "OTHER_REGISTERS",
    "AttentionTile",
    "FmaTile",
    "choose_tile",
    "filled",
    "fma_tiles",
]

OTHER_REGISTERS = 56
"""Registers of a thread for addresses, bounds and the steps of the softmax (estimate)."""

INSTRUCTIONS_OF_POWER = 12
"""Instructions of a score: its bounds, the largest one, the power, sums and conversion (estimate)."""


@dataclass(frozen=True)
class AttentionTile(ABC):
    """A tile of queries and keys.

    Attributes:
        queries, keys: of a block at once.
        size, width: the lengths of queries and of values, filled up as the instructions need them.
    """

    queries: int
    keys: int
    size: int
    width: int

    @property
    @abstractmethod
    def threads(self) -> int:
        """Returns the threads of a block."""

    @property
    @abstractmethod
    def registers(self) -> int:
        """Estimates the registers of one thread."""

    @property
    @abstractmethod
    def shared_bytes(self) -> int:
        """Returns the shared memory of a block."""

    @abstractmethod
    def multiply_cycles(self, gpu: Gpu) -> float:
        """Estimates the cycles of a processor for the products and powers of one tile of keys."""

    def fits(self, target: GpuTarget) -> bool:
        """Whether a device of each of the architectures has room for a block."""
        return (
            self.registers <= target.gpu.architecture.registers_per_thread
            and self.shared_bytes <= target.max_shared_bytes
            and self.registers * self.threads <= target.gpu.architecture.registers_per_processor
        )

    def cycles(self, elements: int, queries: int, keys: int, gpu: Gpu) -> float:
        """Estimates the cycles of the whole attention on a device."""
        limits = gpu.architecture
        resident = limits.shared_bytes_per_processor // self.shared_bytes
        resident = min(resident, limits.registers_per_processor // (self.registers * self.threads))
        resident = max(1, min(resident, limits.threads_per_processor // self.threads))
        of_processor = -(-elements * -(-queries // self.queries) // gpu.processors)  # of the busiest
        together = max(1, min(resident, of_processor))
        busy = min(1.0, together * self.threads / WARP / gpu.busy_warps)
        fetch = self.bytes_of_keys / gpu.fetch_bytes_per_cycle
        step = max(self.multiply_cycles(gpu) / busy, fetch, gpu.fetch_cycles / together)
        return of_processor * (-(-keys // self.keys) * step + gpu.block_cycles / together)

    @property
    @abstractmethod
    def bytes_of_keys(self) -> int:
        """Returns the bytes of a tile of keys and values."""


@dataclass(frozen=True)
class FmaTile(AttentionTile):
    """A tile for multiply-adds of float32: a thread has four queries, with a part of the keys and of the values.

    Attributes:
        lanes: neighbouring values of a thread.
    """

    lanes: int

    rows = 4
    """Queries of a thread."""

    columns = 8
    """Threads that share these queries."""

    @property
    def threads(self) -> int:
        return self.queries // self.rows * self.columns

    @property
    def registers(self) -> int:
        of_row = self.keys // self.columns + self.width // self.columns
        return self.rows * of_row + 4 * (self.rows + self.keys // self.columns) + OTHER_REGISTERS

    @staticmethod
    def stride(length: int) -> int:
        """Returns the elements from row to row in shared memory: vectors of eight rows fall into different banks."""
        return length + 4 if length // 4 % 2 == 0 else length

    @property
    def shared_bytes(self) -> int:
        of_queries = self.stride(self.size) + self.stride(self.keys)
        return 4 * (self.queries * of_queries + self.keys * (self.stride(self.size) + self.width))

    @property
    def bytes_of_keys(self) -> int:
        return 4 * self.keys * (self.size + self.width)

    def multiply_cycles(self, gpu: Gpu) -> float:
        products = self.queries * self.keys * (self.size + self.width)
        read = products * (1 / self.rows + self.columns / self.keys) * gpu.shared_cycles / 4
        powers = self.queries * self.keys * INSTRUCTIONS_OF_POWER
        return (max(products, read) + powers) / gpu.architecture.multiply_adds


_FMA_TILES = ((16, 32), (16, 64), (32, 32), (32, 64), (64, 32), (64, 64), (128, 32))
_Tile = TypeVar("_Tile", bound=AttentionTile)


def fma_tiles(attention: Attention) -> list[FmaTile]:
    """Returns the tiles for multiply-adds of float32."""
    lanes = min((4, 2, 1), key=lambda lanes: filled(attention.width, FmaTile.columns * lanes) / (1 + lanes / 4))
    sizes = (filled(attention.size, 4), filled(attention.width, FmaTile.columns * lanes))
    return [FmaTile(queries, keys, *sizes, lanes) for queries, keys in _FMA_TILES]


def choose_tile(attention: Attention, tiles: Sequence[_Tile], target: GpuTarget) -> _Tile | None:
    """Returns the tile that the model takes to be fastest for size hints; None if a device has room for none."""
    fitting = [tile for tile in tiles if tile.fits(target)]
    elements, queries, keys = map(_hint, (attention.elements, attention.queries, attention.keys))
    return min(fitting, key=lambda tile: tile.cycles(elements, queries, keys, target.gpu), default=None)


def filled(length: int, multiple: int) -> int:
    """Returns a length, filled up to a multiple."""
    return int(ceil_div(length, multiple)) * multiple


def _hint(size: Size) -> int:
    return max(1, size_hint(size))
