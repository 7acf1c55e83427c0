"""Multiplies the matrices of an attention of 16-bit floats by warpgroups (`wgmma`), while threads compute powers.

    shared memory ← queries, the first keys
    scores = queries · keysᵀ; powers
    for tile of keys after the first:
        wait for the sums, make them relative to the largest scores so far, round the powers
        wait for copies of the tile's keys, and of the values of the tile before; wait for the other threads
        begin scores = queries · keysᵀ
        begin sums = sums + powers · values of the tile before
        begin to copy the tile's values, and the next keys
        wait for the scores; compute their powers              # while the products with values run
    the first two of these steps, and sums = sums + powers · values, of the last tile

Queries, keys and values are in shared memory, in swizzled rows; keys and values have two stages. The powers are the
left operand as they lie in registers. Dao et al. describe this order in "FlashAttention-3" (2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from nnefc.ir.gpu_operators import wait_for_copies
from nnefc.passes.schedule.cuda.portable_products import ProductTypes
from nnefc.passes.schedule.cuda.swizzled_tile import RowLayout, SwizzledLayout
from nnefc.passes.schedule.cuda.warp_attention import MatrixLaunch, padded_sizes
from nnefc.passes.schedule.cuda.warpgroup_matrices import (
    begin_products,
    commit_products,
    fence_copies,
    multiply_matrices,
    multiply_registers,
    wait_for_products,
)
from nnefc.passes.schedule.gpu.attention.analysis import Attention, Matrix
from nnefc.passes.schedule.gpu.attention.fragments import SharedTile
from nnefc.passes.schedule.gpu.attention.tiles import OTHER_REGISTERS, AttentionTile
from nnefc.passes.schedule.gpu.nest import sequence, store, synchronize
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.cuda.capabilities import WARPGROUP, WARPGROUP_INSTRUCTION
from nnefc.targets.machine.cuda.target import CudaTarget
from nnefc.targets.machine.gpu.description import LOAD_BYTES, SCHEDULERS, SHARED_BYTES_PER_CYCLE, WARP, Gpu

__all__ = ["WarpgroupAttentionLaunch", "WarpgroupAttentionTile", "warpgroup_attention_tiles"]

_DEPTH, _ROWS = WARPGROUP_INSTRUCTION.depth, WARPGROUP_INSTRUCTION.rows
_LANES = LOAD_BYTES // 2
_STAGES = 2
_SCORE_INSTRUCTIONS, _STEP_INSTRUCTIONS = 6, 200  # of a thread, for a score and for a tile of keys, as machine code has
_TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (192, 64), (192, 128))


@dataclass(frozen=True)
class WarpgroupAttentionTile(AttentionTile):
    """A tile of which each warpgroup has 64 queries."""

    @property
    def threads(self) -> int:
        return self.queries // _ROWS * WARPGROUP

    @property
    def registers(self) -> int:
        of_scores = self.keys // 2 + self.keys // 4 + self.keys // 4  # with rounded powers, and what masks take
        return self.width // 2 + of_scores + OTHER_REGISTERS

    @property
    def shared_bytes(self) -> int:
        return 2 * (self.queries * self.size + _STAGES * self.keys * (self.size + self.width))

    @property
    def bytes_of_keys(self) -> int:
        return 2 * self.keys * (self.size + self.width)

    def multiply_cycles(self, gpu: Gpu) -> float:
        of_warpgroup = _ROWS * self.keys / gpu.warpgroup_multiply_adds
        warpgroups = self.queries // _ROWS
        products = warpgroups * of_warpgroup * (self.size + self.width)
        # Each product reads its columns, and those with keys the queries, too.
        read = (warpgroups * self.bytes_of_keys + 2 * self.queries * self.size) / SHARED_BYTES_PER_CYCLE
        instructions = (_SCORE_INSTRUCTIONS * self.keys + self.width) // 2 + _STEP_INSTRUCTIONS
        issue = self.threads / WARP * instructions / SCHEDULERS
        # Powers are computed while products run, but for the scores that they are made of.
        return max(products, read, issue) + of_warpgroup * self.size + gpu.step_cycles


def warpgroup_attention_tiles(attention: Attention) -> list[WarpgroupAttentionTile]:
    """Returns the tiles of queries and keys."""
    sizes = padded_sizes(attention)
    return [WarpgroupAttentionTile(queries, keys, *sizes) for queries, keys in _TILES]


@dataclass(frozen=True)
class _SwizzledShare(SharedTile):
    """A tile in swizzled rows of up to 64 columns: the rows of all of these columns, then those of the next ones.

    Attributes:
        layout: of a stage.
        by_depth: whether its rows are depths of the product, as those of values are.
    """

    layout: SwizzledLayout
    by_depth: bool

    def at(self, row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
        """Returns the index in shared memory, from the stage's first, of the elements that a thread fetches at once."""
        vector = self.layout.at(column, row) if self.by_depth else self.layout.at(row, column)
        return vector + tirx.floormod(column, number(_LANES))


