"""Tiles of an attention, and where it is faster than products and a softmax of their own."""

from __future__ import annotations

from nnefc.passes.compute.attention import AttentionTiles
from nnefc.passes.schedule.cpu.tile_sizes import Tile, choose_tile
from nnefc.sizes import Dimension, is_known, item_count, typical
from nnefc.targets.machine.target import Target

__all__ = ["attention_tiles"]

_MOST_VECTORS = 4


def attention_tiles(
    batch: tuple[Dimension, ...], queries: Dimension, keys: Dimension, size: int, width: int, target: Target
) -> AttentionTiles | None:
    """The tiles of an attention of float32; None where so few queries fill no vector that the products are faster."""
    lanes = target.lanes("float32")
    if 2 * typical(queries) < lanes:
        return None
    found = [choose_tile(1, -(-width // 8) * 8, vectors, target) for vectors in range(1, _MOST_VECTORS + 1)]
    tiles = [tile if tile.columns == n else _narrow(n, target) for n, tile in enumerate(found, 1)]
    count = min(range(1, _MOST_VECTORS + 1), key=lambda count: _cycles(typical(queries), tiles[:count], lanes, target))
    left = queries % (count * lanes)
    used = {count, 1} | ({left // lanes} - {0} if is_known(left) else set())
    sizes = tuple((n, tiles[n - 1].rows) for n in sorted(used, reverse=True))
    room = target.costs.l1_bytes // 2 // (4 * lanes * count)
    block = max(64, room // 64 * 64)
    work = typical(item_count(batch) * queries * keys) * (size + width)
    return AttentionTiles(lanes, sizes, min(block, 128), work >= target.parallel_grain)


def _narrow(vectors: int, target: Target) -> Tile:
    """A tile of so many vectors, of as many rows as fit."""
    return next(tile for rows in (8, 6, 4, 3, 2, 1) if (tile := Tile(1, rows, vectors)).fits(target) or rows == 1)


def _cycles(queries: int, tiles: list[Tile], lanes: int, target: Target) -> float:
    """Of all queries, each with one key and one place."""
    whole, left = divmod(queries, lanes * len(tiles))
    used = [len(tiles)] * whole + ([left // lanes] if left >= lanes else []) + ([1] if left % lanes else [])
    return sum(tiles[vectors - 1].cycles(target) / tiles[vectors - 1].rows for vectors in used)
