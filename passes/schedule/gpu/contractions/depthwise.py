"""Schedules depthwise convolutions and other short sums of products: one result per thread, without shared memory.

    for result in blockIdx.x, threadIdx.x:      # neighbouring threads: neighbouring pixels of one channel
        sum = 0
        for the window: sum += left * right     # unrolled; what neighbours fetch too comes from the first cache
        C = epilogue(sum)

Such sums are bound by memory: each element of the data is used by few threads, which run at the same time. Of tensors
in blocks of channels, a thread has the results of all channels that it loads at once:

    for block of channels, pixel in blockIdx.x, threadIdx.x:
        sums[8] = 0
        for the window: sums[:] += left[8 channels] * right[8 channels]     # loads of 16 bytes
        C[8 channels] = epilogue(sums[:])               # 16 where blocks have as many, as those of bytes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tvm import s_tir, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.contractions.analysis import Factor, SumOfProducts, product_of
from nnefc.passes.schedule.gpu.contractions.operand_tile import lies_along_depth
from nnefc.passes.schedule.gpu.contractions.write_back import write_one
from nnefc.passes.schedule.gpu.nest import Nest, kernel_schedule, load, sequence, store
from nnefc.passes.tir.common.expressions import loads_of, number, substituted, variables_of
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import ceil_div, is_known, may_exceed, size_hint
from nnefc.targets.machine.gpu.description import Gpu
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["DepthwiseRule"]

_MAX_PRODUCTS = 128  # of a sum
_MAX_UNROLLED = 49
_THREADS = 128
_BLOCKS_OF_PROCESSOR = 4  # that keep it busy
_TURNS = (4, 2, 1)  # results of one thread, which share the filter


class DepthwiseRule:
    """A short sum of products without rows: one operand is the same for all columns of a batch."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        product = product_of(kernel, target)
        if product is None or may_exceed(product.rows.size, 1) or not is_known(product.depth.size):
            return None
        if product.batch.size == 1 or lies_along_depth(product.operands[1]):
            return None  # a product of a vector and a matrix
        lanes = _lanes(product, target)
        is_long = product.depth.size > _MAX_PRODUCTS
        if is_long and (lanes == 1 or size_hint(product.columns.size) < _THREADS):
            return None
        if lanes > 1:
            return kernel_schedule(product.func, product.params, [_by_vector(product, lanes, target)])
        launch = (
            _by_channel(product, target.gpu) if size_hint(product.columns.size) >= 4 * _THREADS else _by_result(product)
        )
        return kernel_schedule(product.func, product.params, [launch])