class WarpgroupAttentionLaunch(MatrixLaunch):
    """Products by `wgmma`; code for devices without it has `mma.sync` on the same tiles."""

    _queries: _SwizzledShare
    _keys: _SwizzledShare
    _values: _SwizzledShare

    def __init__(self, attention: Attention, tile: WarpgroupAttentionTile, target: CudaTarget, dtype: str) -> None:
        strides = (tile.size, tile.size, tile.width)
        super().__init__(attention, tile, target, dtype, strides, row_tiles=1, weights=tile.keys // 4)
        self._types = ProductTypes(dtype, dtype, "float32")

    def _shared_tile(self, matrix: Matrix, rows: int, columns: int, first: int, stride: int) -> SharedTile:
        by_depth, stages = matrix is self._attention.values, 1 if matrix is self._attention.left else _STAGES
        layout = SwizzledLayout(columns, rows, _LANES, along_depth=False)
        if not by_depth:
            layout = RowLayout(rows, columns, _LANES, True, layout.row_vectors * _LANES)
        made = super()._shared_tile(matrix, rows, columns, first, stride)
        return _SwizzledShare(
            made.matrix, rows, columns, first, stride, made.lanes, made.copied, stages, layout, by_depth
        )

    def _declared(self) -> tirx.Stmt:
        """Declares the powers: TVM makes buffers as small as it sees them used, which it does not in assembly."""
        return self._nest.unrolled(self._tile.keys // 4, lambda i: store(self._weights, tirx.const(0, "uint32"), i))

    def _steps(self, first: tirx.Expr, count: tirx.Expr) -> tirx.Stmt:
        nest, keys = self._nest, number(self._tile.keys)
        count = nest.simplify(tirx.max(count, number(1)))  # without a key, one tile of which nothing is seen
        last = nest.simplify(count - number(1))

        def copied(index: tirx.Expr) -> tirx.Stmt:
            """Begins to copy the values of a tile, and the keys of the next."""
            start, following = first + index * keys, index + number(1)
            ahead = self._fetch(self._keys, start + keys, self._end, _stage(following))
            return sequence(
                self._fetch(self._values, start, self._end, _stage(index)),
                tirx.IfThenElse(following < count, ahead, None),
            )

        def step(before: tirx.Expr) -> tirx.Stmt:
            index = before + number(1)
            return sequence(
                self._sums_known(),
                self._rescale(),
                self._rounded(),
                self._arrived(),
                self._products(self._scores_of(index), self._values_of(before)),
                copied(index),
                self._scores_known(pending=1),
                self._softmax(nest.simplify(first + index * keys)),
            )

        return sequence(
            self._declared(),
            self._arrived(),
            self._products(self._scores_of(number(0))),
            copied(number(0)),
            self._scores_known(pending=0),
            self._softmax(first),
            nest.until(last, step, "step"),
            self._sums_known(),
            self._rescale(),
            self._rounded(),
            self._arrived(),
            self._products(self._values_of(last)),
            self._sums_known(),
        )

    def _arrived(self) -> tirx.Stmt:
        """Waits for all copies, which products may read then, and for all threads to be done with what they read."""
        return sequence(wait_for_copies(0), fence_copies(), synchronize())

    def _products(self, *groups: tirx.Stmt) -> tirx.Stmt:
        """Begins groups of products, one after the other."""
        registers = ((self._scores.registers, self._scores.size), (self._sums.registers, self._sums.size))
        begun = begin_products(*registers, (self._weights, self._tile.keys // 4))
        return sequence(begun, *(stmt for group in groups for stmt in (group, commit_products())))

    def _sums_known(self) -> tirx.Stmt:
        """Waits for all products.

        An iteration begins with it: at its end, NVIDIA's compiler would move it before the powers.
        """
        return wait_for_products(0, self._sums.registers, self._sums.size)

    def _scores_known(self, pending: int) -> tirx.Stmt:
        return wait_for_products(pending, self._scores.registers, self._scores.size)

    def _scores_of(self, index: tirx.Expr) -> tirx.Stmt:
        """Begins the products of the queries and a tile of keys."""
        queries, keys, nest = self._queries, self._keys, self._nest
        warpgroup = tirx.floordiv(self._thread, number(WARPGROUP))

        def product(depth: int) -> tirx.Stmt:
            offsets = (
                number(queries.first) + queries.layout.rows_at(warpgroup * number(_ROWS), depth),
                number(keys.first) + _stage(index) * number(keys.size) + keys.layout.rows_at(number(0), depth),
            )
            return multiply_matrices(
                self._scores.registers, number(0), self._types, self._tile.keys, self._shared,
                (queries.layout, keys.layout), (nest.simplify(offsets[0]), nest.simplify(offsets[1])), adds=depth > 0,
            )  # fmt: skip

        return sequence(*map(product, range(0, self._tile.size, _DEPTH)))

    def _values_of(self, index: tirx.Expr) -> tirx.Stmt:
        """Begins the products of the powers and a tile of values."""
        values = self._values

        def product(depth: int) -> tirx.Stmt:
            stage = number(values.first) + _stage(index) * number(values.size)
            offset = stage + values.layout.rows_at(number(0), depth)
            left = self._weights, number(depth // 4)
            return multiply_registers(
                self._sums.registers, self._types, self._tile.width, left, self._shared, values.layout,
                self._nest.simplify(offset),
            )  # fmt: skip

        return sequence(*map(product, range(0, self._tile.keys, _DEPTH)))

    def _rounded(self) -> tirx.Stmt:
        """Rounds the powers to the left operands of products."""
        nest = self._nest
        return nest.unrolled(
            self._tile.keys // _DEPTH, lambda depth: self._packed(depth, number(0), depth * number(4)), "depth"
        )


def _stage(index: tirx.Expr) -> tirx.Expr:
    return tirx.floormod(index, number(_STAGES))
