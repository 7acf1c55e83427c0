"""Chooses a convolution's algorithm by models of the cost of each on the target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnefc.passes.compute.tile_sizes import choose_tile
from nnefc.passes.compute.winograd import Tile, points_of, tiles_of
from nnefc.symbolic.dims import Size
from nnefc.targets.machine.cpu.target import Target

__all__ = [
    "FLOAT16_TILES",
    "INTEGER_SPEEDS",
    "INTEGER_TILES",
    "NARROW_TILES",
    "TILES",
    "Shape",
    "columns_to_add",
    "winograd_bytes",
    "winograd_saving",
]

TILES: tuple[Tile, ...] = ((2, 2), (2, 4), (4, 2), (4, 4))
"""The tile sizes of Winograd's algorithm in float32."""

NARROW_TILES: tuple[Tile, ...] = ((2, 2),)
"""The tile sizes for products of bfloat16: larger tiles round too much (`passes/compute/winograd.py`)."""

FLOAT16_TILES: tuple[Tile, ...] = ((2, 2), (2, 4), (4, 2))
"""The tile sizes for float16, in which transforms are computed too."""

INTEGER_TILES: tuple[Tile, ...] = ((2, 2),)
"""The tile sizes for bytes, in int16: exact."""

INTEGER_SPEEDS = (1.5, 1.6)
"""The speed of integer products relative to float32: of bytes by quads, and of int16 by `vpmaddwd`, whose weights need
no conversion (measured: Zen 4).
"""

# Vector instructions that transform a column of a tile, before and after the products, by its results: the mean of
# both, estimated in `passes/compute/winograd.py`.
_TRANSFORM_ARITHMETIC = {2: 4, 4: 14}
_MIN_GAIN = 1.15
_MIN_GAIN_OF_BLOCKS = 1.05  # of dynamic sizes
_MAX_COLUMNS_TO_ADD = 8
_MAX_BLOCKS_TO_ADD = 3


@dataclass(frozen=True)
class Shape:
    """A two-dimensional convolution: sizes of its result, input channels, blocks of both channels, filter size."""

    batch: int
    height: int
    width: int
    inputs: int
    in_blocks: int
    out_blocks: int
    kernel: tuple[int, ...]
    strides: Sequence[int]
    dilation: Sequence[int]
    groups: int


def winograd_saving(
    shape: Shape,
    tile: Tile,
    constants_rate: float,
    target: Target,
    speeds: tuple[float, float] = (1, 1),
    exposed_share: float = 1.0,
) -> float:
    """Returns the cycles that Winograd's algorithm saves, transforms and memory traffic included; negative where it
    takes more.

    It multiplies full blocks of input channels; the direct sum has no use for what fills up the last one. What it
    saves less than a good part of counts as nothing, and what it cannot compute costs infinitely much.

    Args:
        constants_rate: bytes of a filter that arrive in a cycle.
        speeds: products that are made in the time of one of float32, by the direct sum and by this algorithm; those
            faster than one are products of 16 bits.
        exposed_share: of the time that transformed data and products take to and from outer caches, which arithmetic
            does not hide.
    """
    if shape.kernel != (3, 3) or any(s != 1 for s in (*shape.strides, *shape.dilation)) or shape.groups != 1:
        return -math.inf
    costs, lanes = target.costs, target.lanes("float32")
    size = max(target.block_lanes("float32"), 8)
    direct_speed, speed = speeds
    tiles = shape.batch * tiles_of(shape.height, tile[0]) * tiles_of(shape.width, tile[1])
    pairs = shape.in_blocks * shape.out_blocks * size * size // lanes  # vector multiply-adds for one position
    filters = size * size * shape.in_blocks * shape.out_blocks
    positions = shape.batch * shape.height * shape.width
    direct = 9 * positions * shape.inputs * shape.out_blocks * size / lanes / costs.multiply_adds / direct_speed
    direct += 9 * filters * _element_bytes(direct_speed) / constants_rate / 2  # half of it hides behind the arithmetic
    vectors, points = (shape.in_blocks + shape.out_blocks) * tiles, points_of(tile)
    cost = points * tiles * pairs / costs.multiply_adds / speed
    in_fp16 = speed > 1 and target.float16_type == "float16"
    in_vector = 2 * lanes if in_fp16 else lanes
    waiting = costs.loops.transform_waiting
    cost += vectors * _transform_arithmetic(tile) * waiting * size / in_vector / costs.multiply_adds
    made = 2 if in_fp16 else 4  # bytes of a product
    exchanged = [
        points * tiles * size * width for width in (shape.in_blocks * _element_bytes(speed), shape.out_blocks * made)
    ]
    cost += exposed_share * sum(2 * part / _exchange_rate(part, sum(exchanged), target) for part in exchanged)
    cost += points * filters * _element_bytes(speed) / constants_rate  # the transformed filter, once a run
    return min(direct - cost, 0) if direct <= _MIN_GAIN * cost else direct - cost


