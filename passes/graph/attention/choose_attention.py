"""Chooses tile sizes of an attention, and whether fusing it is faster than separate products and softmax."""

from __future__ import annotations

from nnefc.passes.compute.attention.problem import AttentionTiles
from nnefc.passes.compute.tile_sizes import RegisterTile, choose_tile
from nnefc.symbolic.dims import Dimension, bounds, element_count, is_known, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["attention_tiles"]

_MAX_VECTORS = 4
_MAX_HEADS = 4  # of a single query, whose sums of four vectors of values each stay in registers


def attention_tiles(
    batch: tuple[Dimension, ...],
    queries: Dimension,
    keys: Dimension,
    size: int,
    width: int,
    sharing: int,
    target: Target,
) -> AttentionTiles | None:
    """Returns the tiles of a float32 attention; None where separate products are faster.

    That is where few queries would leave most of a vector unused, and where the sums of a tile would not stay in the
    second cache.

    Args:
        batch, queries, keys, size, width: see `Attended`.
        sharing: heads next to each other that share keys and values, which lie along memory; 0 if these do not.
    """
    lanes = target.lanes("float32")
    whole = sharing and lanes > 1 and size % lanes == 0 and width % lanes == 0 and bounds(queries)[0] <= 1
    heads = next(n for n in range(_MAX_HEADS, 0, -1) if sharing % n == 0) if whole else 0
    usual = _many(queries, _MAX_VECTORS * lanes)
    if 4 * usual < 3 * lanes and not (heads and size_hint(queries) == 1):
        return None
    maximum = min(_MAX_VECTORS, target.costs.l2_bytes // 2 // (4 * lanes * (size + width)))
    if maximum == 0:
        return None
    found = [choose_tile(1, -(-width // 8) * 8, vectors, target) for vectors in range(1, maximum + 1)]
    tiles = [tile if tile.columns == n else _narrow(n, target) for n, tile in enumerate(found, 1)]
    count = min(range(1, maximum + 1), key=lambda count: _cycles(usual, tiles[:count], lanes, target))
    left = queries % (count * lanes)
    used = {count, 1} | ({left // lanes} - {0} if is_known(left) else set())
    sizes = tuple((n, tiles[n - 1].rows) for n in sorted(used, reverse=True))
    room = target.costs.l1_bytes // 2 // (4 * lanes * count)
    block = max(64, room // 64 * 64)
    work = max(1, size_hint(element_count(batch))) * usual * _many(keys, block) * (size + width)
    return AttentionTiles(lanes, sizes, min(block, 128), heads, work >= target.parallel_grain)


def _many(size: Dimension, enough: int) -> int:
    """Returns the extent to assume for an axis: of a dynamic dimension, enough for full tiles if its range allows.

    The hint may be a guess by a name. With fewer than that, tiles are of one vector, however large others are.
    """
    return size_hint(size) if is_known(size) else max(size_hint(size), min(bounds(size)[1], enough))


def _narrow(vectors: int, target: Target) -> RegisterTile:
    """Returns a tile of so many vectors, of as many rows as fit."""
    return next(
        tile for rows in (8, 6, 4, 3, 2, 1) if (tile := RegisterTile(1, rows, vectors)).fits(target) or rows == 1
    )


def _cycles(queries: int, tiles: list[RegisterTile], lanes: int, target: Target) -> float:
    """Estimates the cycles of all queries, each with one key and one position."""
    whole, left = divmod(queries, lanes * len(tiles))
    used = [len(tiles)] * whole + ([left // lanes] if left >= lanes else []) + ([1] if left % lanes else [])
    return sum(tiles[vectors - 1].cycles(target) / tiles[vectors - 1].rows for vectors in used)
