"""Transpositions, alone or within element-wise steps: tiles go through shared memory, both ways along lines of memory.

    for tile in blockIdx.x:
        for j in range(4): tile[threadIdx.y + 8 j, threadIdx.x] = A[…]      # neighbours of A
        barrier
        for j in range(4): C[…] = f(tile[threadIdx.x, threadIdx.y + 8 j])   # neighbours of C

A tile is 32 × 32; its lines are 33 long in shared memory, so that the threads of a warp read its columns from 32
different banks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad, TensorRegion
from tvm.sym import Analyzer, detect_linear_equation

from nnefc.passes.schedule.cuda.analysis import conditions_of, flat_index, loads_of
from nnefc.passes.schedule.cuda.joining import is_simple, join_steps
from nnefc.passes.schedule.structure import is_reduction, root_blocks, schedule_of
from nnefc.passes.tir.expressions import int64, replaced
from nnefc.targets.machine.cuda_target import CudaTarget

__all__ = ["TranspositionRule"]

_TILE = 32
_LINES = 8  # of a tile that a block moves at once
_FILL = "fill"
_LEAST_SIDE = 12  # of a matrix that is worth tiles: below, most of a tile is empty


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


class TranspositionRule:
    """One step without reductions that reads a tensor along another of its axes than the last."""

    def apply(self, func: tirx.PrimFunc, _target: CudaTarget) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        if any(is_reduction(sch, block) or not is_simple(sch, block) for block in root_blocks(sch)):
            return None
        join_steps(sch)
        blocks = root_blocks(sch)
        node = sch.get(blocks[0])
        if len(blocks) != 1 or not isinstance(node.body, tirx.BufferStore) or not sch.get_loops(blocks[0]):
            return None
        found = _transposition(node)
        if found is None:
            return None
        sch = schedule_of(_through_tiles(sch.mod["main"], node, found))
        sch.storage_align(sch.get_sblock(_FILL), 0, 0, _TILE, 1)
        return sch


def _transposition(node: s_tir.SBlock) -> _Transposition | None:
    """The operand that a block reads across, if there is just one, and the matrix is large enough for tiles."""
    extents = [int(axis.dom.extent) for axis in node.iter_vars]
    axes = [axis.var for axis in node.iter_vars]
    if any(str(axis.ty.dtype) != "int64" for axis in axes):
        return None
    moved = [position for position, extent in enumerate(extents) if extent > 1]
    if not moved or any(True for _ in conditions_of(node.body.value)):  # what is not read may not be there
        return None
    read = [(load, _steps(load, axes)) for load in loads_of(node.body.value)]
    found = [(load, steps) for load, steps in read if steps is None or steps[moved[-1]] not in (0, 1)]
    load, steps = found[0] if len(found) == 1 else (None, None)
    if steps is None:
        return None
    groups = [[moved[0]]]
    for before, axis in pairwise(moved):
        if steps[before] == steps[axis] * extents[axis] and steps[axis]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    across = next((g for g, group in enumerate(groups) if steps[group[-1]] == 1), None)
    if across is None or across == len(groups) - 1:
        return None
    sides = [math.prod(extents[axis] for axis in groups[g]) for g in (across, -1)]
    return _Transposition(load, tuple(map(tuple, groups)), across) if min(sides) >= _LEAST_SIDE else None


def _steps(load: TensorLoad, axes: Sequence[tirx.Var]) -> list[int] | None:
    """How far an operand's place moves with each axis; None if that is not always the same."""
    linear = detect_linear_equation(Analyzer().simplify(flat_index(load.source, load.indices)), list(axes))
    if not linear or not all(isinstance(step, tirx.IntImm) for step in linear):
        return None
    return [int(step) for step in linear[:-1]]


