"""Schedules attention as one launch: its scores stay in registers.

    scores = Q Kᵀ;  weights = softmax(mask(scores));  result = weights V          →          one launch

Queries, keys and values of 16-bit floats are multiplied by tensor cores, others by multiply-adds of float32. A single
query has a rule of its own, `single_query_attention.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import s_tir, tirx
from tvm.backend.cuda.op import cuda_func_call

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda.warp_matrices import multiplier, pack_pairs, read_matrices
from nnefc.passes.schedule.gpu.attention.analysis import Attention, attention_of
from nnefc.passes.schedule.gpu.attention.fragments import Fragment
from nnefc.passes.schedule.gpu.attention.launch import AttentionLaunch
from nnefc.passes.schedule.gpu.attention.tiles import FmaTile, MatrixTile, choose_tile
from nnefc.passes.schedule.gpu.nest import kernel_schedule, load, sequence, store
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.cuda.gpus import MATRIX_INSTRUCTIONS, WARP
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = ["AttentionRule"]

_INSTRUCTION = MATRIX_INSTRUCTIONS["float16"]
_DEPTH, _ROWS, _COLUMNS = _INSTRUCTION.depth, _INSTRUCTION.rows, _INSTRUCTION.columns


class AttentionRule:
    """An attention of any number of queries."""

    def apply(self, kernel: KernelAnalysis, target: CudaTarget) -> s_tir.Schedule | None:
        attention = attention_of(kernel, target)
        if attention is None:
            return None
        launch = _by_tensor_cores(attention, target) or _by_multiply_adds(attention, target)
        return None if launch is None else kernel_schedule(attention.func, attention.params, [launch.nest()])


def _by_tensor_cores(attention: Attention, target: CudaTarget) -> AttentionLaunch | None:
    """Returns the launch where tensor cores multiply such operands, and a warp has registers for them."""
    dtype = _matrix_type(attention, target)
    tile = None if dtype is None else choose_tile(attention, target, by_tensor_cores=True)
    return _MatrixLaunch(attention, tile, target, dtype) if dtype and isinstance(tile, MatrixTile) else None


def _by_multiply_adds(attention: Attention, target: CudaTarget) -> AttentionLaunch | None:
    tile = choose_tile(attention, target, by_tensor_cores=False)
    return _FmaLaunch(attention, tile, target) if isinstance(tile, FmaTile) else None


def _matrix_type(attention: Attention, target: CudaTarget) -> str | None:
    """Returns the 16-bit float that tensor cores multiply, if queries are stored in it.

    Keys and values of other types, as caches have, are converted on their way to shared memory.
    """
    dtype = attention.left.stored.dtype
    if dtype not in ("float16", "bfloat16") or target.oldest < MATRIX_INSTRUCTIONS[dtype].oldest:
        return None
    return dtype


class _MatrixLaunch(AttentionLaunch):
    """Products by tensor cores: the powers are left operands as they lie in registers.

    Lane 4 g + t of a warp has rows g and g + 8, and columns 2 t and 2 t + 1, of each product of 16 rows and 8 columns;
    as the left operand of 16 rows and 16 depths it has the same of both halves.
    """

    _tile: MatrixTile

    def __init__(self, attention: Attention, tile: MatrixTile, target: CudaTarget, dtype: str) -> None:
        size, width = tile.size + tile.padding, tile.width + tile.padding
        super().__init__(attention, tile, target, dtype, (size, size, width), sharing=WARP // 8)
        self._type = {"float16": "f16", "bfloat16": "bf16"}[dtype]
        self._row_tiles, self._depths = tile.row_tiles, tile.size // _DEPTH
        self._left = self._nest.buffer("queries_part", 4 * self._row_tiles * self._depths, "uint32", "local")
        self._weights = self._nest.buffer("powers_part", 4 * self._row_tiles, "uint32", "local")
        self._right = self._nest.buffer("right_part", 4, "uint32", "local")

    def _fragments(self) -> tuple[Fragment, Fragment]:
        return self._fragment("scores", self._tile.keys), self._fragment("sums", self._tile.width)

    def _fragment(self, name: str, columns: int) -> Fragment:
        rows, groups = 2 * self._tile.row_tiles, columns // _COLUMNS

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

    def _of_lane(self) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
        """Returns the row that a thread addresses in a block of 8 by 8, and the block's index along both axes."""
        lane = tirx.floormod(self._thread, number(WARP))
        second = tirx.floormod(tirx.floordiv(lane, number(8)), number(2))
        return tirx.floormod(lane, number(8)), second, tirx.floordiv(lane, number(16))

    def _begin(self) -> tirx.Stmt:
        """Reads the fragments of all queries of the warp."""
        nest, side, zero = self._nest, self._queries, tirx.const(0, "uint32")
        eighth, second, last = self._of_lane()

        def fragment(row_tile: tirx.Expr, depth: tirx.Expr) -> tirx.Stmt:
            row = self._first_row(row_tile) + second * number(8) + eighth
            column = depth * number(_DEPTH) + last * number(8)
            position = nest.simplify(number(side.first) + row * number(side.stride) + column)
            at = (row_tile * number(self._depths) + depth) * number(4)
            return read_matrices(self._left, at, self._shared, position)

        # Zeros first: TVM makes buffers as small as it sees them used, which it does not in assembly.
        return sequence(
            nest.unrolled(4 * self._row_tiles * self._depths, lambda i: store(self._left, zero, i)),
            nest.unrolled(4, lambda i: store(self._right, zero, i)),
            nest.unrolled(
                self._row_tiles, lambda row: nest.unrolled(self._depths, partial(fragment, row), "depth"), "part"
            ),
        )

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
                left = (row_tile * number(self._depths) + depth) * number(4)
                return self._multiply(scores.registers, at, self._left, left, half)

            read = read_matrices(self._right, number(0), self._shared, position)
            return sequence(read, self._each_half(product))

        def depths(depth: tirx.Expr) -> tirx.Stmt:
            return nest.unrolled(groups // 2, partial(pair, depth), "columns")

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
                nest.unrolled(self._row_tiles, partial(self._packed, depth), "part"),
                nest.unrolled(groups // 2, partial(pair, depth), "columns"),
            )

        return nest.unrolled(self._tile.keys // _DEPTH, depths, "depth")

    def _packed(self, depth: tirx.Expr, row_tile: tirx.Expr) -> tirx.Stmt:
        """Rounds the powers of 16 keys to the left operand of a product."""
        scores = self._scores

        def register(index: tirx.Expr) -> tirx.Stmt:
            row = row_tile * number(2) + tirx.floormod(index, number(2))
            group = depth * number(2) + tirx.floordiv(index, number(2))
            low, high = (scores.at(row, group, number(lane)) for lane in (0, 1))
            return store(self._weights, pack_pairs(self._type, low, high), row_tile * number(4) + index)

        return self._nest.unrolled(4, register, "register")

    def _each_half(self, product: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`product(row tile, half)` for both blocks of eight columns that are read at once."""
        nest = self._nest
        return nest.unrolled(
            self._row_tiles, lambda row: nest.unrolled(2, lambda half: product(row, half), "eight"), "part"
        )

    def _multiply(
        self, sums: tirx.Var, at: tirx.Expr, left: tirx.Var, left_at: tirx.Expr, half: tirx.Expr
    ) -> tirx.Stmt:
        function, source = multiplier(self._type)
        parts = ((sums, at), (left, left_at), (self._right, half * number(2)))
        addresses = [tirx.address_of(load(part, index)) for part, index in parts]
        return tirx.Evaluate(cuda_func_call(function, *addresses, source_code=source))


class _FmaLaunch(AttentionLaunch):
    """Products by multiply-adds: eight threads share four queries, and the powers go through shared memory."""

    _tile: FmaTile

    def __init__(self, attention: Attention, tile: FmaTile, target: CudaTarget) -> None:
        self._distance = tile.threads // tile.columns  # from a thread's query to its next one
        stride = tile.stride(tile.size)
        self._powers_stride = tile.stride(tile.keys)
        further = tile.queries * self._powers_stride
        super().__init__(
            attention, tile, target, "float32", (stride, stride, tile.width), sharing=tile.columns, further=further
        )
        nest, rows = self._nest, tile.rows
        self._left = nest.buffer("left_part", 4 * rows, "float32", "local")
        self._right = nest.buffer("right_part", 4 * self._scores.groups, "float32", "local")
        self._value = nest.buffer("value_part", self._sums.groups * tile.lanes, "float32", "local")

    def _fragments(self) -> tuple[Fragment, Fragment]:
        return self._fragment("scores", self._tile.keys, 1), self._fragment("sums", self._tile.width, self._tile.lanes)

    def _fragment(self, name: str, columns: int, lanes: int) -> Fragment:
        tile = self._tile
        groups = columns // (tile.columns * lanes)

        def slot(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
            return (row * number(groups) + group) * number(lanes) + lane

        def column(group: tirx.Expr) -> tirx.Expr:
            return (group * number(tile.columns) + self._of_row()) * number(lanes)

        registers = self._nest.buffer(name, tile.rows * groups * lanes, "float32", "local")
        return Fragment(tile.rows, groups, lanes, column, slot, registers)

    def _of_row(self) -> tirx.Expr:
        """Returns the number of a thread among those that share queries."""
        return tirx.floormod(self._thread, number(self._tile.columns))

    def _row(self, row: tirx.Expr) -> tirx.Expr:
        return row * number(self._distance) + tirx.floordiv(self._thread, number(self._tile.columns))

    def _begin(self) -> tirx.Stmt | None:
        return None

    def _vectors(self, into: tirx.Var, at: tirx.Expr, position: tirx.Expr, lanes: int = 4) -> tirx.Stmt:
        """Reads neighbouring elements of shared memory into registers."""
        position = self._nest.simplify(position)
        return self._nest.lanes(lanes, lambda lane: store(into, load(self._shared, position + lane), at + lane))

    def _multiply_keys(self) -> tirx.Stmt:
        nest, scores, queries, keys = self._nest, self._scores, self._queries, self._keys
        zero = tirx.const(0, "float32")

        def step(index: tirx.Expr) -> tirx.Stmt:
            column = index * number(4)

            def query(row: tirx.Expr) -> tirx.Stmt:
                position = number(queries.first) + self._row(row) * number(queries.stride) + column
                return self._vectors(self._left, row * number(4), position)

            def key(group: tirx.Expr) -> tirx.Stmt:
                position = number(keys.first) + scores.column(group) * number(keys.stride) + column
                return self._vectors(self._right, group * number(4), position)

            def product(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
                def add(of: tirx.Expr) -> tirx.Stmt:
                    factors = load(self._left, row * number(4) + of) * load(self._right, group * number(4) + of)
                    return scores.put(scores.at(row, group, lane) + factors, row, group, lane)

                return nest.unrolled(4, add, "of")

            return sequence(
                nest.unrolled(scores.rows, query, "row"),
                nest.unrolled(scores.groups, key, "group"),
                scores.each(nest, product),
            )

        return sequence(
            nest.unrolled(scores.size, lambda i: store(scores.registers, zero, i)),
            nest.loop(self._tile.size // 4, step, "depth"),
        )

    def _publish(self) -> tirx.Stmt:
        scores = self._scores

        def one(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            position = self._power_at(self._row(row), scores.column(group) + lane)
            return store(self._shared, scores.at(row, group, lane), position)

        return scores.each(self._nest, one)

    def _power_at(self, row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
        return self._nest.simplify(number(self._values.end) + row * number(self._powers_stride) + column)

    def _multiply_values(self) -> tirx.Stmt:
        nest, sums, values = self._nest, self._sums, self._values

        def step(index: tirx.Expr) -> tirx.Stmt:
            first = index * number(4)

            def powers(row: tirx.Expr) -> tirx.Stmt:
                return self._vectors(self._left, row * number(4), self._power_at(self._row(row), first))

            def key(of: tirx.Expr) -> tirx.Stmt:
                def value(group: tirx.Expr) -> tirx.Stmt:
                    position = number(values.first) + (first + of) * number(values.stride) + sums.column(group)
                    return self._vectors(self._value, group * number(sums.lanes), position, sums.lanes)

                def add(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
                    factor = load(self._left, row * number(4) + of)
                    product = factor * load(self._value, group * number(sums.lanes) + lane)
                    return sums.put(sums.at(row, group, lane) + product, row, group, lane)

                return sequence(nest.unrolled(sums.groups, value, "group"), sums.each(nest, add))

            return sequence(nest.unrolled(sums.rows, powers, "row"), nest.unrolled(4, key, "key"))

        return nest.loop(self._tile.keys // 4, step, "depth")
