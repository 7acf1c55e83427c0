"""Pads a dynamic axis to full tiles in computation: elements beyond the end are computed but not written.

    for x in w: C[x] = sum(A[x + k])         for x in 14 q: C[x] = sum(A[x + k])
    for x in w: D[x] = f(C[x])          →    for x in 14 q: if x < e: D[x] = f(C[x])

with the variables e = w and q = ceil(w / 14), so that the axis is divided like one of known size. Once the kernel has
its schedule, tiles lose the condition on the end, and the last one becomes smaller ones, which compute nothing
beyond it: see `passes/tir/common/peel_tail_tiles.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range

from nnefc.ir.rebuild import nested, perfect_nest, with_fields
from nnefc.passes.schedule.analysis import ScheduleBlock, steps_of
from nnefc.passes.schedule.reducers import reducer_of
from nnefc.passes.schedule.schedules import schedule_of, without_dynamic_dims
from nnefc.passes.tir.common.expressions import int64, replaced, variables_of
from nnefc.passes.tir.common.name_symbolic_dims import name_symbolic_dims, named_sizes
from nnefc.passes.tir.common.peel_tail_tiles import TiledAxis, tile_axis, tiled_axes
from nnefc.passes.tir.common.shapes import sizes_of
from nnefc.symbolic.dims import ceil_div, expression, named

__all__ = ["goes_to_the_end", "in_full_tiles", "rows_in_full_vectors"]

_Change = Callable[[tirx.Stmt], tirx.Stmt]


def in_full_tiles(
    sch: s_tir.Schedule,
    name: str,
    axis: int,
    tile: int,
    remainders: Sequence[int] | None = None,
) -> s_tir.Schedule | None:
    """Returns a new schedule of the kernel in which a step is computed in full tiles along a dynamic axis.

    Args:
        sch: without changed loops; all steps after `name` are element-wise.
        name: of a step that writes one tensor.
        remainders: sizes of the smaller tiles that the last one is made of, the greatest first, and at last 1; of an
            axis of known size what is left; None if the last tile is computed like the others, from indices in bounds.

    Returns:
        None where that tensor is read elsewhere than in the same position along the axis.
    """
    steps = steps_of(sch)
    step = next(s for s in steps if s.name == name)
    func, along = without_dynamic_dims(sch.mod["main"]), step.axes[axis]
    dims = [n for n, position in enumerate(step.writes[0].region) if position.min.same_as(along.var)]
    own = any(buffer.same_as(step.result) for buffer in func.body.block.alloc_buffers)
    readers = {s.name: _axis_of_reads(s, step.result, dims) for s in steps if s.read_of(step.result) is not None}
    readers.pop(name, None)
    if any(at is not None and steps[n].axes[at].size != along.size for n, at in _positions(steps, readers)):
        return None
    goes_along = len(dims) == 1 and readers and None not in readers.values() if own else not readers
    if not goes_along or not all(s.loops_are_axes for s in steps):
        return None
    end, tiles = expression(named("e", along.size)), expression(ceil_div(along.size, tile))
    count = expression(named("q", ceil_div(along.size, tile)))
    if remainders is None:  # TVM sees that it is the count of another axis, if it is the same variable
        count = next((var for var, size in named_sizes(func) if tvm_ffi.structural_equal(size, tiles)), count)
    extent = count * int64(tile)
    changes = {
        s.name: (reader, _guarded(s.axes[reader].var, end))
        for s in steps
        if (reader := readers.get(s.name)) is not None
    }
    if not own:
        changes[name] = axis, _guarded(along.var, end)
    else:
        changes[name] = axis, _unchanged
    made = [
        _with_extent(stmt, extent, *changes[s.name]) if s.name in changes else stmt
        for stmt, s in zip(_statements(func), steps, strict=True)
    ]
    func = _with_steps(func, made)
    if own:
        func = _with_size(func, step.result, dims[0], extent)
    func = tile_axis(func, TiledAxis(end, count, tile, tuple(remainders or ())))
    return schedule_of(name_symbolic_dims(func, {end: expression(along.size), count: tiles}))


def goes_to_the_end(sch: s_tir.Schedule, loop: s_tir.schedule.LoopRV) -> bool:
    """Whether a loop's body compares the index with the end of an axis whose last tile is peeled."""
    ends = {axis.end for axis in tiled_axes(sch.mod["main"]) if axis.remainders}
    stmt = sch.get(loop)
    realized: list[s_tir.SBlockRealize] = []
    tvm_ffi.structural_walk(stmt, (s_tir.SBlockRealize, realized.append))
    for realize in realized:
        compared: list[tirx.Expr] = []
        tvm_ffi.structural_walk(realize.block.body, ((tirx.LT, tirx.LE, tirx.Min), compared.append))
        used = variables_of([node for node in compared if ends & variables_of([node])])
        pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if any(stmt.loop_var in variables_of([value]) for axis, value in pairs if axis.var in used):
            return True
    return False