def _through_tiles(func: tirx.PrimFunc, node: s_tir.SBlock, found: _Transposition) -> tirx.PrimFunc:
    """The function with its only block as two: one that fills a tile, and one that computes from it."""
    extents = [int(axis.dom.extent) for axis in node.iter_vars]
    sizes = [math.prod(extents[axis] for axis in group) for group in found.groups]
    across, last = found.across, len(sizes) - 1
    tiled = [-(-size // _TILE) if g in (across, last) else size for g, size in enumerate(sizes)]
    number, line, lane = (tirx.Var(name, "int64") for name in ("tile", "line", "lane"))
    starts = [place * int64(_TILE if g in (across, last) else 1) for g, place in enumerate(_digits(number, tiled))]
    tile = tirx.decl_buffer([int64(_TILE)] * 2, str(found.load.source.dtype), "tile", scope="shared")

    def steps(name: str, along: int, make: Callable[[_Known, tirx.Var, tirx.Var], tirx.BufferStore]) -> tirx.Stmt:
        """Four rounds of a block, as far as they are inside; neighbouring threads go along one of the two groups."""
        step = tirx.Var(f"step_{name}", "int64")
        row = step * int64(_LINES) + line
        at = [
            start + (lane if g == along else row if g in (across, last) else int64(0)) for g, start in enumerate(starts)
        ]
        axes = [tirx.Var(f"{axis.var.name}_{name}", "int64") for axis in node.iter_vars]
        values: list[tirx.Expr] = [int64(0)] * len(axes)
        for group, place in zip(found.groups, at, strict=True):
            for axis, value in zip(group, _digits(place, [extents[axis] for axis in group]), strict=True):
                values[axis] = value
        inner = [tirx.Var(f"{part}_{name}", "int64") for part in ("line", "lane")]
        store = make([*zip((axis.var for axis in node.iter_vars), axes, strict=True)], *inner)
        doms = [*(axis.dom for axis in node.iter_vars), *[Range(int64(0), int64(_TILE))] * 2]
        iter_vars = [tirx.IterVar(d, v, tirx.IterVar.DataPar) for d, v in zip(doms, [*axes, *inner], strict=True)]
        reads = [_element(load.source, load.indices) for load in loads_of(store.value)]
        block = s_tir.SBlock(iter_vars, reads, [_element(store.buffer, store.indices)], name, store)
        inside = tirx.all(*(at[g] < int64(sizes[g]) for g in (across, last)))
        return _loop(step, _TILE // _LINES, s_tir.SBlockRealize([*values, row, lane], inside, block))

    def fill(known: _Known, at_line: tirx.Var, at_lane: tirx.Var) -> tirx.BufferStore:
        return tirx.BufferStore(tile, replaced(found.load, known), [at_line, at_lane])

    def compute(known: _Known, at_line: tirx.Var, at_lane: tirx.Var) -> tirx.BufferStore:
        value = replaced(node.body.value, [(found.load, tile[at_lane, at_line]), *known])
        return tirx.BufferStore(node.body.buffer, value, [replaced(index, known) for index in node.body.indices])

    both = tirx.SeqStmt([steps(_FILL, across, fill), steps("compute", last, compute)])
    body = _loop(lane, _TILE, both, "threadIdx.x")
    body = _loop(number, math.prod(tiled), _loop(line, _LINES, body, "threadIdx.y"), "blockIdx.x")
    root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=[tile])
    return tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, root), func.ret_type, func.attrs)


_Known = Sequence[tuple[tirx.Expr, tirx.Expr]]


def _digits(number: tirx.Expr, sizes: Sequence[int]) -> list[tirx.Expr]:
    """The digits of a number whose digits have these many values, the last one first counted through."""
    digits = []
    for axis, size in enumerate(sizes):
        digit = tirx.floordiv(number, int64(math.prod(sizes[axis + 1 :])))
        digits.append(tirx.floormod(digit, int64(size)) if axis else digit)
    return digits


def _loop(var: tirx.Var, extent: int, body: tirx.Stmt, thread: str | None = None) -> tirx.For:
    if thread is None:
        return tirx.For(var, int64(0), int64(extent), tirx.ForKind.UNROLLED, body)
    binding = tirx.IterVar(Range(int64(0), int64(extent)), tirx.Var(thread, "int64"), tirx.IterVar.ThreadIndex, thread)
    return tirx.For(var, int64(0), int64(extent), tirx.ForKind.THREAD_BINDING, body, binding)


def _element(buffer: tirx.Var, index: Sequence[tirx.Expr]) -> TensorRegion:
    return TensorRegion(buffer, [Range.from_min_extent(i, int64(1)) for i in index], buffer.ty)
