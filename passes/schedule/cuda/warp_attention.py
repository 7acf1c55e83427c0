"""Multiplies the matrices of an attention of 16-bit floats by instructions of a warp (`mma.sync`).

Lane 4 g + t of a warp has rows g and g + 8, and columns 2 t and 2 t + 1, of each product of 16 rows and 8 columns; as
the left operand of 16 rows and 16 depths it has the same of both halves. So the powers are the left operand of their
product with values as they lie in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from nnefc.passes.schedule.cuda.warp_matrices import ELEMENTS, multiplier, pack_pairs, read_matrices
from nnefc.passes.schedule.gpu.attention.analysis import Attention
from nnefc.passes.schedule.gpu.attention.fragments import Fragment
from nnefc.passes.schedule.gpu.attention.launch import AttentionLaunch, SerialLaunch
from nnefc.passes.schedule.gpu.attention.tiles import INSTRUCTIONS_OF_POWER, OTHER_REGISTERS, AttentionTile, filled
from nnefc.passes.schedule.gpu.nest import load, sequence, store
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.cuda.capabilities import MATRIX_INSTRUCTIONS
from nnefc.targets.machine.cuda.target import CudaTarget
from nnefc.targets.machine.gpu.description import SHARED_BYTES_PER_CYCLE, WARP, Architecture, Gpu

__all__ = ["MatrixLaunch", "WarpAttentionLaunch", "WarpAttentionTile", "padded_sizes", "warp_attention_tiles"]

_INSTRUCTION = MATRIX_INSTRUCTIONS["float16"]
_DEPTH, _ROWS, _COLUMNS = _INSTRUCTION.depth, _INSTRUCTION.rows, _INSTRUCTION.columns
_TILES = (
    (16, 64, 1),
    (32, 64, 1),
    (64, 32, 1),
    (64, 64, 1),
    (64, 128, 1),
    (128, 32, 1),
    (128, 64, 1),
    (128, 64, 2),
    (128, 128, 2),
)


@dataclass(frozen=True)
class WarpAttentionTile(AttentionTile):
    """A tile for tensor cores, of 16-bit floats: each warp has some times 16 of the queries.

    Attributes:
        row_tiles: how many times 16 queries a warp has.
        keeps_queries: whether a thread has all of its queries in registers; else it reads them for each tile of keys.
    """

    row_tiles: int
    keeps_queries: bool

    padding = 8
    """Elements between rows in shared memory: what eight threads read at once falls into different banks."""

    @property
    def threads(self) -> int:
        return WARP * self.queries // (16 * self.row_tiles)

    @property
    def registers(self) -> int:
        kept = self.size if self.keeps_queries else _DEPTH
        return self.row_tiles * (self.width // 2 + self.keys // 2 + kept // 4) + OTHER_REGISTERS

    @property
    def shared_bytes(self) -> int:
        size, width = self.size + self.padding, self.width + self.padding
        return 2 * (self.queries * size + self.keys * (size + width))

    @property
    def bytes_of_keys(self) -> int:
        return 2 * self.keys * (self.size + self.width)

    def multiply_cycles(self, gpu: Gpu) -> float:
        products = self.queries * self.keys * (self.size + self.width) / gpu.tensor_multiply_adds
        # A fragment of keys or values is read from shared memory for all queries of a warp.
        read = self.bytes_of_keys * self.threads / WARP + (0 if self.keeps_queries else 2 * self.queries * self.size)
        powers = self.queries * self.keys * INSTRUCTIONS_OF_POWER / gpu.architecture.multiply_adds
        return max(products, read / SHARED_BYTES_PER_CYCLE) + powers


def padded_sizes(attention: Attention) -> tuple[int, int]:
    """Returns the lengths of queries and of values, filled up as instructions multiply them."""
    return filled(attention.size, _DEPTH), filled(attention.width, 2 * _COLUMNS)  # `ldmatrix` reads two blocks


def warp_attention_tiles(attention: Attention, architecture: Architecture) -> list[WarpAttentionTile]:
    """Returns the tiles, which keep queries in registers where a thread has enough of them."""
    sizes = padded_sizes(attention)
    tiles = [WarpAttentionTile(queries, keys, *sizes, rows, keeps_queries=True) for queries, keys, rows in _TILES]
    limit = architecture.registers_per_thread
    return [tile if tile.registers <= limit else replace(tile, keeps_queries=False) for tile in tiles]


class MatrixLaunch(AttentionLaunch):
    """What instructions of warps and of warpgroups have in common: fragments of scores, powers and sums.

    Args:
        strides: of rows of queries, keys and values in shared memory.
        row_tiles: how many times 16 queries a warp has.
        weights: registers of a thread with rounded powers.
    """

    def __init__(
        self,
        attention: Attention,
        tile: AttentionTile,
        target: CudaTarget,
        dtype: str,
        strides: tuple[int, int, int],
        row_tiles: int,
        weights: int,
    ) -> None:
        self._row_tiles = row_tiles
        super().__init__(attention, tile, target, dtype, strides, sharing=WARP // 8)
        self._weights = self._nest.buffer("powers_part", weights, "uint32", "local")

    def _fragments(self) -> tuple[Fragment, Fragment]:
        return self._fragment("scores", self._tile.keys), self._fragment("sums", self._tile.width)

    def _fragment(self, name: str, columns: int) -> Fragment:
        rows, groups = 2 * self._row_tiles, columns // _COLUMNS

        def slot(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
            of_rows = tirx.floordiv(row, number(2)) * number(groups) + group
            return of_rows * number(4) + tirx.floormod(row, number(2)) * number(2) + lane

        def column(group: tirx.Expr) -> tirx.Expr:
            return group * number(_COLUMNS) + tirx.floormod(self._thread, number(4)) * number(2)

        registers = self._nest.buffer(name, rows * groups * 2, "float32", "local")
        return Fragment(rows, groups, 2, column, slot, registers)

    def _row(self, row: tirx.Expr) -> tirx.Expr:
        group = tirx.floordiv(tirx.floormod(self._thread, number(WARP)), number(4))
        return self._first_row(tirx.floordiv(row, number(2))) + tirx.floormod(row, number(2)) * number(8) + group

    def _first_row(self, row_tile: tirx.Expr) -> tirx.Expr:
        """Returns the query at which a part of the warp's begins."""
        warp = tirx.floordiv(self._thread, number(WARP))
        return (warp * number(self._row_tiles) + row_tile) * number(_ROWS)

    def _packed(self, depth: tirx.Expr, row_tile: tirx.Expr, at: tirx.Expr) -> tirx.Stmt:
        """Rounds the powers of 16 keys to the left operand of a product, in four registers from `at` on."""
        scores = self._scores

        def register(index: tirx.Expr) -> tirx.Stmt:
            row = row_tile * number(2) + tirx.floormod(index, number(2))
            group = depth * number(2) + tirx.floordiv(index, number(2))
            low, high = (scores.at(row, group, number(lane)) for lane in (0, 1))
            return store(self._weights, pack_pairs(ELEMENTS[self._element], low, high), at + index)

        return self._nest.unrolled(4, register, "register")


