"""Converts between row-major and blocked layout by transposing tiles in registers instead of element by element.

A tile is 16 positions of one block of b channels. Seen as vectors of 16 elements, the position of an element has the
bits of the vector's number, then those of the lane. Interleaving the first half of the vectors with the second moves
the first of these bits to the end:

    c₃ c₂ c₁ c₀ p₃ p₂ p₁ p₀     →     c₂ c₁ c₀ p₃ p₂ p₁ p₀ c₃

so that log₂ b stages move channels behind positions, and four stages move positions behind channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import te, tirx
from tvm.ir import PrimType

from nnefc.passes.compute.blocked import blocks
from nnefc.symbolic.dims import Dimension, ceil_div, expression, size_hint

__all__ = ["POSITIONS", "transpose_to_blocks", "transpose_to_row_major"]

POSITIONS = 16
"""The positions of a tile. Smaller tensors are not transposed here; the last tile overlaps the previous one, and stores
some elements again.
"""

_MIN_PARALLEL_ELEMENTS = 1 << 14

_Vectors = list[tirx.Expr]


@dataclass(frozen=True)
class _Tiles:
    """The layouts of both directions: `batch` images of `channels`, in blocks of `size`, at `positions` pixels."""

    batch: Dimension
    channels: int
    positions: Dimension
    size: int
    dtype: str

    @property
    def blocks(self) -> int:
        return blocks(self.channels, self.size)

    @property
    def per_block(self) -> Dimension:
        """Tiles that cover all positions of a block."""
        return ceil_div(self.positions, POSITIONS)

    def row_major(self, image: tirx.Expr, channel: tirx.Expr, position: tirx.Expr) -> tirx.Expr:
        """Returns a flat index in row-major layout."""
        return (image * self.channels + channel) * self.positions + position

    def blocked(self, image: tirx.Expr, block: tirx.Expr, position: tirx.Expr) -> tirx.Expr:
        """Returns a flat index of the first channel of a block."""
        return ((image * self.blocks + block) * self.positions + position) * self.size

    def vector(self, index: tirx.Expr) -> tirx.Expr:
        """Returns the indices of a vector from `index` on."""
        return tirx.Ramp(index, tirx.IntImm("int64", 1), POSITIONS)


def transpose_to_blocks(data: te.Tensor, batch: int, channels: int, positions: int, size: int) -> te.Tensor:
    """`[N, C, P]` → `[N, ceil(C / size), P, size]`, both flat; the last block is filled up with zeros.

    P is at least `POSITIONS`, `size` a power of two.
    """
    tiles = _Tiles(batch, channels, positions, size, str(data.dtype))

    def tile(source: tirx.Var, target: tirx.Var, at: Sequence[tirx.Expr], count: int) -> tirx.Stmt:
        image, block, position = at
        zero = tirx.Broadcast(tirx.const(0, tiles.dtype), POSITIONS)
        lines = [tiles.row_major(image, block * size + channel, position) for channel in range(count)]
        vectors = [source[tiles.vector(line)] for line in lines] + [zero] * (size - count)
        first = tiles.blocked(image, block, position)
        ends = [first + i * POSITIONS for i in range(size)]
        return _moved(tiles, vectors, size.bit_length() - 1, target, ends)

    return _extern(tiles, data, tiles.batch * tiles.blocks * tiles.positions * size, tile, "block")


def transpose_to_row_major(data: te.Tensor, batch: int, channels: int, positions: int, size: int) -> te.Tensor:
    """`[N, ceil(C / size), P, size]` → `[N, C, P]`, both flat; P and `size` as above."""
    tiles = _Tiles(batch, channels, positions, size, str(data.dtype))

    def tile(source: tirx.Var, target: tirx.Var, at: Sequence[tirx.Expr], count: int) -> tirx.Stmt:
        image, block, position = at
        first = tiles.blocked(image, block, position)
        vectors = [source[tiles.vector(first + i * POSITIONS)] for i in range(size)]
        ends = [tiles.row_major(image, block * size + channel, position) for channel in range(count)]
        return _moved(tiles, vectors, POSITIONS.bit_length() - 1, target, ends)

    return _extern(tiles, data, batch * channels * positions, tile, "unblock")


def _extern(tiles: _Tiles, data: te.Tensor, size: int, tile: Callable[..., tirx.Stmt], name: str) -> te.Tensor:
    """Returns a computation over flat buffers: the tiles of full blocks, then those of a block that is filled up."""
    source = tirx.decl_buffer(data.shape, tiles.dtype, "source", elem_offset=0)
    shape = (expression(size),)
    target = tirx.decl_buffer(shape, tiles.dtype, "target", elem_offset=0)

    def body(ins: Sequence[tirx.Var], outs: Sequence[tirx.Var]) -> tirx.Stmt:
        whole, tail = divmod(tiles.channels, tiles.size)
        parts = [(0, whole, tiles.size), (whole, 1 if tail else 0, tail)]
        loops = [
            _loop(tiles, first, number, partial(tile, ins[0], outs[0], count=used))
            for first, number, used in parts
            if number
        ]
        return loops[0] if len(loops) == 1 else tirx.SeqStmt(loops)

    return te.extern(
        [(expression(size),)], [data], body, dtype=[tiles.dtype], in_buffers=[source], out_buffers=[target], name=name
    )


def _loop(tiles: _Tiles, first: int, number: int, tile: Callable[[Sequence[tirx.Expr]], tirx.Stmt]) -> tirx.Stmt:
    """Returns all tiles of the blocks `first` … `first + number` of all images."""
    size = tiles.batch * number * tiles.per_block
    index = tirx.Var("tile", "int64")
    block = tirx.floordiv(index, tiles.per_block)
    position = tirx.min(tirx.floormod(index, tiles.per_block) * POSITIONS, expression(tiles.positions - POSITIONS))
    at = tirx.floordiv(block, number), tirx.floormod(block, number) + first, position
    large = size_hint(size * POSITIONS * tiles.size) >= _MIN_PARALLEL_ELEMENTS
    kind = tirx.ForKind.PARALLEL if large else tirx.ForKind.SERIAL
    return tirx.For(index, tirx.IntImm("int64", 0), expression(size), kind, tile(at))


def _moved(tiles: _Tiles, vectors: _Vectors, iterations: int, target: tirx.Var, ends: Sequence[tirx.Expr]) -> tirx.Stmt:
    """Interleaves the first and the last vectors `iterations` times, and stores the first results at `ends`."""
    steps: list[tirx.Stmt] = []

    def bound(value: tirx.Expr) -> tirx.Expr:
        var = tirx.Var("v", PrimType(f"{tiles.dtype}x{POSITIONS}"))
        steps.append(tirx.Bind(var, value))
        return var

    vectors = [bound(vector) for vector in vectors]
    half = POSITIONS // 2
    for _ in range(iterations):
        pairs = list(zip(vectors[: len(vectors) // 2], vectors[len(vectors) // 2 :], strict=True))
        vectors = [
            bound(tirx.Shuffle([a, b], [i for lane in range(start, start + half) for i in (lane, POSITIONS + lane)]))
            for a, b in pairs
            for start in (0, half)
        ]
    steps += [tirx.BufferStore(target, vector, [tiles.vector(end)]) for vector, end in zip(vectors, ends, strict=False)]
    return tirx.SeqStmt(steps)
