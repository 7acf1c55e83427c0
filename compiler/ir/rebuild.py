"""Builds loops, blocks and functions of TIR: copies with some changed fields, and loop nests.

with_fields(loop, body=body)           the loop with another body; its kind, annotations and step are kept
with_fields(func, body=body)           the function with another body
nested(loops, body)                    the loops around another body
loop_nest([i, j], [4, n], body)        for i in range(4): for j in range(n): body
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tvm import s_tir, tirx

from nnefc.symbolic.dims import Dimension, expression

__all__ = ["loop_nest", "nested", "perfect_nest", "root_block", "with_fields"]

_Node = TypeVar("_Node", tirx.For, s_tir.SBlock, tirx.PrimFunc)

_FIELDS: dict[type, tuple[str, ...]] = {
    tirx.For: ("loop_var", "min", "extent", "kind", "body", "thread_binding", "annotations", "step"),
    s_tir.SBlock: (
        "iter_vars",
        "reads",
        "writes",
        "name_hint",
        "body",
        "init",
        "alloc_buffers",
        "match_buffers",
        "annotations",
    ),
    tirx.PrimFunc: ("params", "body", "ret_type", "attrs"),
}
"""Parameters of the constructors, in order; each is a field of that name."""


def with_fields(node: _Node, **fields: Any) -> _Node:
    """Returns a loop, block or function with some fields changed."""
    names = _FIELDS[type(node)]
    assert fields.keys() <= set(names), fields.keys()
    return type(node)(*(fields[name] if name in fields else getattr(node, name) for name in names))


def perfect_nest(stmt: tirx.Stmt) -> list[tirx.For]:
    """Return the loops of a perfect nest, the outermost first: each contains nothing but the next one."""
    loops: list[tirx.For] = []
    while isinstance(stmt, tirx.For):
        loops.append(stmt)
        stmt = stmt.body
    return loops


def nested(loops: Sequence[tirx.For], body: tirx.Stmt, **fields: Any) -> Any:
    """Return a statement inside copies of loops, the first one outermost; `fields` are changed in each copy."""
    for loop in reversed(loops):
        body = with_fields(loop, body=body, **fields)
    return body


def loop_nest(
    variables: Iterable[tirx.Var],
    sizes: Iterable[Dimension | tirx.Expr],
    body: tirx.Stmt,
    kind: int = tirx.ForKind.SERIAL,
) -> Any:
    """Return a statement in a loop from 0 for each variable, the first one outermost."""
    for var, size in reversed(list(zip(variables, sizes, strict=True))):
        extent = size if isinstance(size, tirx.Expr) else expression(size)
        body = tirx.For(var, expression(0), extent, kind, body)
    return body


def root_block(body: tirx.Stmt, buffers: Sequence[tirx.Var] = ()) -> s_tir.SBlockRealize:
    """Return the root block of a kernel with a body, which allocates buffers."""
    return s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body, None, list(buffers)))
