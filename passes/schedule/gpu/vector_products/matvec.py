"""Schedules products of a matrix and few vectors, which are bound by fetching each element of the matrix once.

Where positions lie side by side in memory, threads of a warp take neighbouring positions and the warps of a block
divide the depth:

    for positions in blockIdx.x, threadIdx.x % 32:
        for depth = warp, warp + 8, …: sums += vectors[depth] * matrix[depth, positions]
        shared memory ← sums
        C = epilogue(sum of the warps' sums)

Where that leaves processors without a block, the depth is cut into slices as well, see `split_depth.py`.

Where depths lie side by side, each position has a warp, whose threads take neighbouring depths and add up their sums by
shuffles. Those of packed matrices load 16 bytes at once (`packed_matvec.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import s_tir, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.contractions.analysis import Factor, SumOfProducts, product_of
from nnefc.passes.schedule.gpu.contractions.operand_tile import lanes_along, lies_along_depth
from nnefc.passes.schedule.gpu.contractions.split_depth import DepthSlices
from nnefc.passes.schedule.gpu.contractions.tiling import fit_in_slices
from nnefc.passes.schedule.gpu.contractions.write_back import add_slices
from nnefc.passes.schedule.gpu.nest import (
    buffer,
    kernel_schedule,
    load,
    sequence,
    store,
    synchronize,
    warp_sum,
)
from nnefc.passes.schedule.gpu.vector_products.packed_matvec import PackedVectorProduct, matrix_packing
from nnefc.passes.schedule.gpu.vector_products.vector_product import VectorProduct, few_and_many
from nnefc.passes.tir.common.expressions import number
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import ceil_div, is_known, size_hint
from nnefc.targets.machine.gpu.description import WARP, Gpu
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["ByPosition", "VectorProductRule"]

_WARPS = 8  # of a block
_UNROLLED = 4  # fetches on their way at once
_MIN_DEPTH_OF_SLICE = 128


class VectorProductRule:
    """A sum of products with few rows, or few columns."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        product = product_of(kernel, target)
        factors = None if product is None else few_and_many(product)
        if product is None or factors is None:
            return None
        few, many, rows_are_many = factors
        packing = matrix_packing(product, many)
        if packing is not None:
            return PackedVectorProduct(product, few, many, rows_are_many, target.gpu, packing).schedule()
        way = _ByDepth if lies_along_depth(many) else ByPosition
        return way(product, few, many, rows_are_many, target.gpu).schedule()