def _by_channel(product: SumOfProducts, gpu: Gpu) -> tirx.Stmt:
    """Blocks that stay in one channel."""
    nest, columns, batch = Nest(product.aligned), product.columns.size, product.batch.size

    def tiles(turns: int) -> Size:
        return ceil_div(columns, turns * _THREADS)

    blocks = _BLOCKS_OF_PROCESSOR * gpu.processors
    turns = next(t for t in _TURNS if t == 1 or size_hint(tiles(t) * batch) >= blocks)
    sums = nest.buffer("sums", turns, product.accumulator, "local")

    def body(block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        which, tile = tirx.floordiv(block, number(tiles(turns))), tirx.floormod(block, number(tiles(turns)))
        first = tile * number(turns * _THREADS) + thread
        return _summed(nest, product, sums, turns, lambda turn: (which, first + turn * number(_THREADS)))

    return nest.launch(batch * tiles(turns), _THREADS, body)


def _by_result(product: SumOfProducts) -> tirx.Stmt:
    """Blocks of threads over channels as they come: for small images."""
    nest, columns = Nest(product.aligned), product.columns.size
    results = product.batch.size * columns
    sums = nest.buffer("sums", 1, product.accumulator, "local")

    def body(block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        result = block * number(_THREADS) + thread
        position = (tirx.floordiv(result, number(columns)), tirx.floormod(result, number(columns)))
        stmt = _summed(nest, product, sums, 1, lambda _: position)
        known = result < number(results)
        return stmt if nest.holds(known) else tirx.IfThenElse(known, stmt, None)

    return nest.launch(ceil_div(results, _THREADS), _THREADS, body)


def _lanes(product: SumOfProducts, target: GpuTarget) -> int:
    """Returns how many channels lie side by side in both operands, those of a block; 1 if they do not."""
    sizes = (target.channels_of_a_block(has_bytes) for has_bytes in (True, False))
    return next((lanes for lanes in sizes if lanes > 1 and _lie_side_by_side(product, lanes)), 1)


def _lie_side_by_side(product: SumOfProducts, lanes: int) -> bool:
    """Whether both operands have vectors of `lanes` channels."""
    if not is_known(product.batch.size) or product.batch.size % lanes:
        return False
    nest = Nest(product.aligned)
    group, lane = nest.variable("group", product.batch.size // lanes), nest.variable("lane", lanes)
    position, depth = nest.variable("position", product.columns.size), nest.variable("depth", product.depth.size)
    for operand, at in zip(product.operands, (number(0), position), strict=True):
        value = operand.at(nest, group * number(lanes) + lane, at, depth)
        loads = loads_of(value)
        if not any(lane in variables_of(load.indices) for load in loads) or not nest.vectorizes(value, lane, lanes):
            return False
    return True


def _by_vector(product: SumOfProducts, lanes: int, target: GpuTarget) -> tirx.Stmt:
    """Threads that have `lanes` channels of a pixel each: blocks of threads stay in one block of channels, or where
    images are small, go on from one to the next."""
    columns, groups = product.columns.size, product.batch.size // lanes
    launch = _VectorLaunch(product, lanes, target)
    tiles = ceil_div(columns, _THREADS)
    if size_hint(columns) >= 2 * _THREADS:

        def in_group(block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
            group, tile = tirx.floordiv(block, number(tiles)), tirx.floormod(block, number(tiles))
            column = tile * number(_THREADS) + thread
            return launch.guarded(column < number(columns), launch.result(group, column))

        return launch.nest.launch(groups * tiles, _THREADS, in_group)

    def in_all(block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        index = block * number(_THREADS) + thread
        group, column = tirx.floordiv(index, number(columns)), tirx.floormod(index, number(columns))
        return launch.guarded(index < number(groups * columns), launch.result(group, column))

    return launch.nest.launch(ceil_div(groups * columns, _THREADS), _THREADS, in_all)


class _VectorLaunch:
    """The results of one thread: the channels of a group, at one pixel."""

    def __init__(self, product: SumOfProducts, lanes: int, target: GpuTarget) -> None:
        self.nest = Nest(product.aligned)
        self._product, self._lanes, self._target = product, lanes, target
        self._sums = self.nest.buffer("sums", lanes, product.accumulator, "local")
        self._stored = [_as_stored(operand) for operand in product.operands]
        self._parts = [
            self.nest.buffer(f"{name}_part", lanes, str(operand.value.expr_ty().dtype), "local")
            for name, operand in zip(("left", "right"), self._stored, strict=True)
        ]
        self._results = self.nest.buffer("results", lanes, str(product.output.dtype), "local")

    def guarded(self, condition: tirx.Expr, stmt: tirx.Stmt) -> tirx.Stmt:
        """Returns a statement for the threads that have a result."""
        return stmt if self.nest.holds(condition) else tirx.IfThenElse(self.nest.simplify(condition), stmt, None)

    def result(self, group: tirx.Expr, column: tirx.Expr) -> tirx.Stmt:
        """Returns the sums of a group of channels at a pixel, and their way to the result."""
        nest, lanes, dtype = self.nest, self._lanes, self._product.accumulator
        # Single variables: sums instead of them would keep divisions from being simplified.
        own_group = nest.variable("group", nest.end(group))
        own_column = nest.variable("column", self._product.columns.size)
        known = {own_group: group, own_column: column}

        def add(depth: tirx.Expr) -> tirx.Stmt:
            def product(lane: tirx.Expr) -> tirx.Stmt:
                left, right = (tirx.Cast(dtype, load(part, lane)) for part in self._parts)
                return store(self._sums, load(self._sums, lane) + left * right, lane)

            loads = [
                self._vectors(part, partial(self._element, operand, known, column, depth))
                for part, operand, column in zip(self._parts, self._stored, (number(0), own_column), strict=True)
            ]
            return sequence(*loads, nest.unrolled(lanes, product))

        depth = self._product.depth.size
        over = nest.unrolled if depth <= _MAX_UNROLLED else nest.loop
        zeros = nest.unrolled(lanes, lambda lane: store(self._sums, tirx.const(0, dtype), lane))
        return sequence(zeros, over(depth, add, "depth"), *self._write(known, own_group, own_column))

    def _element(
        self,
        operand: Factor,
        known: Mapping[tirx.Var, tirx.Expr],
        column: tirx.Expr,
        depth: tirx.Expr,
        lane: tirx.Expr,
    ) -> tirx.Expr:
        group = next(iter(known))
        return substituted(operand.at(self.nest, group * number(self._lanes) + lane, column, depth), known)

    def _vectors(self, part: tirx.Var, element: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Stmt:
        """Fills registers, as many bytes at once as a thread loads."""
        width = min(self._lanes, self._target.lanes(str(part.dtype)))

        def vector(index: tirx.Expr) -> tirx.Stmt:
            first = index * number(width)
            return self.nest.lanes(width, lambda lane: store(part, element(first + lane), first + lane))

        return self.nest.unrolled(self._lanes // width, vector)

    def _write(self, known: Mapping[tirx.Var, tirx.Expr], group: tirx.Var, column: tirx.Var) -> Sequence[tirx.Stmt]:
        """Computes the epilogue of vectors of float32, and writes vectors of the result's type."""
        nest, product, output = self.nest, self._product, self._product.output

        def stored(lane: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
            batch = group * number(self._lanes) + lane
            return product.stored(nest, batch, number(0), column, load(self._sums, lane))

        narrow, wide = (self._target.lanes(dtype) for dtype in (product.accumulator, str(output.dtype)))
        lane, first = nest.variable("lane", narrow), nest.variable("first", self._lanes // narrow)
        position, value = stored(first * number(narrow) + lane)
        if not (nest.is_aligned(position, lane, narrow) and nest.vectorizes(value, lane, narrow)):

            def one(lane: tirx.Expr) -> tirx.Stmt:
                position, value = (substituted(part, known) for part in stored(lane))
                return store(output, value, position)

            return [nest.unrolled(self._lanes, one)]

        def computed(index: tirx.Expr) -> tirx.Stmt:
            at = index * number(narrow)
            return nest.lanes(
                narrow, lambda lane: store(self._results, substituted(stored(at + lane)[1], known), at + lane)
            )

        width = min(wide, self._lanes)

        def written(index: tirx.Expr) -> tirx.Stmt:
            at = index * number(width)
            return nest.lanes(
                width,
                lambda lane: store(output, load(self._results, at + lane), substituted(stored(at + lane)[0], known)),
            )

        return [nest.unrolled(self._lanes // narrow, computed), nest.unrolled(self._lanes // width, written)]


def _as_stored(operand: Factor) -> Factor:
    """Returns the operand in the type that it has in memory."""
    value = operand.value
    return replace(operand, value=value.value) if isinstance(value, tirx.Cast) else operand


def _summed(
    nest: Nest,
    product: SumOfProducts,
    sums: tirx.Var,
    turns: int,
    position: Callable[[tirx.Expr], tuple[tirx.Expr, tirx.Expr]],
) -> tirx.Stmt:
    """Returns the sums of one thread, whose batch and column in each turn are `position(turn)`."""
    left, right = product.operands
    columns, dtype = product.columns.size, product.accumulator

    def add(depth: tirx.Expr) -> tirx.Stmt:
        def one(turn: tirx.Expr) -> tirx.Stmt:
            batch, column = position(turn)
            known = column < number(columns)
            element = right.at(nest, batch, column, depth)
            if not nest.holds(known):
                element = tirx.if_then_else(nest.simplify(known), element, tirx.const(0, dtype))
            return store(sums, load(sums, turn) + left.at(nest, batch, number(0), depth) * element, turn)

        return nest.unrolled(turns, one)

    def write(turn: tirx.Expr) -> tirx.Stmt:
        batch, column = position(turn)
        return write_one(nest, product, batch, number(0), column, load(sums, turn))

    depth = product.depth.size
    over = nest.unrolled if depth <= _MAX_UNROLLED else nest.loop
    return sequence(
        nest.unrolled(turns, lambda turn: store(sums, tirx.const(0, dtype), turn)),
        over(depth, add, "depth"),
        nest.unrolled(turns, write),
    )
