"""Replaces reductions over empty axes by their initial values.

    for i in 4:                                     for i in 4:
        for k in 0:                                     C[i] = 0
            if k == 0: C[i] = 0                →
            C[i] += A[i, k]

A loop with a trip count of 0 would leave the result unwritten.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from nnefc.ir.rebuild import with_fields
from nnefc.symbolic.dims import variables

__all__ = ["fold_empty_reductions"]


def fold_empty_reductions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return an unscheduled kernel without reductions over axes that are known to be empty."""
    gone: set[tirx.Var] = set()

    def note(realize: s_tir.SBlockRealize) -> None:
        if _is_empty_sum(realize.block):
            bound = zip(realize.block.iter_vars, realize.iter_values, strict=True)
            along = [value for axis, value in bound if axis.iter_type == axis.CommReduce]
            gone.update(var for value in along for var in variables(value))

    tvm_ffi.structural_walk(func.body, (s_tir.SBlockRealize, note))
    if not gone:
        return func

    def first_values(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        block = realize.block
        if not _is_empty_sum(block):
            return realize
        bound = zip(block.iter_vars, realize.iter_values, strict=True)
        kept = [(axis, value) for axis, value in bound if axis.iter_type != axis.CommReduce]
        axes, values = ([pair[part] for pair in kept] for part in (0, 1))
        made = s_tir.SBlock(axes, [], block.writes, block.name_hint, block.init, annotations=block.annotations)
        return s_tir.SBlockRealize(values, realize.predicate, made)

    def without_iterations(loop: tirx.For) -> tirx.Stmt:
        body: tirx.Stmt = loop.body
        return body if loop.loop_var in gone else loop

    body = tvm_ffi.structural_map(func.body, ((s_tir.SBlockRealize, first_values), (tirx.For, without_iterations)))
    return with_fields(func, body=body)


def _is_empty_sum(block: s_tir.SBlock) -> bool:
    axes = [axis.dom.extent for axis in block.iter_vars if axis.iter_type == axis.CommReduce]
    return block.init is not None and any(isinstance(size, tirx.IntImm) and size.value == 0 for size in axes)