def rows_in_full_vectors(sch: s_tir.Schedule, rank: int, lanes: int) -> s_tir.Schedule | None:
    """Returns a new schedule of the kernel with all steps in full vectors along rows of dynamic length.

        for r in w: s = max(s, x[r])              for r in 16 q: s = max(s, x[r] if r < e else smallest)
        for r in w: y[r] = exp(x[r] - s)    →     for r in 16 q: if r < e: y[r] = exp(x[r] - s)

    Args:
        sch: without changed loops, of steps along the last axis, or over the last axis.
        rank: how many axes count the rows; steps that have no others have one result a row.

    Returns:
        None where rows have several lengths, or a reduction is of no known kind.
    """
    steps = steps_of(sch)
    func = without_dynamic_dims(sch.mod["main"])
    along = {s.name: len(s.axes) - 1 for s in steps if len(s.axes) > rank and s.axes[-1].size != 1}
    sizes = [s.axes[-1].size for s in steps if s.name in along]
    if not sizes or any(size != sizes[0] for size in sizes) or not all(s.loops_are_axes for s in steps):
        return None
    end, tiles = expression(named("e", sizes[0])), expression(ceil_div(sizes[0], lanes))
    count = expression(named("q", ceil_div(sizes[0], lanes)))
    extent = count * int64(lanes)
    made, grown = [], []
    for stmt, step in zip(_statements(func), steps, strict=True):
        if step.name in along:
            change = _limited(step, end) if step.is_reduction else _guarded(step.axes[-1].var, end)
            if change is None:
                return None
            stmt = _with_extent(stmt, extent, along[step.name], change)
            if any(step.result.same_as(buffer) for buffer in func.body.block.alloc_buffers):
                positions = enumerate(step.writes[0].region)
                grown += [(step.result, n) for n, position in positions if position.min.same_as(step.axes[-1].var)]
        made.append(stmt)
    func = _with_steps(func, made)
    for tensor, dim in grown:
        func = _with_size(func, tensor, dim, extent)
    func = tile_axis(func, TiledAxis(end, count, lanes, ()))
    return schedule_of(name_symbolic_dims(func, {end: expression(sizes[0]), count: tiles}))


def _statements(func: tirx.PrimFunc) -> list[tirx.Stmt]:
    """Returns the steps of a kernel."""
    body = func.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _with_steps(func: tirx.PrimFunc, steps: Sequence[tirx.Stmt]) -> tirx.PrimFunc:
    root = func.body.block
    body = tirx.SeqStmt(steps) if len(steps) > 1 else steps[0]
    made = with_fields(root, iter_vars=[], body=body, init=None)
    return with_fields(func, body=s_tir.SBlockRealize([], True, made))


def _with_size(func: tirx.PrimFunc, tensor: tirx.Var, dim: int, size: tirx.Expr) -> tirx.PrimFunc:
    """Returns the kernel with another size for a dimension of one of its own tensors."""
    shape = [size if n == dim else expression(other) for n, other in enumerate(sizes_of(tensor))]
    grown = tirx.decl_buffer(shape, str(tensor.dtype), tensor.name, layout=None)
    return tvm_ffi.structural_map(func, (tirx.Var, lambda var: grown if var.same_as(tensor) else var))


def _positions(steps: Sequence[ScheduleBlock], readers: Mapping[str, int | None]) -> list[tuple[int, int | None]]:
    return [(n, readers[step.name]) for n, step in enumerate(steps) if step.name in readers]


def _axis_of_reads(step: ScheduleBlock, tensor: tirx.Var, dims: Sequence[int]) -> int | None:
    """Returns the axis of an element-wise step along which it reads a tensor, if all its reads have that index."""
    if step.is_reduction or len(dims) != 1:
        return None
    indices = [load.indices[dims[0]] for load in step.loads if load.source.same_as(tensor)]
    return next((n for n, a in enumerate(step.axes) if indices and all(i.same_as(a.var) for i in indices)), None)


def _with_extent(stmt: tirx.Stmt, extent: tirx.Expr, axis: int, change: _Change) -> tirx.Stmt:
    """Returns a step as statements, a block in a loop for each of its axes, with another extent of one, and a changed
    body.
    """
    loops = perfect_nest(stmt)
    stmt = loops[-1].body
    block = stmt.block
    axes = list(block.iter_vars)
    axes[axis] = tirx.IterVar(Range(int64(0), extent), axes[axis].var, axes[axis].iter_type)
    made = with_fields(block, iter_vars=axes, body=change(block.body))
    loops[axis] = with_fields(loops[axis], extent=extent)
    return nested(loops, s_tir.SBlockRealize(stmt.iter_values, stmt.predicate, made))


def _limited(step: ScheduleBlock, end: tirx.Expr) -> _Change | None:
    """Reduces only elements before the end; None for reductions whose initial value is unknown."""
    reducer = reducer_of(step.node)
    if reducer is None or len(reducer.elements) != 1:
        return None
    (element,), (first,) = reducer.elements, reducer.first
    limited = tirx.if_then_else(step.axes[-1].var < end, element, first)

    def change(body: tirx.BufferStore) -> tirx.BufferStore:
        return tirx.BufferStore(body.buffer, replaced(body.value, [(element, limited)]), body.indices)

    return change if isinstance(step.node.body, tirx.BufferStore) else None


def _unchanged(body: tirx.Stmt) -> tirx.Stmt:
    return body


def _guarded(var: tirx.Var, end: tirx.Expr) -> _Change:
    """Executes a statement only for indices before the end."""
    return lambda body: tirx.IfThenElse(var < end, body, None)
