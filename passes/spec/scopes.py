"""Finds variables that statements use where nothing binds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from tvm import s_tir, tirx

__all__ = ["unbound_variables"]


def unbound_variables(stmt: tirx.Stmt, bound: Set[tirx.Var]) -> list[tirx.Var]:
    """Returns the variables and buffers in a statement that neither `bound` nor statements around a use define, each
    once. A binding or an allocation holds for the statements after it; copies of a loop may bind the same variable."""
    return list(dict.fromkeys(_unbound(stmt, set(bound))))


def _unbound(stmt: tirx.Stmt, bound: set[tirx.Var]) -> Iterator[tirx.Var]:
    """Yields the unbound variables of one statement, and adds to `bound` those that the statement defines for the
    statements after it.
    """
    match stmt:
        case tirx.SeqStmt():
            inner = {*bound}
            for part in stmt.seq:
                yield from _unbound(part, inner)
        case tirx.For():
            yield from _used([stmt.min, stmt.extent], bound)
            yield from _unbound(stmt.body, {*bound, stmt.loop_var})
        case tirx.While():
            yield from _used([stmt.condition], bound)
            yield from _unbound(stmt.body, {*bound})
        case tirx.IfThenElse():
            yield from _used([stmt.condition], bound)
            for branch in (stmt.then_case, stmt.else_case):
                if branch is not None:
                    yield from _unbound(branch, {*bound})
        case tirx.AttrStmt():
            yield from _used([stmt.value], bound)
            yield from _unbound(stmt.body, {*bound})
        case s_tir.SBlockRealize():
            yield from _used([*stmt.iter_values, stmt.predicate], bound)
            yield from _of_block(stmt.block, bound)
        case tirx.Bind():
            yield from _used([stmt.value], bound)
            bound.add(stmt.var)
        case tirx.AllocBuffer() | tirx.DeclBuffer():
            bound.add(stmt.buffer)
        case _:
            yield from (var for var in tirx.analysis.undefined_vars(stmt, []) if var not in bound)


def _of_block(block: s_tir.SBlock, bound: Set[tirx.Var]) -> Iterator[tirx.Var]:
    inner = {*bound, *(axis.var for axis in block.iter_vars), *block.alloc_buffers}
    inner |= {match.buffer for match in block.match_buffers}
    for part in (block.init, block.body):
        if part is not None:
            yield from _unbound(part, inner)


def _used(exprs: Iterable[tirx.Expr], bound: Set[tirx.Var]) -> Iterator[tirx.Var]:
    for expr in exprs:
        yield from (var for var in tirx.analysis.undefined_vars(tirx.Evaluate(expr), []) if var not in bound)
