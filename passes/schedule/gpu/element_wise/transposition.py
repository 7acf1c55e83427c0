"""Schedules transpositions, fused or alone: tiles in shared memory make both reads and writes contiguous.

    for tile in blockIdx.x:
        for j in range(4): tile[threadIdx.y + 8 j, threadIdx.x] = A[…]      # neighbours of A
        barrier
        for j in range(4): C[…] = f(tile[threadIdx.x, threadIdx.y + 8 j])   # neighbours of C

A tile is 32 × 32; its lines are 33 long in shared memory, so that the threads of a warp read its columns from 32
different banks.

Axes that both tensors count through as if they were one are one group. Of `C[n, y, x, c] = f(A[n, c, y, x])` these are
(n), (y, x) and (c): a transposition of matrices, along the group in which neighbours of A lie, and the last one, in
which neighbours of C lie:

                 c                                (y, x)
           ┌───┬───┬───                          ┌───┬───┬───
    (y, x) │   │   │            C              c │   │   │           A: `across` is the group (y, x)
           ├───┼───┼───                          ├───┼───┼───
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad, TensorRegion
from tvm.sym import Analyzer

from nnefc.ir.rebuild import root_block, with_fields
from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock, steps_of
from nnefc.passes.schedule.gpu.inline_producers import inline_producers, is_simple
from nnefc.passes.schedule.schedules import schedule_of
from nnefc.passes.tir.common.expressions import flat_offset, int64, linear_strides, loads_of, replaced
from nnefc.passes.tir.common.shapes import Size, strides_of
from nnefc.symbolic.dims import is_known
from nnefc.targets.machine.gpu.description import WARP
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["TranspositionRule"]

_TILE = WARP
_LINES = 8  # of a tile that a block moves at once
_FILL = "fill"
_MIN_SIDE = 12  # of a matrix that is worth tiles: below, most of a tile is empty


class TranspositionRule:
    """One step without reductions that reads a tensor along another of its axes than the last."""

    def apply(self, kernel: KernelAnalysis, _target: GpuTarget) -> s_tir.Schedule | None:
        if kernel.reductions or not all(map(is_simple, kernel.steps)):
            return None
        sch = kernel.schedule()
        inline_producers(sch)
        step, *others = steps_of(sch)
        if not is_known(*step.sizes):
            return None
        if others or step.value is None or not step.trip_counts:
            return None
        found = _transposition_of(step)
        if found is None:
            return None
        sch = schedule_of(_Tiled(step, found).function(sch.mod["main"]))
        sch.storage_align(sch.get_sblock(_FILL), 0, 0, _TILE, 1)
        return sch


@dataclass(frozen=True)
class _Transposition:
    """A step whose operand `load` lies by other axes than its result.

    Attributes:
        groups: the axes of the result, those together that both tensors count through as one.
        across: the group along which neighbours in the operand lie; in the result it is the last one.
    """

    load: TensorLoad
    groups: tuple[tuple[int, ...], ...]
    across: int


def _transposition_of(step: ScheduleBlock) -> _Transposition | None:
    """Returns the operand that a step reads across, if there is just one, and the matrix is large enough for tiles."""
    if any(str(axis.var.ty.dtype) != "int64" for axis in step.axes) or step.conditions:
        return None  # what is read under a condition may not be there
    moving = [position for position, size in enumerate(step.sizes) if size > 1]
    if not moving:
        return None
    read = [(load, _steps(load, step)) for load in loads_of(step.value)]
    elsewhere = [(load, steps) for load, steps in read if steps is None or steps[moving[-1]] not in (0, 1)]
    load, steps = elsewhere[0] if len(elsewhere) == 1 else (None, None)
    if steps is None:
        return None
    groups = _groups(moving, steps, step.sizes)
    across = next((number for number, group in enumerate(groups) if steps[group[-1]] == 1), None)
    if across is None or across == len(groups) - 1:
        return None
    sides = [math.prod(step.sizes[axis] for axis in groups[g]) for g in (across, -1)]
    return _Transposition(load, tuple(map(tuple, groups)), across) if min(sides) >= _MIN_SIDE else None


def _steps(load: TensorLoad, step: ScheduleBlock) -> list[int] | None:
    """Returns an operand's stride along each axis; None if it is not constant."""
    position = Analyzer().simplify(flat_offset(load.source, load.indices))
    return linear_strides(position, [axis.var for axis in step.axes])


def _groups(moving: Sequence[int], steps: Sequence[int], sizes: Sequence[Size]) -> list[list[int]]:
    """Returns the axes with more than one value, those together whose steps in the operand continue each other."""
    groups = [[moving[0]]]
    for before, axis in pairwise(moving):
        if steps[before] == steps[axis] * sizes[axis] and steps[axis]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


