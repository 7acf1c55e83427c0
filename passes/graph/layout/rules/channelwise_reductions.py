"""Rewrites kernels that reduce windows of each channel by itself, such as poolings with padding of dynamic sizes.

    p[n, c, y, x] = max(p[…], d[n, c, 2 y + i - a, 2 x + j - b])
                                     ↓
    p[n, b, y, x, l] = max(p[…], d[n, b, 2 y + i - a, 2 x + j - b, l])

The kernel's one block gets an axis for the channels of a block, as the last one of its spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad, TensorRegion
from tvm.sym import Analyzer

from nnefc.ir.kernel_calls import kept_apart
from nnefc.ir.rebuild import nested, perfect_nest, root_block, with_fields
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.tir.common.expressions import is_number, substituted, variables_of
from nnefc.symbolic.dims import dimensions, expression

__all__ = ["RULES"]


def _windows(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    result, function = call.ty_args[0], layouts.builder.get()[call.args[0]]
    operands = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else []
    layout = layouts.layout_of(operands[0]) if operands else None
    if layout is None or not isinstance(result, relax.TensorType) or not isinstance(function, tirx.PrimFunc):
        return None
    shape = dimensions(result.shape)
    realize = _reduction(function)
    if realize is None or len(shape) < 3 or shape[1] != layout.channels:
        return None
    if any(isinstance(arg.ty, relax.TensorType) for arg in operands[1:]):
        return None
    made = _in_blocks(function, realize, layout)
    name = str(call.args[0].name_hint)
    batch, _, *spatial = shape
    sizes = batch, layout.blocks, *spatial, layout.size
    type_ = relax.TensorType([expression(n) for n in sizes], result.dtype)
    target = layouts.builder.add_func(kept_apart(made), name)
    return layouts.having(layouts.builder.emit(relax.call_tir(target, relax.Tuple(operands), type_)), layout)


def _reduction(function: tirx.PrimFunc) -> s_tir.SBlockRealize | None:
    """Returns the only block of a kernel if it reduces elements of the first parameter in the channel of the result."""
    stmt = function.body
    if isinstance(stmt, s_tir.SBlockRealize):
        if stmt.block.alloc_buffers:
            return None
        stmt = stmt.block.body
    loops = perfect_nest(stmt)
    stmt = loops[-1].body if loops else stmt
    if not isinstance(stmt, s_tir.SBlockRealize) or not isinstance(stmt.block.init, tirx.BufferStore):
        return None
    stmt = _without_unit_axes(stmt)
    store = stmt.block.body
    if not isinstance(store, tirx.BufferStore) or len(loops) != len(stmt.block.iter_vars):
        return None
    own = [axis.var for axis in stmt.block.iter_vars if axis.iter_type == tirx.IterVar.DataPar]
    if not store.buffer.same_as(function.params[-1]) or not _is_index(store.indices, own) or len(own) < 3:
        return None
    if not all(value.same_as(loop.loop_var) for value, loop in zip(stmt.iter_values, loops, strict=True)):
        return None
    return stmt if _is_of_channels(store.value, store.buffer, function.params[0], own) else None


def _without_unit_axes(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
    """Returns a block whose indices do not mention reduction axes of size one, as windows have along channels."""
    block = realize.block
    units = {
        axis.var: tirx.IntImm("int64", 0)
        for axis in block.iter_vars
        if axis.iter_type == tirx.IterVar.CommReduce and is_number(axis.dom.extent, 1)
    }
    if not units or not isinstance(block.body, tirx.BufferStore):
        return realize

    def index(expr: tirx.Expr) -> tirx.Expr:
        return Analyzer().simplify(substituted(expr, units))

    def load(source: tirx.Var, indices: Sequence[tirx.Expr]) -> tirx.Expr:
        return tirx.BufferLoad(source, [index(each) for each in indices])

    def region(each: TensorRegion) -> TensorRegion:
        ranges = [Range.from_min_extent(index(part.min), part.extent) for part in each.region]
        return tirx.BufferRegion(each.source, ranges)

    body = tirx.BufferStore(block.body.buffer, substituted(block.body.value, units, load), block.body.indices)
    made = with_fields(block, body=body, reads=[region(each) for each in block.reads])
    return s_tir.SBlockRealize(realize.iter_values, realize.predicate, made)


def _is_of_channels(value: tirx.Expr, result: tirx.Var, data: tirx.Var, own: Sequence[tirx.Var]) -> bool:
    """Whether all loads are from the result's channel, and nothing else depends on it."""
    channel = own[1]
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(value, (TensorLoad, loads.append))
    for load in loads:
        if load.source.same_as(result):
            if not _is_index(load.indices, own):
                return False
            continue
        others = [index for axis, index in enumerate(load.indices) if axis != 1]
        if not load.source.same_as(data) or len(load.indices) != len(own) or channel in variables_of(others):
            return False
        if not load.indices[1].same_as(channel):
            return False
    hidden = substituted(value, {}, lambda source, _index: tirx.const(0, str(source.dtype)))
    return channel not in variables_of([hidden])


