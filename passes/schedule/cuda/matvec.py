"""Schedules products of a matrix and few vectors, which are bound by fetching each element of the matrix once.

Where positions lie side by side in memory, threads of a warp take neighbouring positions and the warps of a block
divide the depth:

    for positions in blockIdx.x, threadIdx.x % 32:
        for depth = warp, warp + 8, …: sums += vectors[depth] * matrix[depth, positions]
        shared memory ← sums
        C = epilogue(sum of the warps' sums)

Where depths lie side by side, each position has a warp, whose threads take neighbouring depths and add up their sums by
shuffles.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda.contraction_analysis import Factor, SumOfProducts, product_of
from nnefc.passes.schedule.cuda.nest import (
    Nest,
    buffer,
    kernel_schedule,
    load,
    sequence,
    store,
    synchronize,
    warp_sum,
)
from nnefc.passes.schedule.cuda.operand_tile import lanes_along, lies_along_depth, main_load, shares_bytes
from nnefc.passes.schedule.cuda.tiled_launch import ELEMENTS
from nnefc.passes.schedule.cuda.tiling import fit_in_slices
from nnefc.passes.schedule.cuda.write_back import add_slices, write_one
from nnefc.passes.tir.common.expressions import number
from nnefc.passes.tir.common.shapes import Size, elements_of
from nnefc.symbolic.dims import ceil_div, is_known, may_exceed, size_hint
from nnefc.targets.machine.cuda.gpus import WARP, Gpu
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = ["VectorProductRule"]

_MAX_VECTORS = 4
_MIN_POSITIONS = 8  # fewer are no matrix
_MIN_DEPTH = 16
_WARPS = 8  # of a block
_SOME_BYTES = 8  # elements that a thread takes of those that share bytes
_UNROLLED = 4  # fetches on their way at once
_BLOCKS_OF_PROCESSOR = 2  # that keep it busy
_MIN_DEPTH_OF_SLICE = 128


class VectorProductRule:
    """A sum of products with few rows, or few columns."""

    def apply(self, kernel: KernelAnalysis, target: CudaTarget) -> s_tir.Schedule | None:
        product = product_of(kernel, target)
        if product is None or product.accumulator not in ELEMENTS or size_hint(product.depth.size) < _MIN_DEPTH:
            return None
        left, right = product.operands
        if _are_few(left) and left.positions.size <= size_hint(right.positions.size):
            few, many, rows_are_many = left, right, False
        elif _are_few(right):
            few, many, rows_are_many = right, left, True
        else:
            return None
        if size_hint(many.positions.size) < _MIN_POSITIONS or not _is_matrix(many):
            return None
        way = _ByDepth if lies_along_depth(many) else _ByPosition
        return way(product, few, many, rows_are_many, target.gpu).schedule()


def _are_few(operand: Factor) -> bool:
    """Whether an operand is a few vectors; how many must be known, for a thread has a sum for each."""
    return is_known(operand.positions.size) and operand.positions.size <= _MAX_VECTORS


def _is_matrix(operand: Factor) -> bool:
    """Whether no element is fetched twice, but scales that blocks share; of the windows of a convolution most are."""
    elements = operand.batch.size * operand.positions.size * operand.depth.size
    load = main_load(operand.value)
    return load is not None and (shares_bytes(operand) or not may_exceed(elements, elements_of(load.source)))


class _VectorProduct:
    """The part that both variants share."""

    def __init__(self, product: SumOfProducts, few: Factor, many: Factor, rows_are_many: bool, gpu: Gpu) -> None:
        self._blocks = _BLOCKS_OF_PROCESSOR * gpu.processors
        self._product, self._few, self._many, self._rows_are_many = product, few, many, rows_are_many
        self._vectors, self._positions = few.positions.size, many.positions.size
        self._batch, self._depth = product.batch.size, product.depth.size
        self._nest = Nest(product.aligned)

    def _guarded(self, value: tirx.Expr, *conditions: tirx.Expr) -> tirx.Expr:
        """Returns the value where the conditions hold, else zero."""
        unknown = [self._nest.simplify(c) for c in conditions if not self._nest.holds(c)]
        if not unknown:
            return value
        return tirx.if_then_else(tirx.all(*unknown), value, tirx.const(0, self._product.accumulator))

    def _write(
        self,
        batch: tirx.Expr,
        vector: tirx.Expr,
        position: tirx.Expr,
        total: tirx.Expr,
        slices: tirx.Var | None = None,
        which: tirx.Expr | None = None,
    ) -> tirx.Stmt:
        row, column = (position, vector) if self._rows_are_many else (vector, position)
        return write_one(self._nest, self._product, batch, row, column, total, slices, which)


class _ByPosition(_VectorProduct):
    """Threads of a warp at neighbouring positions."""

    def schedule(self) -> s_tir.Schedule:
        product, nest = self._product, self._nest
        self._lanes = self._choose_lanes()
        groups = ceil_div(self._positions, WARP * self._lanes)
        results = self._batch * product.rows.size * product.columns.size
        self._steps, slices = self._choose_slices(size_hint(groups * self._batch), results)
        dtype = product.accumulator
        size = slices * results
        parts = buffer("slices", size, dtype) if slices > 1 else None
        self._sums = nest.buffer("sums", self._vectors * self._lanes, dtype, "local")
        self._elements = nest.buffer("items", self._lanes, dtype, "local")
        self._shared = nest.buffer("warps", _WARPS * self._vectors * self._lanes * WARP, dtype, "shared")

        def body(block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
            group, tail = tirx.floormod(block, number(groups)), tirx.floordiv(block, number(groups))
            which, batch = tirx.floormod(tail, number(slices)), tirx.floordiv(tail, number(slices))
            return self._block(group, which, batch, thread, parts)

        launch = nest.launch(groups * slices * self._batch, WARP * _WARPS, body)
        if parts is None:
            return kernel_schedule(product.func, product.params, [launch])
        return kernel_schedule(product.func, product.params, [launch, add_slices(product, parts, slices)], [parts])

    def _choose_slices(self, blocks: int, results: Size) -> tuple[Size, int]:
        """Returns the steps of a slice of the depth, and how many slices there are, if each has so many blocks."""
        steps = ceil_div(self._depth, _WARPS * _UNROLLED)
        if not is_known(results, self._depth) and not fit_in_slices(results, self._depth, self._blocks):
            return steps, 1
        wanted = max(1, min(self._blocks // blocks, self._depth // _MIN_DEPTH_OF_SLICE))
        of_slice = ceil_div(steps, wanted)
        return of_slice, ceil_div(steps, of_slice)

    def _choose_lanes(self) -> int:
        """Returns the max positions per thread that leave enough blocks."""
        lanes = lanes_along(self._many, WARP * 4, 1, along_depth=False)
        while lanes > 1 and size_hint(self._batch * self._positions) // (WARP * lanes) < self._blocks:
            lanes //= 2
        return lanes

    def _block(
        self, group: tirx.Expr, which: tirx.Expr, batch: tirx.Expr, thread: tirx.Expr, parts: tirx.Var | None
    ) -> tirx.Stmt:
        nest, lanes, dtype = self._nest, self._lanes, self._product.accumulator
        lane, warp = tirx.floormod(thread, number(WARP)), tirx.floordiv(thread, number(WARP))
        first = (group * number(WARP) + lane) * number(lanes)
        counts = self._vectors * lanes

        def step(index: tirx.Expr) -> tirx.Stmt:
            return nest.unrolled(_UNROLLED, lambda u: one(index, u))

        def one(index: tirx.Expr, unrolled: tirx.Expr) -> tirx.Stmt:
            depth = ((which * number(self._steps) + index) * number(_UNROLLED) + unrolled) * number(_WARPS) + warp
            inside = depth < number(self._depth)

            def fetch(of: tirx.Expr) -> tirx.Stmt:
                element = self._many.at(nest, batch, first + of, depth)
                return store(self._elements, self._guarded(element, inside, first < number(self._positions)), of)

            def multiply(vector: tirx.Expr) -> tirx.Stmt:
                factor = self._guarded(self._few.at(nest, batch, vector, depth), inside)

                def add(of: tirx.Expr) -> tirx.Stmt:
                    at = vector * number(lanes) + of
                    return store(self._sums, load(self._sums, at) + factor * load(self._elements, of), at)

                return nest.unrolled(lanes, add)

            return sequence(nest.lanes(lanes, fetch), nest.unrolled(self._vectors, multiply))

        def put(index: tirx.Expr) -> tirx.Stmt:
            return store(self._shared, load(self._sums, index), (warp * number(counts) + index) * WARP + lane)

        def finish(turn: tirx.Expr) -> tirx.Stmt:
            element = turn * number(_WARPS) + warp  # of all vectors and lanes
            total: tirx.Expr = tirx.const(0, dtype)
            for other in range(_WARPS):
                total = total + load(self._shared, nest.simplify((number(other * counts) + element) * WARP + lane))
            vector, of = tirx.floordiv(element, number(lanes)), tirx.floormod(element, number(lanes))
            stmt = self._write(batch, vector, first + of, total, parts, which)
            known = element < number(counts)
            return stmt if nest.holds(known) else tirx.IfThenElse(nest.simplify(known), stmt, None)

        return sequence(
            nest.unrolled(counts, lambda i: store(self._sums, tirx.const(0, dtype), i)),
            nest.loop(self._steps, step, "step"),
            nest.unrolled(counts, put),
            synchronize(),
            nest.unrolled(-(-counts // _WARPS), finish),
        )


class _ByDepth(_VectorProduct):
    """A warp for each position."""

    def schedule(self) -> s_tir.Schedule:
        product, nest = self._product, self._nest
        dtype = product.accumulator
        self._lanes = lanes_along(self._many, 1, WARP * 4, along_depth=True)
        if lanes_along(self._few, 1, WARP * 4, along_depth=True) < self._lanes:
            self._lanes = 1
        self._each = nest.lanes
        if shares_bytes(self._many) and self._depth % _SOME_BYTES == 0:
            self._lanes, self._each = _SOME_BYTES, nest.unrolled
        self._groups = ceil_div(self._positions, _WARPS)
        self._sums = nest.buffer("sums", self._vectors, dtype, "local")
        self._elements = nest.buffer("items", self._lanes, dtype, "local")
        self._factors = nest.buffer("factors", self._lanes, dtype, "local")
        launch = nest.launch(self._groups * self._batch, WARP * _WARPS, self._block)
        return kernel_schedule(product.func, product.params, [launch])

    def _block(self, block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        nest, zero = self._nest, tirx.const(0, self._product.accumulator)
        lane, warp = tirx.floormod(thread, number(WARP)), tirx.floordiv(thread, number(WARP))
        position = tirx.floormod(block, number(self._groups)) * number(_WARPS) + warp
        batch = tirx.floordiv(block, number(self._groups))

        def finish(vector: tirx.Expr) -> tirx.Stmt:
            stmt = self._write(batch, vector, position, load(self._sums, vector))
            return tirx.IfThenElse(tirx.EQ(lane, number(0)), stmt, None)

        return sequence(
            nest.unrolled(self._vectors, lambda v: store(self._sums, zero, v)),
            nest.loop(
                ceil_div(self._depth, WARP * self._lanes),
                lambda step: self._step(batch, position, (step * number(WARP) + lane) * number(self._lanes)),
                "step",
            ),
            nest.unrolled(self._vectors, lambda v: warp_sum(nest, self._sums, v)),
            nest.unrolled(self._vectors, finish),
        )

    def _step(self, batch: tirx.Expr, position: tirx.Expr, depth: tirx.Expr) -> tirx.Stmt:
        """Fetches some depths of the position and multiplies them by those of all vectors."""
        nest = self._nest
        inside_depth, present = depth < number(self._depth), position < number(self._positions)

        def fetch(operand: Factor, which: tirx.Expr, into: tirx.Var, *conditions: tirx.Expr) -> tirx.Stmt:
            def one(of: tirx.Expr) -> tirx.Stmt:
                return store(into, self._guarded(operand.at(nest, batch, which, depth + of), *conditions), of)

            return self._each(self._lanes, one)

        def multiply(vector: tirx.Expr) -> tirx.Stmt:
            def add(of: tirx.Expr) -> tirx.Stmt:
                product = load(self._factors, of) * load(self._elements, of)
                return store(self._sums, load(self._sums, vector) + product, vector)

            return sequence(fetch(self._few, vector, self._factors, inside_depth), nest.unrolled(self._lanes, add))

        return sequence(
            fetch(self._many, position, self._elements, inside_depth, present), nest.unrolled(self._vectors, multiply)
        )