class _Tiled:
    """The kernel with its only step as two: one that fills a tile, and one that computes from it."""

    def __init__(self, step: ScheduleBlock, found: _Transposition) -> None:
        self._step, self._found = step, found
        self._sizes = [math.prod(step.sizes[axis] for axis in group) for group in found.groups]
        self._sides = (found.across, len(found.groups) - 1)  # the groups that the matrix lies along
        self._number, self._line, self._lane = (tirx.Var(name, "int64") for name in ("tile", "line", "lane"))
        self._tile = tirx.decl_buffer([int64(_TILE)] * 2, str(found.load.source.dtype), "tile", scope="shared")

    def function(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """`func`, of which this is the step, by tiles."""
        across, last = self._sides
        both = tirx.SeqStmt([self._phase(_FILL, across), self._phase("compute", last)])
        body = _loop(self._line, _LINES, _loop(self._lane, _TILE, both, "threadIdx.x"), "threadIdx.y")
        body = _loop(self._number, math.prod(self._tiles), body, "blockIdx.x")
        return with_fields(func, body=root_block(body, [self._tile]))

    @property
    def _tiles(self) -> list[Size]:
        """Returns the number of tiles along each group; a group that is no side has one for each value."""
        return [-(-size // _TILE) if g in self._sides else size for g, size in enumerate(self._sizes)]

    def _phase(self, name: str, along: int) -> tirx.Stmt:
        """Builds four iterations of a block, guarded at the boundary; threads are contiguous along one of the sides."""
        turn = tirx.Var(f"step_{name}", "int64")
        row = turn * int64(_LINES) + self._line
        axes = [tirx.Var(f"{axis.var.name}_{name}", "int64") for axis in self._step.axes]
        line, lane = (tirx.Var(f"{part}_{name}", "int64") for part in ("line", "lane"))
        known = list(zip((axis.var for axis in self._step.axes), axes, strict=True))
        store = self._fill(known, line, lane) if name == _FILL else self._compute(known, line, lane)
        positions = self._positions(along, row)
        domains = [*(own.dom for own in self._step.node.iter_vars), *[Range(int64(0), int64(_TILE))] * 2]
        iter_vars = [
            tirx.IterVar(domain, var, tirx.IterVar.DataPar)
            for domain, var in zip(domains, [*axes, line, lane], strict=True)
        ]
        reads = [_element(load.source, load.indices) for load in loads_of(store.value)]
        block = s_tir.SBlock(iter_vars, reads, [_element(store.buffer, store.indices)], name, store)
        inside = tirx.all(*(positions[g] < int64(self._sizes[g]) for g in self._sides))
        values = [*self._axis_values(positions), row, self._lane]
        return _loop(turn, _TILE // _LINES, s_tir.SBlockRealize(values, inside, block))

    def _fill(self, known: _Known, line: tirx.Var, lane: tirx.Var) -> tirx.BufferStore:
        return tirx.BufferStore(self._tile, replaced(self._found.load, known), [line, lane])

    def _compute(self, known: _Known, line: tirx.Var, lane: tirx.Var) -> tirx.BufferStore:
        body = self._step.node.body
        value = replaced(body.value, [(self._found.load, self._tile[lane, line]), *known])
        return tirx.BufferStore(body.buffer, value, [replaced(index, known) for index in body.indices])

    def _positions(self, along: int, row: tirx.Expr) -> list[tirx.Expr]:
        """Returns a thread's index along each group: in the tile at its lane along one side, at `row` of the other."""
        positions = []
        for g, digit in enumerate(_digits(self._number, self._tiles)):
            first = digit * int64(_TILE if g in self._sides else 1)
            positions.append(first + (self._lane if g == along else row if g in self._sides else int64(0)))
        return positions

    def _axis_values(self, positions: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        """Returns the values of the step's axes at these positions of the groups."""
        values: dict[int, tirx.Expr] = {}
        for group, position in zip(self._found.groups, positions, strict=True):
            digits = _digits(position, [self._step.sizes[axis] for axis in group])
            values |= dict(zip(group, digits, strict=True))
        return [values.get(axis, int64(0)) for axis in range(len(self._step.axes))]


_Known = Sequence[tuple[tirx.Expr, tirx.Expr]]


def _digits(number: tirx.Expr, sizes: Sequence[Size]) -> list[tirx.Expr]:
    """Returns the digits of a number whose digits have these many values, the last one changing fastest."""
    digits = []
    for axis, (size, below) in enumerate(zip(sizes, strides_of(sizes), strict=True)):
        digit = tirx.floordiv(number, int64(below))
        digits.append(tirx.floormod(digit, int64(size)) if axis else digit)
    return digits


def _loop(var: tirx.Var, count: int, body: tirx.Stmt, thread: str | None = None) -> tirx.For:
    if thread is None:
        return tirx.For(var, int64(0), int64(count), tirx.ForKind.UNROLLED, body)
    binding = tirx.IterVar(Range(int64(0), int64(count)), tirx.Var(thread, "int64"), tirx.IterVar.ThreadIndex, thread)
    return tirx.For(var, int64(0), int64(count), tirx.ForKind.THREAD_BINDING, body, binding)


def _element(tensor: tirx.Var, index: Sequence[tirx.Expr]) -> TensorRegion:
    return TensorRegion(tensor, [Range.from_min_extent(i, int64(1)) for i in index], tensor.ty)
