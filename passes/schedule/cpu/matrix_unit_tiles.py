"""Schedules contractions of narrow types for a matrix unit: several rows by several columns in one instruction.

for o, y in parallel:                             # o: 32 output channels
    for xo in tiles of 32 pixels:
        for rc, ky, kx, ri in chunks of 16:       # dot operands
            for tile in 2, column in 2: for term in 16, row in 16, lane in 16: sum
        C = epilogue(sum)                         # from where the tiles are stored, in vectors

The sizes are those of AMX; what becomes of the loops over a tile: see `passes/tir/cpu/match_tile_products.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from nnefc.ir.attributes import TAIL_ROWS, TILE_LOOP
from nnefc.passes.compute.dot.matrix_units import unit_of
from nnefc.passes.schedule.analysis import Contraction, KernelAnalysis, ScheduleBlock
from nnefc.passes.schedule.full_tiles import in_full_tiles
from nnefc.passes.schedule.fused_axes import fuse_row_axes
from nnefc.passes.schedule.schedules import covers_result, epilogue_into_one_block, largest_divisor, trip_count
from nnefc.passes.tir.common.expressions import flat_offset, linear_strides
from nnefc.passes.tir.cpu.match_tile_products import TileLoop
from nnefc.symbolic.dims import Size, is_known
from nnefc.targets.machine.cpu.matrix_units import MatrixUnit
from nnefc.targets.machine.cpu.target import Target

__all__ = ["MatrixTilesRule"]


class MatrixTilesRule:
    """Schedules a sum of dot products for the target's matrix unit."""

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        if len(kernel.reductions) != 1:
            return None
        (step,) = kernel.reductions
        roles = step.contraction
        if roles is None or not roles.only_right or roles.steps or step.producers:
            return None
        unit = unit_of(step.value.b, target) if isinstance(step.value, tirx.Add) else None
        if unit is None:
            return None
        vector = roles.only_right[-1]
        if any(axis > vector for axis in (*roles.only_left, *roles.both)) or _indivisible(
            step.sizes[vector], unit.lanes
        ):
            return None
        joined = fuse_row_axes(kernel, step, of_known_sizes=True)
        if joined is not None:
            return self.apply(joined, target)
        sch = kernel.schedule()
        return _schedule(sch, sch.get_sblock(step.name), step, roles, unit)


def _indivisible(size: Size | int, divisor: int) -> bool:
    return not is_known(size) or bool(size % divisor)


@dataclass(frozen=True)
class _Tiling:
    """The tiling of a product.

    Attributes:
        tiles, rows, columns, terms: of what is multiplied in a step: see `TileLoop`.
        outer: whether the tiles of rows belong to an axis of their own.
        left: rows of the last tiles along the axis; 0 if they are whole.
        joined: whether the last two of the reduced axes are one.
    """

    tiles: int
    rows: int
    columns: int
    terms: int
    outer: bool
    left: int
    joined: bool = False


