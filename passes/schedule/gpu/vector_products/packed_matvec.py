"""Schedules products of few vectors and a matrix that is packed along the depth, as one that is quantized in blocks.

A warp has one position or several; a thread unpacks up to 16 bytes of each at once.

    for part of the depth:
        registers ← bytes and scales of the part, for all positions of the warp         # on their way together
        shared memory ← the part of the vectors, for all warps of the block
        sums += scale * sum(integers * vectors)                                          # by thread
    C = epilogue(sum of the threads' sums)                                               # by shuffles

What is a factor of all elements of a vector of bytes, as the scale of a block, multiplies their sum. In shared memory,
groups of elements that one thread reads lie 16 bytes apart: eight threads read 16 bytes each from all banks.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import s_tir, tirx

from nnefc.passes.schedule.gpu.contractions.analysis import Factor, SumOfProducts
from nnefc.passes.schedule.gpu.contractions.operand_tile import lanes_along, main_load
from nnefc.passes.schedule.gpu.contractions.packed_vectors import PackedVectors, Packing, packing_of
from nnefc.passes.schedule.gpu.nest import kernel_schedule, load, sequence, store, synchronize, warp_sum
from nnefc.passes.schedule.gpu.vector_products.vector_product import VectorProduct
from nnefc.passes.tir.common.expressions import loads_of, number, substituted
from nnefc.symbolic.dims import ceil_div, is_known, size_hint
from nnefc.targets.machine.gpu.description import WARP, Gpu

__all__ = ["PackedVectorProduct", "matrix_packing"]

_WARPS = 8  # of a block
_SHORTEST = 8  # elements that a thread unpacks at once
_READ = 4  # elements of a vector that a thread reads from shared memory at once
_GAP = 4  # between groups of them
_MAX_WORDS = 32  # registers of bytes on their way
_MAX_SUMS = 32  # registers of a unit's sums
_MAX_SHARED_BYTES = 40 << 10
_FEWER = (4, 2, 1)  # positions of a warp, and steps of a part


def matrix_packing(product: SumOfProducts, many: Factor) -> Packing | None:
    """Returns how threads unpack the matrix of a product with few vectors; None if it is not packed."""
    depth = product.depth.size
    if product.accumulator != "float32" or not is_known(depth):
        return None
    return packing_of(many, depth, _SHORTEST, max(_SHORTEST, depth // WARP))


class PackedVectorProduct(VectorProduct):
    """A product of a packed matrix.

    Args:
        packing: see :func:`matrix_packing`.
    """

    def __init__(
        self, product: SumOfProducts, few: Factor, many: Factor, rows_are_many: bool, gpu: Gpu, packing: Packing
    ) -> None:
        super().__init__(product, few, many, rows_are_many, gpu)
        nest, self._packing = self._nest, packing
        self._each = self._positions_of_warp(gpu)
        self._steps = next(steps for steps in _FEWER if steps == 1 or self._has_room(steps))
        self._units = self._depth // packing.lanes
        self._groups = ceil_div(self._positions, _WARPS * self._each)
        self._group = packing.lanes + _GAP  # elements from what one thread reads to what the next one does
        self._length = self._steps * WARP * self._group  # of a vector's part
        count, dtype = self._vectors * self._each, product.accumulator
        self._packed = PackedVectors(nest, "matrix", many, packing, self._steps * self._each)
        self._part = nest.buffer("vectors", self._vectors * self._length, dtype, "shared")
        self._factors = nest.buffer("factors", self._vectors * _READ, dtype, "local")
        self._element = nest.buffer("element", 1, dtype, "local")
        sizes = (("batch", self._batch), ("position", self._positions), ("unit", self._units))
        self._at = [nest.variable(name, size) for name, size in sizes]
        split = [_split(self._element_of(lane), many) for lane in range(packing.lanes)]
        self._values, self._common_factor = [own for own, _ in split], split[0][1]
        powers = sorted({self._packed.shifted_element(number(0), *each)[1] for each in enumerate(self._values)})
        self._powers = powers if count * len(powers) <= _MAX_SUMS else [0]
        self._own = nest.buffer("own", count * len(self._powers), dtype, "local")
        self._sums = nest.buffer("sums", count, dtype, "local")

    def _positions_of_warp(self, gpu: Gpu) -> int:
        """Returns the max positions per warp that leave every processor a block."""
        positions, warps = size_hint(self._positions * self._batch), gpu.processors * _WARPS
        return next(each for each in _FEWER if each == 1 or (self._positions % each == 0 and positions >= each * warps))

    def _has_room(self, steps: int) -> bool:
        """Whether registers and shared memory have room for so many steps of a part."""
        words, lanes = steps * self._each * self._packing.words, self._packing.lanes
        shared = 4 * self._vectors * steps * WARP * (lanes + _GAP)
        is_needed = (steps - 1) * WARP * lanes < self._depth
        return is_needed and words <= _MAX_WORDS and shared <= _MAX_SHARED_BYTES

    def schedule(self) -> s_tir.Schedule:
        """Returns the launch."""
        product, nest = self._product, self._nest
        launch = nest.launch(self._groups * self._batch, WARP * _WARPS, self._block)
        return kernel_schedule(product.func, product.params, [launch])

    def _block(self, block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        nest, zero = self._nest, tirx.const(0, self._product.accumulator)
        lane, warp = tirx.floormod(thread, number(WARP)), tirx.floordiv(thread, number(WARP))
        position = (tirx.floormod(block, number(self._groups)) * number(_WARPS) + warp) * number(self._each)
        batch = tirx.floordiv(block, number(self._groups))
        parts = ceil_div(self._units, self._steps * WARP)
        count = self._vectors * self._each

        def part(index: tirx.Expr) -> tirx.Stmt:
            first = index * number(self._steps)
            return sequence(
                self._each_step(first, position, lane, lambda step, unit: self._load(batch, position, step, unit)),
                self._share(batch, index, thread),
                synchronize(),
                self._each_step(first, position, lane, lambda step, _: self._multiply(step, lane)),
                synchronize() if parts > 1 else None,
            )

        def finish(index: tirx.Expr) -> tirx.Stmt:
            vector, own = tirx.floordiv(index, number(self._each)), tirx.floormod(index, number(self._each))
            return self._write(batch, vector, position + own, load(self._sums, index))

        return sequence(
            nest.unrolled(count, lambda i: store(self._sums, zero, i)),
            nest.rolled(parts, part, "part"),
            nest.unrolled(count, lambda i: warp_sum(nest, self._sums, i)),
            tirx.IfThenElse(tirx.EQ(lane, number(0)), nest.unrolled(count, finish), None),
        )

    def _each_step(
        self,
        first: tirx.Expr,
        position: tirx.Expr,
        lane: tirx.Expr,
        body: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt],
    ) -> tirx.Stmt:
        """`body(step, unit)` for the steps of a part in which the thread has a unit of the depth."""
        nest = self._nest

        def one(step: tirx.Expr) -> tirx.Stmt:
            unit = (first + step) * number(WARP) + lane
            conditions = (unit < number(self._units), position < number(self._positions))
            return nest.guarded(body(step, unit), conditions)

        return nest.unrolled(self._steps, one, "step")

    def _load(self, batch: tirx.Expr, position: tirx.Expr, step: tirx.Expr, unit: tirx.Expr) -> tirx.Stmt:
        """Loads a unit of each position of the warp."""

        def one(own: tirx.Expr) -> tirx.Stmt:
            meant = dict(zip(self._at, (batch, position + own, unit), strict=True))
            first = substituted(self._element_of(0), meant)
            return self._packed.load(step * number(self._each) + own, first)

        return self._nest.unrolled(self._each, one, "own")

    def _share(self, batch: tirx.Expr, index: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        """Stores a part of the vectors to shared memory."""
        nest, lanes = self._nest, self._packing.lanes
        elements = self._steps * WARP * lanes
        of_vector = elements // _READ
        each = nest.lanes if lanes_along(self._few, 1, _READ, along_depth=True) == _READ else nest.unrolled
        any_read = nest.variable("read", self._depth // _READ)

        def one(turn: tirx.Expr) -> tirx.Stmt:
            own = turn * number(WARP * _WARPS) + thread
            vector, of_part = tirx.floordiv(own, number(of_vector)), tirx.floormod(own, number(of_vector))
            own_read, reads_of_group = index * number(of_vector) + of_part, number(lanes // _READ)
            group, within = tirx.floordiv(of_part, reads_of_group), tirx.floormod(of_part, reads_of_group)
            slot = vector * number(self._length) + group * number(self._group) + within * number(_READ)

            def element(lane: tirx.Expr) -> tirx.Stmt:
                value = self._few.at(nest, batch, vector, any_read * number(_READ) + lane)
                return store(self._part, substituted(value, {any_read: own_read}), nest.simplify(slot + lane))

            conditions = (own < number(self._vectors * of_vector), own_read < number(self._depth // _READ))
            return nest.guarded(each(_READ, element), conditions)

        return nest.unrolled(ceil_div(self._vectors * of_vector, WARP * _WARPS), one, "turn")

    def _multiply(self, step: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
        """Multiplies a thread's unit of each position by all vectors.

        Elements are unpacked times a power of two; those of one power have a sum of their own.
        """
        nest, zero, count = self._nest, tirx.const(0, self._product.accumulator), self._vectors * self._each
        slot = (step * number(WARP) + lane) * number(self._group)

        def read(first: int) -> tirx.Stmt:
            def one(vector: tirx.Expr) -> tirx.Stmt:
                at = vector * number(self._length) + slot + number(first)
                return nest.lanes(
                    _READ, lambda of: store(self._factors, load(self._part, at + of), vector * number(_READ) + of)
                )

            return nest.unrolled(self._vectors, one, "vector")

        def add(own: tirx.Expr, element: int) -> tirx.Stmt:
            of, value = step * number(self._each) + own, self._values[element]
            if len(self._powers) > 1:
                unpacked, power = self._packed.shifted_element(of, element, value)
            else:
                unpacked, power = self._packed.element(of, element, value), self._powers[0]
            first = number(self._powers.index(power) * count)

            def one(vector: tirx.Expr) -> tirx.Stmt:
                at, factor = first + vector * number(self._each) + own, vector * number(_READ) + number(element % _READ)
                term = load(self._element, number(0)) * load(self._factors, factor)
                return store(self._own, load(self._own, at) + term, at)

            return sequence(store(self._element, unpacked, number(0)), nest.unrolled(self._vectors, one, "vector"))

        def scale(own: tirx.Expr) -> tirx.Stmt:
            of, factor = step * number(self._each) + own, self._common_factor
            known = None if factor is None else self._packed.element(of, 0, factor)

            def one(vector: tirx.Expr) -> tirx.Stmt:
                at = vector * number(self._each) + own
                total: tirx.Expr = load(self._own, at)
                for which, power in enumerate(self._powers[1:], 1):
                    total = total + load(self._own, number(which * count) + at) * tirx.const(2.0**-power, "float32")
                return store(self._sums, load(self._sums, at) + (total if known is None else known * total), at)

            return nest.unrolled(self._vectors, one, "vector")

        def group(first: int) -> tirx.Stmt:
            elements = range(first, first + _READ)
            return sequence(
                read(first),
                nest.unrolled(self._each, lambda own: sequence(*(add(own, element) for element in elements)), "own"),
            )

        return sequence(
            nest.unrolled(count * len(self._powers), lambda i: store(self._own, zero, i)),
            *map(group, range(0, self._packing.lanes, _READ)),
            nest.unrolled(self._each, scale, "own"),
        )

    def _element_of(self, lane: int) -> tirx.Expr:
        """Returns an element of a unit, all of whose indices are `self._at`."""
        batch, position, unit = self._at
        return self._many.at(self._nest, batch, position, unit * number(self._packing.lanes) + number(lane))


def _split(value: tirx.Expr, matrix: Factor) -> tuple[tirx.Expr, tirx.Expr | None]:
    """Returns what is the element's own of a matrix's element, and a factor that it shares with its neighbours.

    Roundings of their product are left out.
    """
    main = main_load(matrix.value)
    assert main is not None
    while isinstance(value, tirx.Cast) and _is_float(value) and _is_float(value.value):
        value = value.value
    if str(value.expr_ty().dtype) != "float32":
        return tirx.Cast("float32", value), None
    if isinstance(value, tirx.Mul):
        for own, factor in ((value.a, value.b), (value.b, value.a)):
            if not any(read.source.same_as(main.source) for read in loads_of(factor)):
                return own, factor
    return value, None


def _is_float(value: tirx.Expr) -> bool:
    return "float" in str(value.expr_ty().dtype)
