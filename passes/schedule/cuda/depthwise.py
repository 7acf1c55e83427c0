"""Schedules depthwise convolutions and other short sums of products: one result per thread, without shared memory.

    for result in blockIdx.x, threadIdx.x:      # neighbouring threads: neighbouring pixels of one channel
        sum = 0
        for the window: sum += left * right     # unrolled; what neighbours fetch too comes from the first cache
        C = epilogue(sum)

Such sums are bound by memory: each element of the data is used by few threads, which run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import s_tir, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda.contraction_analysis import SumOfProducts, product_of
from nnefc.passes.schedule.cuda.nest import Nest, kernel_schedule, load, sequence, store
from nnefc.passes.schedule.cuda.operand_tile import lies_along_depth
from nnefc.passes.schedule.cuda.write_back import write_one
from nnefc.passes.tir.common.expressions import number
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import ceil_div, is_known, may_exceed, size_hint
from nnefc.targets.machine.cuda.gpus import Gpu
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = ["DepthwiseRule"]

_MAX_PRODUCTS = 128  # of a sum
_MAX_UNROLLED = 49
_THREADS = 128
_BLOCKS_OF_PROCESSOR = 4  # that keep it busy
_TURNS = (4, 2, 1)  # results of one thread, which share the filter


class DepthwiseRule:
    """A short sum of products without rows: one operand is the same for all columns of a batch."""

    def apply(self, kernel: KernelAnalysis, target: CudaTarget) -> s_tir.Schedule | None:
        product = product_of(kernel, target)
        if product is None or may_exceed(product.rows.size, 1) or not is_known(product.depth.size):
            return None
        if product.depth.size > _MAX_PRODUCTS:
            return None
        if product.batch.size == 1 or lies_along_depth(product.operands[1]):
            return None  # a product of a vector and a matrix
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