class ByPosition(VectorProduct):
    """Threads of a warp at neighbouring positions, one or several each.

    Attributes:
        func, params: the kernel, and its buffers, made flat.
        together: sums that results are computed from: of a warp, one thread needs them all.
    """

    together = 1

    def __init__(self, product: SumOfProducts, few: Factor, many: Factor, rows_are_many: bool, gpu: Gpu) -> None:
        super().__init__(product, few, many, rows_are_many, gpu)
        self.func, self.params = product.func, product.params
        self._lanes = self.choose_lanes()

    @property
    def threads(self) -> Size:
        """Returns the threads that have positions, those of the other warps of a block apart."""
        return ceil_div(self._positions, self._lanes)

    def position(self, thread: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
        """Returns a position of a thread."""
        return thread * number(self._lanes) + lane

    def is_present(self, thread: tirx.Expr) -> tirx.Expr:
        """Whether a thread has positions."""
        return self.position(thread, number(0)) < number(self._positions)

    def each_lane(self, body: Callable[[tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`body` for each position of a thread."""
        return self._nest.lanes(self._lanes, body)

    def write(
        self,
        batch: tirx.Expr,
        thread: tirx.Expr,
        element: tirx.Expr,
        total: Callable[[tirx.Expr], tirx.Expr],
        slices: tirx.Var | None,
        which: tirx.Expr,
    ) -> tirx.Stmt:
        """Writes what comes of `together` sums of a thread, by their number among its vectors and lanes."""
        vector, lane = tirx.floordiv(element, number(self._lanes)), tirx.floormod(element, number(self._lanes))
        return self._write(batch, vector, self.position(thread, lane), total(number(0)), slices, which)

    def schedule(self) -> s_tir.Schedule:
        """Returns the launch, and another where slices of the depth are added up by one."""
        product, nest = self._product, self._nest
        groups = ceil_div(self.threads, WARP)
        results = self._batch * product.rows.size * product.columns.size
        self._steps, slices = self._choose_slices(size_hint(groups * self._batch), results)
        dtype = product.accumulator
        tiles, threads = groups * self._batch, WARP * _WARPS
        self._turns = -(-self._vectors * self._lanes // (self.together * _WARPS))
        joined = parts = None
        if slices > 1 and is_known(tiles):
            joined = DepthSlices.of(tiles, slices, threads, self._turns * self.together, dtype)
        elif slices > 1:
            parts = buffer("slices", slices * results, dtype)
        self._sums = nest.buffer("sums", self._vectors * self._lanes, dtype, "local")
        self._elements = nest.buffer("items", self._lanes, dtype, "local")
        self._shared = nest.buffer("warps", _WARPS * self._vectors * self._lanes * WARP, dtype, "shared")
        self._totals = nest.buffer("totals", self._turns * self.together, dtype, "local")

        def body(block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
            group, tail = tirx.floormod(block, number(groups)), tirx.floordiv(block, number(groups))
            which, batch = tirx.floormod(tail, number(slices)), tirx.floordiv(tail, number(slices))
            write = self._write_all(group, which, batch, thread, parts)
            if joined is not None:
                tile = nest.simplify(batch * number(groups) + group)
                write = joined.join(nest, self._totals, tile, which, thread, write)
            return sequence(self._add_up(group, which, batch, thread), write)

        launch = nest.launch(tiles * slices, threads, body)
        if joined is not None:
            return kernel_schedule(self.func, self.params, [launch], [joined.parts], joined.arrived)
        if parts is None:
            return kernel_schedule(self.func, self.params, [launch])
        return kernel_schedule(self.func, self.params, [launch, add_slices(product, parts, slices)], [parts])

    def _choose_slices(self, blocks: int, results: Size) -> tuple[Size, int]:
        """Returns the steps of a slice of the depth, and how many slices there are, if each has so many blocks."""
        steps = ceil_div(self._depth, _WARPS * _UNROLLED)
        if not is_known(results, self._depth) and not fit_in_slices(results, self._depth, self._blocks):
            return steps, 1
        wanted = max(1, min(self._blocks // blocks, self._depth // _MIN_DEPTH_OF_SLICE))
        of_slice = ceil_div(steps, wanted)
        return of_slice, ceil_div(steps, of_slice)

    def choose_lanes(self) -> int:
        """Returns the max positions per thread that leave enough blocks."""
        lanes = lanes_along(self._many, WARP * 4, 1, along_depth=False)
        while lanes > 1 and size_hint(self._batch * self._positions) // (WARP * lanes) < self._blocks:
            lanes //= 2
        return lanes

    def _own(self, group: tirx.Expr, thread: tirx.Expr) -> tirx.Expr:
        """Returns the number of a thread among those that have positions."""
        return group * number(WARP) + tirx.floormod(thread, number(WARP))

    def _each_element(self, thread: tirx.Expr, body: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`body(turn, element)` for the vectors and lanes, `together` as one, whose sums a warp adds up."""
        nest, warp = self._nest, tirx.floordiv(thread, number(WARP))
        count = self._vectors * self._lanes // self.together

        def one(turn: tirx.Expr) -> tirx.Stmt:
            element = turn * number(_WARPS) + warp
            known, stmt = element < number(count), body(turn, element)
            return stmt if nest.holds(known) else tirx.IfThenElse(nest.simplify(known), stmt, None)

        return nest.unrolled(self._turns, one)

    def _write_all(
        self, group: tirx.Expr, which: tirx.Expr, batch: tirx.Expr, thread: tirx.Expr, parts: tirx.Var | None
    ) -> tirx.Stmt:
        own = self._own(group, thread)

        def write(turn: tirx.Expr, element: tirx.Expr) -> tirx.Stmt:
            def total(index: tirx.Expr) -> tirx.Expr:
                return load(self._totals, turn * number(self.together) + index)

            return self.write(batch, own, element, total, parts, which)

        return self._each_element(thread, write)

    def _add_up(self, group: tirx.Expr, which: tirx.Expr, batch: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        """Returns the sums of a slice of the depth, and the totals of all warps."""
        nest, zero = self._nest, tirx.const(0, self._product.accumulator)
        lane, warp = tirx.floormod(thread, number(WARP)), tirx.floordiv(thread, number(WARP))
        own, counts = self._own(group, thread), self._vectors * self._lanes

        def one(index: tirx.Expr, unrolled: tirx.Expr) -> tirx.Stmt:
            depth = ((which * number(self._steps) + index) * number(_UNROLLED) + unrolled) * number(_WARPS) + warp
            inside = depth < number(self._depth)

            def fetch(of: tirx.Expr) -> tirx.Stmt:
                element = self._many.at(nest, batch, self.position(own, of), depth)
                return store(self._elements, self._guarded(element, inside, self.is_present(own)), of)

            def multiply(vector: tirx.Expr) -> tirx.Stmt:
                factor = self._guarded(self._few.at(nest, batch, vector, depth), inside)

                def add(of: tirx.Expr) -> tirx.Stmt:
                    at = vector * number(self._lanes) + of
                    return store(self._sums, load(self._sums, at) + factor * load(self._elements, of), at)

                return nest.unrolled(self._lanes, add)

            return sequence(self.each_lane(fetch), nest.unrolled(self._vectors, multiply))

        def put(index: tirx.Expr) -> tirx.Stmt:
            return store(self._shared, load(self._sums, index), (warp * number(counts) + index) * WARP + lane)

        def total(turn: tirx.Expr, element: tirx.Expr) -> tirx.Stmt:
            def of(index: tirx.Expr) -> tirx.Stmt:
                number_of_sum, whole = element * number(self.together) + index, zero
                for other in range(_WARPS):
                    at = (number(other * counts) + number_of_sum) * WARP + lane
                    whole = whole + load(self._shared, nest.simplify(at))
                return store(self._totals, whole, turn * number(self.together) + index)

            return nest.unrolled(self.together, of)

        return sequence(
            nest.unrolled(counts, lambda i: store(self._sums, zero, i)),
            nest.loop(self._steps, lambda index: nest.unrolled(_UNROLLED, lambda u: one(index, u)), "step"),
            nest.unrolled(counts, put),
            synchronize(),
            nest.unrolled(self._turns * self.together, lambda i: store(self._totals, zero, i)),
            self._each_element(thread, total),
        )


class _ByDepth(VectorProduct):
    """A warp for each position."""

    def schedule(self) -> s_tir.Schedule:
        product, nest = self._product, self._nest
        dtype = product.accumulator
        self._lanes = lanes_along(self._many, 1, WARP * 4, along_depth=True)
        if lanes_along(self._few, 1, WARP * 4, along_depth=True) < self._lanes:
            self._lanes = 1
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

            return nest.lanes(self._lanes, one)

        def multiply(vector: tirx.Expr) -> tirx.Stmt:
            def add(of: tirx.Expr) -> tirx.Stmt:
                product = load(self._factors, of) * load(self._elements, of)
                return store(self._sums, load(self._sums, vector) + product, vector)

            return sequence(fetch(self._few, vector, self._factors, inside_depth), nest.unrolled(self._lanes, add))

        return sequence(
            fetch(self._many, position, self._elements, inside_depth, present), nest.unrolled(self._vectors, multiply)
        )
