"""How a convolution is computed: small models of what each way costs on the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnefc.passes.compute.winograd import tiles_of
from nnefc.passes.schedule.cpu.contraction import choose_tile
from nnefc.targets.machine.target import Target

__all__ = ["Shape", "columns_to_add", "winograd_pays"]

_CACHE_BYTES_PER_CYCLE = 16  # what one core streams from its outer caches, to write and to read again
_MEMORY_BYTES_PER_CYCLE = 6  # what one core streams from memory: the transformed filter, once a run
_TRANSFORM_CYCLES = 220  # for one tile of 6 × 6 vectors, either way
_LEAST_GAIN = 1.15
_MOST_COLUMNS_TO_ADD = 8


@dataclass(frozen=True)
class Shape:
    """A two-dimensional convolution: extents of its result, input channels, blocks of both channels, filter size."""

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


def winograd_pays(shape: Shape, target: Target) -> bool:
    """Whether Winograd's algorithm is faster than the direct sum, transforms and memory traffic included.

    It multiplies whole blocks of input channels; the direct sum has no use for what fills up the last one.
    """
    if shape.kernel != (3, 3) or any(s != 1 for s in (*shape.strides, *shape.dilation)) or shape.groups != 1:
        return False
    lanes = target.lanes("float32")
    size = max(lanes, 8)
    tiles = shape.batch * tiles_of(shape.height) * tiles_of(shape.width)
    pairs = shape.in_blocks * shape.out_blocks * size * size // lanes  # vector multiply-adds for one place
    vector_bytes = 4 * size
    direct = 9 * shape.batch * shape.height * shape.width * shape.inputs * shape.out_blocks * size // lanes
    filters = 4 * size * size * shape.in_blocks * shape.out_blocks
    direct += 9 * filters // _MEMORY_BYTES_PER_CYCLE // 2  # half of it is hidden behind the arithmetic
    vectors = (shape.in_blocks + shape.out_blocks) * tiles
    cost = 36 * tiles * pairs
    cost += vectors * _TRANSFORM_CYCLES * size // lanes
    cost += 2 * 36 * vectors * vector_bytes // _CACHE_BYTES_PER_CYCLE
    cost += 36 * filters // _MEMORY_BYTES_PER_CYCLE
    return direct > _LEAST_GAIN * cost


def columns_to_add(height: int, width: int, out_blocks: int, target: Target) -> int:
    """How many columns a result needs more, to be cut off again, so that tiles of registers divide it well; often 0.

    A prime width leaves tiles of one column, which wait for loads most of the time.
    """

    def cycles(extra: int) -> float:
        tile = choose_tile(height, width + extra, out_blocks, target)
        return (width + extra) / tile.share(target.vector_loads)

    best = min(range(_MOST_COLUMNS_TO_ADD + 1), key=cycles)
    return best if cycles(0) > _LEAST_GAIN * cycles(best) else 0