class WarpAttentionLaunch(MatrixLaunch, SerialLaunch):
    """Products by `mma.sync`: a warp reads fragments of keys and values from shared memory."""

    _tile: WarpAttentionTile

    def __init__(self, attention: Attention, tile: WarpAttentionTile, target: CudaTarget, dtype: str) -> None:
        size, width, rows = tile.size + tile.padding, tile.width + tile.padding, tile.row_tiles
        super().__init__(attention, tile, target, dtype, (size, size, width), rows, 4 * rows)
        self._depths = tile.size // _DEPTH
        self._kept_depths = self._depths if tile.keeps_queries else 1
        self._left = self._nest.buffer("queries_part", 4 * rows * self._kept_depths, "uint32", "local")
        self._right = self._nest.buffer("right_part", 4, "uint32", "local")

    def _of_lane(self) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
        """Returns the row that a thread addresses in a block of 8 by 8, and the block's index along both axes."""
        lane = tirx.floormod(self._thread, number(WARP))
        second = tirx.floormod(tirx.floordiv(lane, number(8)), number(2))
        return tirx.floormod(lane, number(8)), second, tirx.floordiv(lane, number(16))

    def _begin(self) -> tirx.Stmt:
        """Reads the fragments of all queries of the warp that it keeps."""
        nest, zero = self._nest, tirx.const(0, "uint32")
        # Zeros first: TVM makes buffers as small as it sees them used, which it does not in assembly.
        return sequence(
            nest.unrolled(4 * self._row_tiles * self._kept_depths, lambda i: store(self._left, zero, i)),
            nest.unrolled(4, lambda i: store(self._right, zero, i)),
            nest.unrolled(self._depths, self._read_queries, "depth") if self._tile.keeps_queries else None,
        )

    def _read_queries(self, depth: tirx.Expr) -> tirx.Stmt:
        """Reads the fragments of 16 depths of the warp's queries."""
        side = self._queries
        eighth, second, last = self._of_lane()

        def fragment(row_tile: tirx.Expr) -> tirx.Stmt:
            row = self._first_row(row_tile) + second * number(8) + eighth
            column = depth * number(_DEPTH) + last * number(8)
            position = self._nest.simplify(number(side.first) + row * number(side.stride) + column)
            return read_matrices(self._left, self._left_at(row_tile, depth), self._shared, position)

        return self._nest.unrolled(self._row_tiles, fragment, "part")

    def _left_at(self, row_tile: tirx.Expr, depth: tirx.Expr) -> tirx.Expr:
        """Returns the register at which the fragment of a depth of queries begins."""
        kept = depth if self._tile.keeps_queries else number(0)
        return (row_tile * number(self._kept_depths) + kept) * number(4)

    def _multiply_keys(self) -> tirx.Stmt:
        nest, side, scores = self._nest, self._keys, self._scores
        eighth, second, last = self._of_lane()
        groups = scores.groups

        def pair(depth: tirx.Expr, columns: tirx.Expr) -> tirx.Stmt:
            row = columns * number(2 * _COLUMNS) + last * number(8) + eighth
            column = depth * number(_DEPTH) + second * number(8)
            position = nest.simplify(number(side.first) + row * number(side.stride) + column)

            def product(row_tile: tirx.Expr, half: tirx.Expr) -> tirx.Stmt:
                at = (row_tile * number(groups) + columns * number(2) + half) * number(4)
                return self._multiply(scores.registers, at, self._left, self._left_at(row_tile, depth), half)

            read = read_matrices(self._right, number(0), self._shared, position)
            return sequence(read, self._each_half(product))

        def depths(depth: tirx.Expr) -> tirx.Stmt:
            products = nest.unrolled(groups // 2, partial(pair, depth), "columns")
            return products if self._tile.keeps_queries else sequence(self._read_queries(depth), products)

        zero = tirx.const(0, "float32")
        return sequence(
            nest.unrolled(scores.size, lambda i: store(scores.registers, zero, i)),
            nest.unrolled(self._depths, depths, "depth"),
        )

    def _multiply_values(self) -> tirx.Stmt:
        nest, side, groups = self._nest, self._values, self._sums.groups
        eighth, second, last = self._of_lane()

        def pair(depth: tirx.Expr, columns: tirx.Expr) -> tirx.Stmt:
            row = depth * number(_DEPTH) + second * number(8) + eighth
            column = columns * number(2 * _COLUMNS) + last * number(8)
            position = nest.simplify(number(side.first) + row * number(side.stride) + column)

            def product(row_tile: tirx.Expr, half: tirx.Expr) -> tirx.Stmt:
                at = (row_tile * number(groups) + columns * number(2) + half) * number(4)
                return self._multiply(self._sums.registers, at, self._weights, row_tile * number(4), half)

            read = read_matrices(self._right, number(0), self._shared, position, transposed=True)
            return sequence(read, self._each_half(product))

        def depths(depth: tirx.Expr) -> tirx.Stmt:
            return sequence(
                nest.unrolled(self._row_tiles, lambda row: self._packed(depth, row, row * number(4)), "part"),
                nest.unrolled(groups // 2, partial(pair, depth), "columns"),
            )

        return nest.unrolled(self._tile.keys // _DEPTH, depths, "depth")

    def _each_half(self, product: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`product(row tile, half)` for both blocks of eight columns that are read at once."""
        nest = self._nest
        return nest.unrolled(
            self._row_tiles, lambda row: nest.unrolled(2, lambda half: product(row, half), "eight"), "part"
        )

    def _multiply(
        self, sums: tirx.Var, at: tirx.Expr, left: tirx.Var, left_at: tirx.Expr, half: tirx.Expr
    ) -> tirx.Stmt:
        function, source = multiplier(ELEMENTS[self._element])
        parts = ((sums, at), (left, left_at), (self._right, half * number(2)))
        addresses = [tirx.address_of(load(part, index)) for part, index in parts]
        return tirx.Evaluate(cuda_func_call(function, *addresses, source_code=source))
