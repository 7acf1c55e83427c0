"""Guards threads beyond the last result, so that they neither compute nor write one.

    if i < count: sum[0] = …           if i < count: sum[0] = …
    out[i % count] = sum[0]      →     if i < count: out[i % count] = sum[0]

TVM guards a block that it moves to threads by the condition that its indices are in bounds. With dynamic dimensions it
writes indices as remainders, which always are: the block would write what surplus threads have in their registers.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from nnefc.ir.rebuild import with_fields
from nnefc.passes.schedule.schedules import scalars_of
from nnefc.passes.tir.common.expressions import conjuncts, variables_of

__all__ = ["guard_blocks"]

_Computed = dict[tirx.Var, list[tirx.Expr]]
"""The conditions under which tensors are computed, by the tensor."""


def guard_blocks(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel whose steps run only where what they read is computed, as far as their loops tell
    that.
    """
    body = _guarded(func.body, frozenset(scalars_of(func)), {})
    return with_fields(func, body=body)


def _guarded(stmt: tirx.Stmt, around: frozenset[tirx.Var], computed: _Computed) -> tirx.Stmt:
    """Returns a statement; `around` it are loops with these variables, and sizes, which are known everywhere."""
    match stmt:
        case tirx.SeqStmt():
            return tirx.SeqStmt([_guarded(part, around, computed) for part in stmt.seq])
        case tirx.For():
            body = _guarded(stmt.body, around | {stmt.loop_var}, computed)
            return with_fields(stmt, body=body)
        case s_tir.SBlockRealize() if not stmt.block.iter_vars:
            return s_tir.SBlockRealize([], stmt.predicate, _with_body(stmt.block, around, computed))
        case s_tir.SBlockRealize():
            return _step(stmt, around, computed)
    return stmt


def _with_body(block: s_tir.SBlock, around: frozenset[tirx.Var], computed: _Computed) -> s_tir.SBlock:
    return with_fields(block, iter_vars=[], body=_guarded(block.body, around, computed))


def _step(step: s_tir.SBlockRealize, around: frozenset[tirx.Var], computed: _Computed) -> s_tir.SBlockRealize:
    own = conjuncts(step.predicate)
    asked = list(own)
    for condition in (condition for read in step.block.reads for condition in computed.get(read.source, ())):
        variables = variables_of([condition])
        is_here = bool(variables) and variables <= around  # it is not of other loops
        if is_here and not any(tvm_ffi.structural_equal(condition, each) for each in asked):
            asked.append(condition)
    predicate = tirx.all(*asked) if len(asked) > len(own) else step.predicate
    for write in step.block.writes:  # of several steps that compute a tensor, what is asked in all of them
        before = computed.get(write.source, own)
        computed[write.source] = [each for each in before if any(tvm_ffi.structural_equal(each, one) for one in own)]
    return s_tir.SBlockRealize(step.iter_values, predicate, step.block)
