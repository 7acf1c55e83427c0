"""Sums whose terms have factors that change from block to block only: these are applied to the sum of each block.

    for kb in 64:                                          for kb in 64:
        for k in 32: C += A[kb, k] W[kb, k] scale[kb]  →       P = 0
                                                               for k in 32: P += A[kb, k] W[kb, k]
                                                               C += P scale[kb]

A term without a factor that changes within a block is counted as often as a block has items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorRegion
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.schedule.analysis import step_of
from nnefc.passes.schedule.schedules import schedule_of, without_open_sizes
from nnefc.passes.tir.expressions import int64, loads_of, substituted, variables_of

__all__ = ["sum_block_by_block"]


def sum_block_by_block(sch: s_tir.Schedule, block: SBlockRV) -> tuple[s_tir.Schedule, SBlockRV, SBlockRV]:
    """Sum each block up by itself, along the first of the reduced axes, as a new schedule.

    Returns:
        The schedule, the sum of the blocks, which has one reduced axis, and the sums of a block, which have the number
        of the block as an axis before all others.
    """
    loops = sch.get_loops(block)[-len(step_of(sch, block).reduced) :]
    inner = sch.get(sch.rfactor(loops[0], 0))
    outer = sch.get(block)
    within = {axis.var for axis in inner.iter_vars if axis.iter_type == tirx.IterVar.CommReduce}
    part, total = inner.body, outer.body
    moving, fixed = _apart(part.value.b, within, math.prod(int(a.dom.extent) for a in inner.iter_vars if a.var in within))
    names = dict(zip(part.indices, total.value.b.indices, strict=True))
    product, *others = [substituted(factor, names) for factor in fixed]
    value = sum(others, total.value.b * product)
    made = {
        str(inner.name_hint): _with_value(inner, part.value.a + moving),
        str(outer.name_hint): _with_value(outer, total.value.a + value),
    }
    func = tvm_ffi.structural_map(
        without_open_sizes(sch.mod["main"]), (s_tir.SBlock, lambda node: made.get(str(node.name_hint), node))
    )
    changed = schedule_of(func)
    return changed, *(changed.get_sblock(str(node.name_hint)) for node in (outer, inner))


def _apart(term: tirx.Expr, within: set[tirx.Var], count: int) -> tuple[tirx.Expr, list[tirx.Expr]]:
    """The product of factors that change within a block; the other factors, and the other terms, for a whole block."""
    products = [_operands(part, tirx.Mul) for part in _operands(term, tirx.Add)]
    (moving,) = (product for product in products if within & variables_of(product))
    changing = [factor for factor in moving if within & variables_of([factor])]
    rest = [factor for factor in moving if not within & variables_of([factor])]
    others = [[tirx.const(count, "float32"), *product] for product in products if product is not moving]
    return math.prod(changing[1:], start=changing[0]), [_product(rest), *map(_product, others)]


def _operands(expr: tirx.Expr, kind: type[tirx.Add | tirx.Mul]) -> list[tirx.Expr]:
    return [*_operands(expr.a, kind), *_operands(expr.b, kind)] if isinstance(expr, kind) else [expr]


def _product(factors: Sequence[tirx.Expr]) -> tirx.Expr:
    """Of the factors; numbers are multiplied here."""
    number = math.prod(float(factor.value) for factor in factors if isinstance(factor, tirx.FloatImm))
    others = [factor for factor in factors if not isinstance(factor, tirx.FloatImm)]
    return math.prod(others, start=tirx.const(number, "float32")) if number != 1 else math.prod(others[1:], start=others[0])


def _with_value(node: s_tir.SBlock, value: tirx.Expr) -> s_tir.SBlock:
    """A block that stores another value in the same place."""
    store = node.body
    own = store.buffer
    reads = [
        TensorRegion(load.source, [Range.from_min_extent(i, int64(1)) for i in load.indices], load.source.ty)
        for load in loads_of(value)
        if not load.source.same_as(own)
    ]
    return s_tir.SBlock(
        node.iter_vars, [*node.writes, *reads], node.writes, node.name_hint,
        tirx.BufferStore(own, value, store.indices), node.init, node.alloc_buffers, node.match_buffers, node.annotations,
    )  # fmt: skip