def _tiling(outer: int, extent: int, columns: int, terms: int, unit: MatrixUnit) -> _Tiling | None:
    """Returns the tiling of the last two axes of rows, vectors of columns, and dot operands; None if these do not
    divide well.
    """
    part = unit.part(terms)
    if not part or extent < unit.min_rows:
        return None
    blocks = -(-extent // unit.rows)
    rows = min(-(-extent // blocks // unit.min_rows) * unit.min_rows, extent)
    if extent % rows and blocks > 2:
        rows = unit.rows
    maximum = max(unit.columns)
    if extent <= rows:
        tiles = maximum if outer % maximum == 0 else 1
        return _Tiling(tiles, rows, largest_divisor(columns, unit.columns[tiles]), part, True, 0)
    return _Tiling(
        maximum, rows, largest_divisor(columns, unit.columns[maximum]), part, False, extent % (maximum * rows)
    )


def _schedule(
    sch: s_tir.Schedule, block: SBlockRV, step: ScheduleBlock, roles: Contraction, unit: MatrixUnit
) -> s_tir.Schedule | None:
    epilogue = epilogue_into_one_block(sch, block)
    if epilogue is None:
        epilogue = sch.cache_write(block, 0, "global")
    vector, sizes = roles.only_right[-1], list(step.sizes)
    vectors = sizes[vector] // unit.lanes
    column = vector if vectors != 1 or len(roles.only_right) == 1 else roles.only_right[-2]
    if not is_known(sizes[column], sizes[roles.reduced[-1]]):
        return None
    rows = [axis for axis in roles.only_left if sizes[axis] != 1][-2:]
    outer_size, extent = [1] * (2 - len(rows)) + [sizes[axis] for axis in rows]
    vectors = vectors if column == vector else sizes[column]
    terms = sizes[roles.reduced[-1]]
    joined = terms * sizes[roles.reduced[-2]] if _is_dense(step, roles) else 0
    joined = joined if 0 < joined <= unit.terms else 0
    terms = joined or terms
    unit = unit.for_columns(vectors, bool(rows) and _is_contiguous(step, rows[-1], roles.reduced[-1], unit))
    if is_known(extent):
        tiling = _tiling(outer_size if is_known(outer_size) else 1, extent, vectors, terms, unit)
    else:
        tiling = _tiling(1, unit.rows, vectors, terms, unit)
        names = [str(sch.get(each).name_hint) for each in (block, epilogue)]
        whole = in_full_tiles(sch, names[0], rows[-1], unit.rows, unit.smaller)
        if whole is None:
            return None
        sch, (block, epilogue) = whole, (whole.get_sblock(name) for name in names)
    if tiling is None:
        return None
    return _tiled(sch, block, epilogue, roles, rows, column, replace(tiling, joined=joined > 0), unit)


def _is_contiguous(step: ScheduleBlock, row: int, reduced: int, unit: MatrixUnit) -> bool:
    """Whether the rows of A follow each other in memory, so that one instruction loads several: each has one or two
    times as many dot operands as a tile.
    """
    size, loads = step.sizes[reduced], [load for load in step.loads if not load.source.same_as(step.result)]
    strides = [linear_strides(flat_offset(load.source, load.indices), [step.axes[row].var]) for load in loads]
    return any(found in ([unit.terms], [2 * unit.terms]) and size % found[0] == 0 for found in strides if found)


def _is_dense(step: ScheduleBlock, roles: Contraction) -> bool:
    """Whether the dot operands of the last two reduced axes follow each other in both factors, as those of a filter row
    with few channels do.
    """
    if len(roles.reduced) < 2 or not is_known(*(step.sizes[axis] for axis in roles.reduced[-2:])):
        return False
    outer, inner = (step.axes[axis].var for axis in roles.reduced[-2:])
    factors = [load for load in step.loads if not load.source.same_as(step.result)]
    steps = [linear_strides(flat_offset(load.source, load.indices), [outer, inner]) for load in factors]
    size = step.sizes[roles.reduced[-1]]
    return all(found is not None and is_known(*found) and found[0] == found[1] * size for found in steps)


def _tiled(
    sch: s_tir.Schedule,
    block: SBlockRV,
    epilogue: SBlockRV,
    roles: Contraction,
    rows: Sequence[int],
    column: int,
    tiling: _Tiling,
    unit: MatrixUnit,
) -> s_tir.Schedule | None:
    loops = list(sch.get_loops(block))
    vector, last = roles.only_right[-1], roles.reduced[-1]
    loops[vector], lane = sch.split(loops[vector], [None, unit.lanes])
    loops[column], columns = sch.split(loops[column], [None, tiling.columns])
    if tiling.joined:
        before = roles.reduced[-2]
        loops[last] = sch.fuse(loops[before], loops[last])
    loops[last], term = sch.split(loops[last], [None, tiling.terms])
    if not rows:
        tile, row = _unit(sch, loops[column]), _unit(sch, loops[column])
    elif tiling.outer:
        loops[rows[-1]], row = sch.split(loops[rows[-1]], [None, tiling.rows])
        if len(rows) == 2:
            loops[rows[0]], tile = sch.split(loops[rows[0]], [None, tiling.tiles])
        else:
            tile = _unit(sch, row)
    else:
        loops[rows[-1]], tile, row = sch.split(loops[rows[-1]], [None, tiling.tiles, tiling.rows])
    reduced = [loops[axis] for axis in (*roles.reduced[: -2 if tiling.joined else -1], last)]
    right = [loops[axis] for axis in roles.only_right]
    left = [loops[axis] for axis in sorted(roles.only_left, key=lambda axis: axis in rows[-1:])]
    outer = [loops[axis] for axis in roles.both] + right + left
    inner = (tile, columns, term, row, lane)
    sch.reorder(*outer, *reduced, *inner)
    sch.reverse_compute_at(epilogue, outer[-1])
    if not covers_result(sch, epilogue):
        return None
    sch.parallel(sch.fuse(*outer[:-1]) if len(outer) > 1 else outer[0])
    sch.vectorize(lane)
    for loop, role in zip(inner, TileLoop.order, strict=True):
        sch.annotate(loop, TILE_LOOP, role)
    sch.annotate(row, TAIL_ROWS, tiling.left)
    sch.decompose_reduction(block, reduced[0])
    _write_back(sch, epilogue, outer[-1], unit)
    return sch


def _unit(sch: s_tir.Schedule, loop: LoopRV) -> LoopRV:
    return sch.add_unit_loop(loop)


def _write_back(sch: s_tir.Schedule, epilogue: SBlockRV, around: LoopRV, unit: MatrixUnit) -> None:
    """Vectorizes the innermost loop of the epilogue. Its rows are a loop; if sums are in vector registers, they are
    unrolled, so that they stay there.
    """
    loops = sch.get_loops(epilogue)
    first = next(i for i, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(around))) + 1
    inner = loops[first:]
    if not inner:
        return
    *rows, last = inner
    if not unit.registers:
        for row in rows:
            sch.unroll(row)
    elif trip_count(sch, last) > unit.lanes:
        column, last = sch.split(last, [None, unit.lanes])
        sch.unroll(column)
    sch.vectorize(last)