def _element_bytes(speed: float) -> int:
    """Returns the size of an element of a type that is multiplied so many times as fast as float32."""
    return 4 if speed == 1 else 2


def _transform_arithmetic(tile: Tile) -> int:
    """Returns the vector instructions that transform one tile: its rows, then the columns of the result."""
    down, across = tile
    return (down + 2) * _TRANSFORM_ARITHMETIC[across] + (across + 2) * _TRANSFORM_ARITHMETIC[down]


def winograd_bytes(shape: Shape, tile: Tile, size: int, speed: float = 1) -> int:
    """Returns the growth of the filter by the transformation, compared with the packed one without padding.

    Args:
        size: channels of a block.
        speed: of products of what the filter is stored in, see :func:`winograd_saving`.
    """
    inputs = shape.inputs if shape.inputs % size else shape.in_blocks * size
    added = points_of(tile) * shape.in_blocks * size - 9 * inputs
    return _element_bytes(speed) * shape.out_blocks * size * added


def _exchange_rate(size: int, both: int, target: Target) -> float:
    """Returns the bytes in a cycle that are written to a tensor of so many bytes, and later read.

    A write to an outer cache takes three times as long as a read: the line comes in, and goes out again.

    Args:
        both: bytes of the transformed data and of the products, which are in the second cache together.
    """
    second = target.costs.l2_bytes
    found_in = both if both <= second else max(size, second + 1)  # the third cache, or memory
    return target.costs.bytes_per_cycle(found_in) / 2


def columns_to_add(height: int, width: int, vectors: int, target: Target) -> int:
    """Returns the columns to add to a result, and crop later, so that register tiles divide it well; often 0.

    A prime width leaves tiles of one column, which wait for loads most of the time.

    Args:
        vectors: of output channels that a tile may have.
    """

    if isinstance(width, Size):
        return 0  # the last tile of a dynamic width is made of smaller ones
    if target.quirks.spills_sums:
        return 0  # the last tile may be smaller

    def cycles(extra: int) -> float:
        tile = choose_tile(height, width + extra, vectors, target)
        return (width + extra) / tile.share(target)

    best = min(range(_MAX_COLUMNS_TO_ADD + 1), key=cycles)
    return best if cycles(0) > _MIN_GAIN * cycles(best) else 0


def blocks_to_add(height: int, width: int, out_blocks: int, target: Target) -> int:
    """Returns the blocks of output channels to add to a result, and crop later: a tile of few pixels needs several
    blocks to hide latency.

    With a dynamic number of pixels, any number of them may be a tile; a number of blocks without divisors then leaves
    tiles of one column, which load as often as they multiply.
    """

    is_dynamic = isinstance(width, Size) or isinstance(height, Size)
    if is_dynamic and not target.quirks.spills_float_sums:
        return 0

    def cycles(extra: int) -> float:
        return (out_blocks + extra) / share(out_blocks + extra)

    def share(blocks: int) -> float:
        sizes = [(1, rows) for rows in range(1, target.vectors.registers)] if is_dynamic else [(height, width)]
        return max(choose_tile(*size, blocks, target).share(target) for size in sizes)

    best = min(range(_MAX_BLOCKS_TO_ADD + 1), key=cycles)
    return best if cycles(0) > (_MIN_GAIN_OF_BLOCKS if is_dynamic else _MIN_GAIN) * cycles(best) else 0