def _is_index(index: Sequence[tirx.Expr], own: Sequence[tirx.Var]) -> bool:
    return len(index) == len(own) and all(i.same_as(var) for i, var in zip(index, own, strict=True))


def _in_blocks(function: tirx.PrimFunc, realize: s_tir.SBlockRealize, layout: Blocked) -> tirx.PrimFunc:
    """Returns the kernel with operands and results in blocks of channels."""
    block, loops = realize.block, perfect_nest(_body_of(function))
    rank = sum(axis.iter_type == tirx.IterVar.DataPar for axis in block.iter_vars)
    outer = expression(layout.blocks)
    count, zero = tirx.IntImm("int64", layout.size), tirx.IntImm("int64", 0)

    def blocked(buffer: tirx.Var) -> tirx.Var:
        batch, _, *spatial = buffer.shape
        return tirx.decl_buffer([batch, outer, *spatial, count], buffer.dtype, buffer.name, layout=None)  # as TE has

    data, result = function.params[0], function.params[-1]
    made = {data: blocked(data), result: blocked(result)}
    lane, loop_var = tirx.Var("v_lane", "int64"), tirx.Var("lane", "int64")
    axis = tirx.IterVar(Range.from_min_extent(zero, count), lane, tirx.IterVar.DataPar)

    def load(source: tirx.Var, index: Sequence[tirx.Expr]) -> tirx.Expr:
        return tirx.BufferLoad(made[source], [*index, lane])

    def store(stmt: tirx.BufferStore) -> tirx.BufferStore:
        return tirx.BufferStore(made[stmt.buffer], substituted(stmt.value, {}, load), [*stmt.indices, lane])

    def region(regions: Sequence[TensorRegion]) -> list[TensorRegion]:
        lanes = Range.from_min_extent(lane, tirx.IntImm("int64", 1))
        return [tirx.BufferRegion(made[each.source], [*each.region, lanes]) for each in regions]

    axes = list(block.iter_vars)
    axes[1] = tirx.IterVar(Range.from_min_extent(zero, outer), axes[1].var, axes[1].iter_type)
    values = list(realize.iter_values)
    own = with_fields(
        block,
        iter_vars=[*axes[:rank], axis, *axes[rank:]],
        reads=region(block.reads),
        writes=region(block.writes),
        body=store(block.body),
        init=store(block.init),
    )
    channels = with_fields(loops[1], extent=outer)
    lanes = tirx.For(loop_var, zero, count, tirx.ForKind.SERIAL, loops[0].body)
    nest = [loops[0], channels, *loops[2:rank], lanes, *loops[rank:]]
    inner = s_tir.SBlockRealize([*values[:rank], loop_var, *values[rank:]], realize.predicate, own)
    params = [made.get(param, param) for param in function.params]
    return with_fields(function, params=params, body=root_block(nested(nest, inner)))


def _body_of(function: tirx.PrimFunc) -> tirx.Stmt:
    body = function.body
    return body.block.body if isinstance(body, s_tir.SBlockRealize) else body


RULES: dict[str, LayoutRule] = {"call_tir": _windows}
