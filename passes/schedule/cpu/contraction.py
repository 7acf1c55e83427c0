"""Schedules convolutions and matrix products with a register tile of accumulators.

Products are numbers times numbers, or dot products of pairs and quads of narrow ones.

    for o, y, xo in parallel:                     # o: `columns` vectors of output channels
        tile[rows, columns, lanes] = 0            # in registers
        for the reduced axes:
            for row, column: tile[row, column, :] += broadcast(A[row]) * B[column, :]
        C = epilogue(tile)                        # bias, activation, residual: in the write-back

The vector runs over the last axis of B and C (output channels), so that A is read one value at a time, whatever the
strides, and B and C in full vectors (Georganas et al., 2018; Goto and van de Geijn, 2008).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import Analyzer

from nnefc.ir.attributes import (
    ASSEMBLY_MICROKERNEL,
    FOR_FEW_ROWS,
    FP16_ACCUMULATORS,
    GROUPED_LINES,
    JOINED_ROWS,
    LANE_FACTORS,
    PREFETCH_NEXT_PANEL,
    PREFETCH_STREAM,
)
from nnefc.passes.compute.dot.dot_product import accumulates, lane_type_of, operator_of, spreading
from nnefc.passes.compute.tile_sizes import (
    USUAL_EXTENTS,
    USUAL_IMAGES,
    RegisterTile,
    Spread,
    choose_dynamic_tile,
    choose_few_rows,
    choose_tile,
    choose_uneven_tile,
    full_blocks,
    loaded_together,
)
from nnefc.passes.schedule.analysis import Contraction, KernelAnalysis, ScheduleBlock, step_of
from nnefc.passes.schedule.cpu.block_scaled_sums import sum_block_by_block
from nnefc.passes.schedule.cpu.fp16_accumulators import type_of_sums
from nnefc.passes.schedule.cpu.partial_sums import keep_totals_aligned, sum_in_parts
from nnefc.passes.schedule.full_tiles import goes_to_the_end, in_full_tiles
from nnefc.passes.schedule.fused_axes import fuse_row_axes
from nnefc.passes.schedule.schedules import covers_result, epilogue_into_one_block, largest_divisor, trip_count
from nnefc.passes.tir.common.expressions import int64, substituted, variables_of
from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import is_long
from nnefc.passes.tir.dot.dot_instructions import FLOAT16_PART, FLOAT16_TOTAL, is_quad_pair
from nnefc.support.element_types import bits_of
from nnefc.symbolic.dims import Size, dimension, element_count, is_known, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["ContractionRule"]

_SPREAD_AT_ONCE = 2
"""The number of words that are unpacked from one load: of more, LLVM keeps so many parts in registers that accumulators
are spilled.
"""

_TERMS, _TERMS_SMALL, _TERMS_OF_BYTES = 27, 9, 4
"""The largest number of terms of each sum that assembly is written out for: a row of a filter and a block of channels,
or 3 x 3 x 3; one block if the code shall be small; of bytes then four, which are as fast.
"""

_QUAD_REGISTERS = 10
"""Registers that products of quad pairs need besides accumulators: magnitudes and signs of two vectors, ones and
products take six, so that none are spare.
"""

_BYTE = 8
"""Results of this many bits are written as one vector for each row: Arm has fewer instructions for two vectors than for
one.
"""

_WRITTEN_OUT = 16
"""The largest number of vector products in the iterations that are written out together; LLVM unrolls only the last
iteration of such a loop.
"""

_UNROLLED = 96
"""The largest number of products, of a dynamic number of rows and one column, that are written out in short loops. Of
eight rows, LLVM would unroll two iterations, and store a sum on the stack in each.
"""

_VECTOR_BITS = 256
"""The vectors that x86-64 has 16 registers for, which `microkernels/x86_fma.py` multiplies."""

_SHORT = 3
"""The largest trip count of an innermost loop that is written out on small cores."""


class ContractionRule:
    """Schedules a sum of products whose last axis indexes one factor only, in full vectors."""

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        if len(kernel.reductions) != 1:
            return None
        (step,) = kernel.reductions
        roles = step.contraction
        if roles is None or not roles.only_right:
            return None
        machine, target = target, target.for_sums(step.dtype, roles.sums, accumulates(step.value))
        if _of_quad_pairs(step):
            registers = _QUAD_REGISTERS + target.quirks.spare_registers
            target = replace(target, vectors=replace(target.vectors, registers=registers))
        vector = roles.only_right[-1]
        lanes = _vector_length(step, vector, target.lanes(lane_type_of(step.value, step.dtype)))
        if lanes == 1 or any(axis > vector for axis in (*roles.only_left, *roles.both)):
            return None
        target = target.for_vectors(lanes * bits_of(type_of_sums(step)) // 8)
        if step.producers:
            return None  # a producer inside: rules for such computations come before
        joined = fuse_row_axes(kernel, step, of_known_sizes=target.quirks.spills_sums and not target.vectors.by_lane)
        if joined is not None:
            return self.apply(joined, machine)
        sch = kernel.schedule()
        return self._schedule(sch, sch.get_sblock(step.name), roles, lanes, target)

    def _schedule(
        self, sch: s_tir.Schedule, block: SBlockRV, roles: Contraction, lanes: int, target: Target
    ) -> s_tir.Schedule | None:
        epilogue = epilogue_into_one_block(sch, block)
        if epilogue is None:
            epilogue = sch.cache_write(block, 0, "global")
        vector = roles.only_right[-1]
        if not is_known(trip_count(sch, sch.get_loops(block)[vector])):
            tiled = _tiled(sch, block, epilogue, vector, lanes)
            if tiled is None:
                return None
            sch, block, epilogue = tiled
        first = step_of(sch, block)
        sizes = [trip_count(sch, loop) for loop in sch.get_loops(block)]
        length = terms = math.prod(sizes[axis] for axis in roles.reduced)
        vectors = sizes[vector] // lanes
        column = vector if vectors != 1 or len(roles.only_right) == 1 else roles.only_right[-2]
        columns = full_blocks(vectors, target) if column == vector else sizes[column]
        of_quads = _of_quad_pairs(first)
        if of_quads:
            columns = 1
        rows = [axis for axis in roles.only_left if sizes[axis] != 1][-2:]
        outer_size, size = [1] * (2 - len(rows)) + [sizes[axis] for axis in rows]
        tiled, spread = None, spreading(first.value)
        kind = _kind_of(first)
        assembled = not roles.steps and (is_long(kind) if spread else target.quirks.spills_sums)
        in_assembly = assembled or (target.quirks.spills_float_sums and _multiplies_stored(first, lanes))
        streamed = bool(roles.steps) and not rows and target.vectors.bytes == target.costs.line_bytes
        if isinstance(size, Size):
            attrs = sch.mod["main"].attrs
            in_form = Spread(spread, kind) if spread and not roles.steps else None
            if FOR_FEW_ROWS in attrs:
                tile, smaller = choose_few_rows(columns, target, in_form)
            else:
                usual = USUAL_IMAGES if JOINED_ROWS in attrs else USUAL_EXTENTS
                pitch = _pitches(first, roles, rows)[1]
                tile, smaller = choose_dynamic_tile(
                    size, columns, size_hint(terms), target, roles.steps, usual, in_form, pitch
                )
            tiled = _tiled(sch, block, epilogue, rows[-1], tile.rows, smaller)
        if streamed:
            tile = RegisterTile(1, 1, 1)  # one stream from memory: the next tile reads on where this one ends
        elif tiled is None and (assembled or of_quads or (target.vectors.by_scalar and not roles.steps)):
            tile, tail = choose_uneven_tile(outer_size, size, columns, target, kind, column != vector)
            tiled = _tiled(sch, block, epilogue, rows[-1], tile.rows, (tail,)) if tail else None
            if tail and tiled is None:
                tile = choose_tile(outer_size, size, columns, target)
        elif tiled is None:
            pitches = _pitches(first, roles, rows)
            tile = choose_tile(outer_size, size, columns, target, roles.steps, spread, pitches)
        if tiled is not None:
            sch, block, epilogue = tiled
        if roles.steps:
            name = str(sch.get(epilogue).name_hint)
            sch, block, within = sum_block_by_block(sch, block, apart=streamed)
            epilogue = sch.get_sblock(name)
        else:
            found = sum_in_parts(sch, block, target)
            within = [] if found is None else [found]
        parts = within[0] if within else None
        sums = step_of(sch, block if parts is None else parts)
        terms = element_count([axis.size for axis in sums.reduced])
        in_fp16 = type_of_sums(sums) != sums.dtype and is_known(terms) and terms <= FLOAT16_PART
        if in_fp16:
            sch.annotate(block if parts is None else parts, FP16_ACCUMULATORS, True)
            if parts is not None and step_of(sch, block).reduced[0].size <= FLOAT16_TOTAL:
                sch.annotate(block, FP16_ACCUMULATORS, True)
        loops = sch.get_loops(block)

        vector_outer, lane = sch.split(loops[vector], [None, lanes])
        loops[vector] = vector_outer
        column_outer, column_inner = sch.split(loops[column], [None, tile.columns])
        loops[column] = column_outer
        row_loops: list[LoopRV] = []
        for axis, count in zip(reversed(rows), (tile.rows, tile.outer_rows), strict=False):
            loops[axis], inner = sch.split(loops[axis], [None, count])
            row_loops.insert(0, inner)
        reduced = loops[roles.reduced[0] :]
        right = [loops[axis] for axis in roles.only_right]
        left = [loops[axis] for axis in sorted(roles.only_left, key=lambda axis: axis in rows[-1:])]
        outer = [loops[axis] for axis in roles.both] + right + left
        if (
            len(right) > 1
            and column == vector
            and vectors > tile.columns
            and target.vectors.bytes < target.costs.line_bytes
            and tiled is None
        ):
            outer.append(outer.pop(outer.index(right[-1])))  # parts of a line of B one after the other, for one tile
        trips = size_hint(trip_count(sch, *(loops[axis] for axis in roles.both), *left[:-1]))
        once = (tiled is None or trips >= target.costs.cores) and _reads_rows_once(first, roles, tile, target)
        if once:
            outer = [loops[axis] for axis in roles.both] + left + right
        elif tiled is None:
            over_groups, left = _in_groups(sch, left, first, roles, tile, target)
            outer = [loops[axis] for axis in roles.both] + over_groups + right + left if over_groups else outer
        apart = None if once else _panels_apart(sch, right, left, terms, tile, target)
        whole = roles.steps or assembled or tiled is not None or parts is None or once or apart is not None
        in_turn = not whole and len(outer) > 1 and _keeps_line(sch, left[-1], first, length, tile, target)
        if in_turn:  # part after part, each for all tiles of a line, whose totals wait in the first cache
            sch.reorder(*outer[:-1], reduced[0], outer[-1], *reduced[1:], *row_loops, column_inner, lane)
        else:
            sch.reorder(*outer, *reduced, *row_loops, column_inner, lane)
        sch.reverse_compute_at(epilogue, outer[-2] if in_turn else outer[-1])
        if not covers_result(sch, epilogue) or not _reads_tile(
            sch, epilogue, len(outer) - in_turn, [*outer[-1:] * in_turn, *row_loops, column_inner, lane]
        ):
            return None
        if parts is not None:  # before loops are fused: TVM would ask whether quotients of dynamic sizes are in range
            sch.compute_at(parts, outer[-1] if in_turn else reduced[0], preserve_unit_loops=True)

        groups = None if tiled is None or once else _groups_of_lines(sch, right, first, roles, tile, target)
        around = outer.index(left[-1]) if tiled is not None else len(outer) - 1  # the loop over such tiles stays one
        fused = sch.fuse(*outer[:around]) if around else outer[0]
        sch.parallel(fused)
        if groups is not None:
            sch.annotate(fused, GROUPED_LINES, groups)
        sch.vectorize(lane)
        for loop in (*row_loops, column_inner):
            sch.unroll(loop)
        sides = sum(trip_count(sch, loop) > 1 for loop in (*row_loops, column_inner))
        if parts is not None:
            reduced = [reduced[0], *_schedule_parts(sch, within, rows, column, vector, lanes)]
            if roles.steps:
                sch.unroll(reduced[-1])  # elements of one word, which then move by known numbers of bits
            keep_totals_aligned(sch, fused, target)
        if target.vectors.by_scalar and not roles.steps and not in_fp16:  # of halves, LLVM would spill sums
            reduced[-1] = _several_iterations(sch, reduced[-1], tile)
        elif (
            tiled is not None
            and target.quirks.spare_registers
            and tile.columns == 1
            and not of_quads
            and not in_assembly
        ):
            reduced[-1] = _unrolled(sch, reduced[-1], _UNROLLED // tile.rows)
        if streamed:
            sch.annotate(fused, PREFETCH_STREAM, target.costs.l1_bytes // target.costs.loops.prefetch_share)
        if apart is not None:
            # LLVM would hoist the loads of a loop of one iteration above its prefetches: too many at once
            several = [loop for loop in reduced if trip_count(sch, loop) != 1]
            sch.annotate(several[-1] if several else reduced[-1], PREFETCH_NEXT_PANEL, apart)
        if target.vectors.by_lane and not roles.steps:
            lanes_at_once = target.lanes("float16" if in_fp16 else "float32") // max(1, target.vectors.scale)
            sch.annotate(reduced[-1], LANE_FACTORS, _SPREAD_AT_ONCE if spread else lanes_at_once)
        if in_assembly:
            terms = _TERMS if (target.vectors.by_lane or spread) and not target.small else _TERMS_SMALL
            terms = _TERMS_OF_BYTES if target.vectors.narrows_sums else terms
            sch.annotate(reduced[-1], ASSEMBLY_MICROKERNEL, [loaded_together(target), terms])
        if not target.hosted and len(reduced) > 1 and trip_count(sch, reduced[-1]) <= _SHORT:
            sch.unroll(reduced[-1])  # small cores take as long for a loop iteration as for some products
        start = sch.decompose_reduction(block, reduced[0])  # drops loops of one iteration
        _unroll_and_vectorize(sch, start, sides)
        written = bits_of(str(sch.get(epilogue).writes[0].source.dtype))
        at_once = tile.columns if (target.vectors.by_lane or spread) and written == _BYTE else 1
        if target.quirks.converts_lane_by_lane and written < bits_of(first.dtype) and tile.columns % 2 == 0:
            at_once = 2
        if in_turn:
            sch.vectorize(sch.get_loops(epilogue)[-1])
        else:
            _write_back(sch, epilogue, outer[-1], lanes * at_once)
        return sch


def _reads_tile(sch: s_tir.Schedule, epilogue: SBlockRV, depth: int, tile: Sequence[LoopRV]) -> bool:
    """Whether the epilogue has no more iterations in its `depth` outermost loops than the loops of a tile; True for
    dynamic sizes.

    TVM moves an epilogue that reads `C[j // 16, j % 16]` into a loop over halves of a block with all 16 elements, half
    of which are not computed in that iteration.
    """
    read, computed = trip_count(sch, *sch.get_loops(epilogue)[depth:]), trip_count(sch, *tile)
    return not is_known(read, computed) or read <= computed


def _of_quad_pairs(step: ScheduleBlock) -> bool:
    """Whether a sum is of pairs of quads and each of its vectors reads data of its own."""
    return isinstance(step.value, tirx.Add) and is_quad_pair(step.value.b)


def _multiplies_stored(step: ScheduleBlock, lanes: int) -> bool:
    """Whether a sum is of products of float32 elements that are read as stored, in full vectors of 256 bits."""
    product = step.value.b if isinstance(step.value, tirx.Add) else None
    factors = (product.a, product.b) if isinstance(product, tirx.Mul) else ()
    return (
        bool(factors)
        and lanes * bits_of(step.dtype) == _VECTOR_BITS
        and all(isinstance(factor, TensorLoad) and str(factor.source.dtype) == "float32" for factor in factors)
    )


def _kind_of(step: ScheduleBlock) -> str:
    """Returns the kind of products in a sum, for `lane_products.product_of`; dot products of one instruction count as
    float32, which takes as many registers.
    """
    if spreading(step.value):
        return operator_of(step.value)
    return "float16" if type_of_sums(step) == "float16" else "float32"


def _tiled(
    sch: s_tir.Schedule,
    block: SBlockRV,
    epilogue: SBlockRV,
    axis: int,
    tile: int,
    smaller: Sequence[int] | None = None,
) -> tuple[s_tir.Schedule, SBlockRV, SBlockRV] | None:
    """Returns a sum and its epilogue in full tiles along an axis: see :func:`in_full_tiles`."""
    names = [str(sch.get(step).name_hint) for step in (block, epilogue)]
    tiled = in_full_tiles(sch, names[0], axis, tile, smaller)
    return None if tiled is None else (tiled, tiled.get_sblock(names[0]), tiled.get_sblock(names[1]))


def _pitches(step: ScheduleBlock, roles: Contraction, rows: Sequence[int]) -> tuple[int, int]:
    """Returns the bytes between elements of A along each of its last two row axes; 0 for unknown distances and missing
    axes.
    """
    outer, inner = [None] * (2 - len(rows)) + [step.axes[axis].var for axis in rows]
    left = {step.axes[axis].var for axis in roles.only_left}
    loads = (load for load in step.loads if not load.source.same_as(step.result))
    a = next((load for load in loads if left & variables_of(load.indices)), None)
    return (0, 0) if a is None else (_pitch(a, outer), _pitch(a, inner))


def _pitch(load: TensorLoad, axis: tirx.Var | None) -> int:
    """Returns the bytes from a loaded element to the next one along an axis; 0 if unknown."""
    zeros = {var: int64(0) for var in variables_of(load.indices)}
    at = [_position(load, {**zeros, axis: int64(position)}) for position in (0, 1)]
    apart = Analyzer().simplify(at[1] - at[0])
    return int(apart) * bits_of(str(load.source.dtype)) // 8 if isinstance(apart, tirx.IntImm) else 0


def _position(load: TensorLoad, values: Mapping[tirx.Var, tirx.Expr]) -> tirx.Expr:
    """Returns the flat index of a loaded element for these values of variables."""
    position: tirx.Expr = int64(0)
    for index, size in zip(load.indices, load.source.shape, strict=True):
        position = position * size + substituted(index, values)
    return position


def _panels_apart(
    sch: s_tir.Schedule, right: Sequence[LoopRV], left: Sequence[LoopRV], terms: int, tile: RegisterTile, target: Target
) -> int | None:
    """Returns the iterations of the parallel loop that read one panel of B, if the next panel is to be prefetched.

    That needs several tiles of rows for each panel, a factor that does not stay in the first cache anyway, lines of the
    cache that are one vector each, and time for one load more in each step of the sum.

    Args:
        right, left: the loops over panels and over tiles of rows; of these all but the last are parallel.
        terms: of the sum.
    """
    costs, rows = target.costs, tile.outer_rows * tile.rows
    panels, *tiles = (size_hint(trip_count(sch, *loops)) for loops in (right, left[:-1], left))
    size = panels * size_hint(terms) * tile.columns * target.vectors.bytes
    loading = rows / costs.broadcasts + (tile.columns + 1) / costs.loads
    if (
        not left
        or tiles[1] < 2
        or panels < 2
        or size <= costs.l1_bytes
        or target.vectors.bytes < target.costs.line_bytes
    ):
        return None
    return tiles[0] if loading <= rows * tile.columns / costs.multiply_adds else None


def _reads_rows_once(step: ScheduleBlock, roles: Contraction, tile: RegisterTile, target: Target) -> bool:
    """Whether the loop over panels of B is inside of those over tiles of rows.

    So it is where the second cache holds all panels, but not what they are multiplied by, which would come from outer
    caches or memory once for each panel.
    """
    rows, panels = _bytes_of_factors(step, roles)
    several = _columns(step, roles) > tile.columns * target.lanes(step.dtype)
    return several and panels <= target.costs.l2_bytes // 2 and rows > target.costs.l2_bytes


def _in_groups(
    sch: s_tir.Schedule,
    left: Sequence[LoopRV],
    step: ScheduleBlock,
    roles: Contraction,
    tile: RegisterTile,
    target: Target,
) -> tuple[list[LoopRV], list[LoopRV]]:
    """Returns the loops over groups of tiles of rows, outside of those over panels of B, and the loops within a group.

    There are such where the second cache holds neither the panels nor the images, but what a group reads, a part of a
    line or several lines: then panels, which lie in order in memory, are read again for each group, and not the images
    for each panel.
    """
    tiles, lines = trip_count(sch, *left), trip_count(sch, *left[:-1])
    rows, panels = _bytes_of_factors(step, roles)
    if not is_known(tiles, lines) or lines < 2 or rows <= target.costs.l2_bytes:
        return [], list(left)
    held, window = target.costs.l2_bytes // 2 * tiles // rows, _window(step, roles)
    around, within = list(left), []
    together = held // trip_count(sch, left[-1]) - (window - 1)  # neighbouring lines share all but one of a window
    if together > 0:
        held, within = together, [around.pop()]
    else:
        held //= window
    while len(around) > 1 and trip_count(sch, around[-1]) <= held:
        held //= trip_count(sch, around[-1])
        within.insert(0, around.pop())
    together = largest_divisor(trip_count(sch, around[-1]), max(1, held))
    groups = trip_count(sch, *around) // together
    count = _columns(step, roles) / (tile.columns * target.lanes(step.dtype))
    if rows + panels * groups >= rows * count:
        return [], list(left)
    around[-1], inner = sch.split(around[-1], [None, together])
    return around, [inner, *within]


def _keeps_line(
    sch: s_tir.Schedule, line: LoopRV, step: ScheduleBlock, terms: int, tile: RegisterTile, target: Target
) -> bool:
    """Whether the first cache holds the totals of all tiles of a line, but not a panel, which each tile reads."""
    if not is_known(terms, trip_count(sch, line)):
        return False
    width = tile.columns * target.lanes(step.dtype) * bits_of(step.dtype) // 8
    totals = trip_count(sch, line) * tile.rows * tile.outer_rows * width
    return trip_count(sch, line) > 1 and totals <= target.costs.l1_bytes // 4 and terms * width > target.costs.l1_bytes


def _groups_of_lines(
    sch: s_tir.Schedule,
    right: Sequence[LoopRV],
    step: ScheduleBlock,
    roles: Contraction,
    tile: RegisterTile,
    target: Target,
) -> list[int] | None:
    """Returns how many panels multiply each line, and the number of tiles whose rows half of the second cache holds;
    None where groups do not pay, and for static sizes. See `passes/tir/common/group_lines.py`.
    """
    panels, sizes = trip_count(sch, *right), [step.sizes[axis] for axis in roles.only_left]
    lines = len(sizes) > 1 or JOINED_ROWS in sch.mod["main"].attrs
    if not lines or roles.both or not is_known(panels) or panels == 1 or is_known(*sizes):
        return None
    rows, _ = _bytes_of_factors(step, roles)
    results = math.prod(map(size_hint, sizes))
    held = target.costs.l2_bytes // 2 * results // max(1, rows * tile.rows * tile.outer_rows)
    return [panels, max(1, held)]


def _window(step: ScheduleBlock, roles: Contraction) -> int:
    """Returns the number of image lines from which a line of the result is computed."""
    outer = {step.axes[axis].var for axis in roles.only_left[:-1]}
    reduced = {axis.var: size_hint(axis.size) for axis in step.reduced}
    found = 1
    for load in step.loads:
        for index in load.indices:
            used = variables_of([index])
            if outer & used and not load.source.same_as(step.result):
                found = max(found, math.prod(size for var, size in reduced.items() if var in used))
    return found


def _columns(step: ScheduleBlock, roles: Contraction) -> int:
    return math.prod(size_hint(step.sizes[axis]) for axis in roles.only_right)


def _bytes_of_factors(step: ScheduleBlock, roles: Contraction) -> tuple[int, int]:
    """Returns the bytes that the rows of A are read from, and those of all panels of B."""
    columns = {step.axes[axis].var for axis in roles.only_right}
    size = {
        load.source: (
            bool(columns & variables_of(load.indices)),
            math.prod(map(size_hint, map(dimension, load.source.shape))),
        )
        for load in step.loads
        if not load.source.same_as(step.result)
    }
    share = math.prod(size_hint(step.sizes[axis]) for axis in roles.both)
    rows, panels = (
        sum(
            count * bits_of(str(source.dtype)) // 8 for source, (of_panels, count) in size.items() if of_panels == which
        )
        // share
        for which in (False, True)
    )
    return rows, panels


def _vector_length(step: ScheduleBlock, vector: int, lanes: int) -> int:
    """Returns the longest vector of at most `lanes` that divides an axis; of a dynamic axis, the one that it is packed
    in.
    """
    extent, var = step.sizes[vector], step.axes[vector].var
    if not isinstance(extent, Size):
        while extent % lanes:
            lanes //= 2
        return lanes
    positions = [index for load in step.loads if not load.source.same_as(step.result) for index in load.indices]
    along = [index for index in positions if var in variables_of([index])]
    packed = [index.b for index in along if isinstance(index, tirx.FloorDiv | tirx.FloorMod) and index.a.same_as(var)]
    sizes = {int(size) for size in packed if isinstance(size, tirx.IntImm)}
    return min(lanes, *sizes) if len(packed) == len(along) and len(sizes) == 1 else 1


def _schedule_parts(
    sch: s_tir.Schedule, within: Sequence[SBlockRV], rows: Sequence[int], column: int, vector: int, lanes: int
) -> list[LoopRV]:
    """Schedules a partial sum like an undivided one: its tile in registers, its reduced loops outermost.

    Args:
        within: the computation of the parts, in the loop over them; that of their own parts, if they have any.
        rows, column, vector: positions of the tile's axes among those of the undivided sum.

    Returns:
        The reduced loops of a part, and of its own parts.
    """
    made: list[LoopRV] = []
    for level, parts in enumerate(within, 1):
        if made:
            sch.compute_at(parts, made[0], preserve_unit_loops=True)
        axes = step_of(sch, parts).axes
        around = list(zip(sch.get_loops(parts)[-len(axes) :], axes, strict=True))
        reduced = [loop for loop, axis in around if axis.is_reduced]
        loops = [loop for loop, axis in around if axis.is_spatial][level:]
        loops[vector], lane = sch.split(loops[vector], [None, lanes])
        tile = [loops[axis] for axis in (*rows, column)]
        sch.reorder(*reduced, *tile, lane)
        sch.vectorize(lane)
        for loop in tile:
            sch.unroll(loop)
        sides = sum(trip_count(sch, loop) > 1 for loop in tile)
        _unroll_and_vectorize(sch, sch.decompose_reduction(parts, reduced[0]), sides)
        made += reduced
    return made


def _several_iterations(sch: s_tir.Schedule, loop: LoopRV, tile: RegisterTile) -> LoopRV:
    """Returns a loop over several iterations of `loop`, written out, if one iteration has few products compared with
    the loop's overhead.
    """
    trips, products = trip_count(sch, loop), tile.outer_rows * tile.rows * tile.columns
    for count in (4, 2):
        if is_known(trips) and trips % count == 0 and products * count <= _WRITTEN_OUT:
            outer, inner = sch.split(loop, [None, count])
            sch.unroll(inner)
            return outer
    return loop


def _unrolled(sch: s_tir.Schedule, loop: LoopRV, maximum: int) -> LoopRV:
    """Returns the loop over iterations of `loop`, of which at most so many are written out."""
    trips = trip_count(sch, loop)
    count = largest_divisor(trips, maximum) if is_known(trips) and trips <= _UNROLLED // _SHORT else 1
    if count == 1:
        return loop
    outer, inner = (loop, loop) if count == trips else sch.split(loop, [None, count])
    sch.unroll(inner)
    return outer


def _unroll_and_vectorize(sch: s_tir.Schedule, block: SBlockRV, unrolled: int) -> None:
    loops = sch.get_loops(block)
    sch.vectorize(loops[-1])
    for loop in loops[-1 - unrolled : -1]:
        sch.unroll(loop)


def _write_back(sch: s_tir.Schedule, epilogue: SBlockRV, around: LoopRV, lanes: int) -> None:
    """Vectorizes the innermost loop of the epilogue and unrolls the other loops of the tile, which are inside of
    `around`.

    One over elements of which the last tile has fewer is not split: smaller tiles have fewer iterations of it.
    """
    loops = sch.get_loops(epilogue)
    first = next(i for i, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(around))) + 1
    inner = loops[first:]
    if not inner:
        return
    *others, last = inner
    if trip_count(sch, last) > lanes and goes_to_the_end(sch, last):
        others.append(last)
    elif trip_count(sch, last) > lanes:
        column, last = sch.split(last, [None, lanes])
        others.append(column)
    if last not in others:
        sch.vectorize(last)
    for loop in others:
        sch.unroll(loop)
