"""Applies factors that are constant within a block of a sum to the sum of each block instead of to each term.

    for kb in 64:                                          for kb in 64:
        for k in 32: C += A[kb, k] W[kb, k] scale[kb]  →       P = 0
                                                               for k in 32: P += A[kb, k] W[kb, k]
                                                               C += P scale[kb]

A term without a factor that changes within a block counts as often as a block has elements. Integers are added up
as integers in a block. What all terms are multiplied by multiplies their sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorRegion
from tvm.s_tir.schedule import SBlockRV

from nnefc.ir.rebuild import with_fields
from nnefc.passes.schedule.analysis import step_of
from nnefc.passes.schedule.schedules import schedule_of, trip_count, without_dynamic_dims
from nnefc.passes.tir.common.expressions import int64, loads_of, substituted, variables_of

__all__ = ["sum_block_by_block"]

_PIECE = 8
"""The fewest terms that are summed up by themselves where there is a single accumulator: a piece costs some four
instructions.
"""


def sum_block_by_block(
    sch: s_tir.Schedule, block: SBlockRV, apart: bool = False
) -> tuple[s_tir.Schedule, SBlockRV, list[SBlockRV]]:
    """Returns a new schedule that sums up each block by itself, along the first of the reduced axes.

    Args:
        apart: whether a single sum is in registers: each of its terms waits for the one before, so that few of a block
            are summed up by themselves, if they are floats.

    Returns:
        The schedule; the sum of the blocks, which has one reduced axis; and the sums that it is made of: those of a
        block, which have the number of the block as an axis before all others, and, if there are any, those of few of
        its terms, which have the number of these before that one.
    """
    loops = sch.get_loops(block)[-len(step_of(sch, block).reduced) :]
    inner = sch.get(sch.rfactor(loops[0], 0))
    outer = sch.get(block)
    within = [axis for axis in inner.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
    elements = math.prod(int(axis.dom.extent) for axis in within)
    part, total = inner.body, outer.body
    moving, fixed, common = _apart(part.value.b, {axis.var for axis in within}, elements)
    names = dict(zip(part.indices, total.value.b.indices, strict=True))
    product, *others = [substituted(factor, names) for factor in fixed]

    sums, init = part.buffer, inner.init
    if isinstance(moving, tirx.Cast):
        moving = moving.value
        sums = tirx.decl_buffer(sums.shape, str(moving.expr_ty().dtype), sums.name, layout=None)
        init = tirx.BufferStore(sums, tirx.const(0, sums.dtype), part.indices)
    before, load = tirx.BufferLoad(sums, part.indices), tirx.BufferLoad(sums, total.value.b.indices)
    own = load.astype("float32") * product
    if common is None:
        summed = sum(others, total.value.a + own)
    else:
        summed = total.value.a + sum(others, own) * substituted(common, names)
    made = {
        str(inner.name_hint): _with_body(inner, tirx.BufferStore(sums, before + moving, part.indices), init),
        str(outer.name_hint): _with_body(outer, tirx.BufferStore(total.buffer, summed, total.indices), outer.init),
    }
    func = tvm_ffi.structural_map(
        without_dynamic_dims(sch.mod["main"]),
        (s_tir.SBlock, lambda node: made.get(str(node.name_hint)) or _with_tensor(node, part.buffer, sums)),
    )
    changed = schedule_of(func)
    whole, sums_of_block = (changed.get_sblock(str(node.name_hint)) for node in (outer, inner))
    pieces = _in_pieces(changed, sums_of_block) if apart and str(sums.dtype).startswith("float") else []
    return changed, whole, [sums_of_block, *pieces]


def _in_pieces(sch: s_tir.Schedule, block: SBlockRV) -> list[SBlockRV]:
    """Splits a sum over words and their elements into pieces of few terms; returns no piece if the sum is short
    itself.
    """
    word, element = sch.get_loops(block)[-2:]
    words = max(1, _PIECE // trip_count(sch, element))
    if trip_count(sch, word) <= words or trip_count(sch, word) % words:
        return []
    pieces, _ = sch.split(word, [None, words])
    return [sch.rfactor(pieces, 0)]


def _apart(term: tirx.Expr, within: set[tirx.Var], count: int) -> tuple[tirx.Expr, list[tirx.Expr], tirx.Expr | None]:
    """Splits products into the factors that change within a block and those that do not; None if all change."""
    products = [_operands(part, tirx.Mul) for part in _operands(term, tirx.Add)]
    (moving,) = (product for product in products if within & variables_of(product))
    changing = [factor for factor in moving if within & variables_of([factor])]
    tail = [factor for factor in moving if not within & variables_of([factor])]
    others = [[tirx.const(count, "float32"), *product] for product in products if product is not moving]
    common = [factor for factor in tail if all(_among(factor, other) for other in others)] if others else []
    if len(common) == len(tail):  # there is nothing to multiply the sum of a block by before others are added
        common = []
    fixed = [_product([f for f in factors if not _among(f, common)]) for factors in (tail, *others)]
    return math.prod(changing[1:], start=changing[0]), fixed, _product(common) if common else None


def _among(factor: tirx.Expr, factors: Sequence[tirx.Expr]) -> bool:
    return any(tvm_ffi.structural_equal(factor, other) for other in factors)


def _operands(expr: tirx.Expr, kind: type[tirx.Add | tirx.Mul]) -> list[tirx.Expr]:
    return [*_operands(expr.a, kind), *_operands(expr.b, kind)] if isinstance(expr, kind) else [expr]


def _product(factors: Sequence[tirx.Expr]) -> tirx.Expr:
    """Multiplies the factors; numbers are folded."""
    number = math.prod(float(factor.value) for factor in factors if isinstance(factor, tirx.FloatImm))
    others = [factor for factor in factors if not isinstance(factor, tirx.FloatImm)]
    first, *tail = others if number == 1 else [tirx.const(number, "float32"), *others]
    return math.prod(tail, start=first)


def _with_tensor(node: s_tir.SBlock, old: tirx.Var, new: tirx.Var) -> s_tir.SBlock:
    """Returns a block with a further tensor of its own."""
    if not any(tensor.same_as(old) for tensor in node.alloc_buffers):
        return node
    return with_fields(node, alloc_buffers=[new if tensor.same_as(old) else tensor for tensor in node.alloc_buffers])


def _with_body(node: s_tir.SBlock, store: tirx.BufferStore, init: tirx.Stmt) -> s_tir.SBlock:
    """Returns a block with another statement as its body."""
    reads = [_region(load.source, load.indices) for load in loads_of(store.value)]
    return with_fields(node, reads=reads, writes=[_region(store.buffer, store.indices)], body=store, init=init)


def _region(tensor: tirx.Var, indices: Sequence[tirx.Expr]) -> TensorRegion:
    return TensorRegion(tensor, [Range.from_min_extent(i, int64(1)) for i in indices], tensor.ty)
