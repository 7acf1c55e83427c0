"""Recognizes kernels that compute each element by one expression, and returns that expression."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir, tirx

__all__ = ["element_of_kernel"]


def element_of_kernel(kernel: tirx.PrimFunc) -> tuple[Sequence[tirx.Var], tirx.Expr] | None:
    """Returns the index variables of a kernel's only result, and its element as an expression of the parameters.

    None for kernels of several steps, and for those that sum up or write elsewhere.
    """
    stmt = kernel.body
    if isinstance(stmt, s_tir.SBlockRealize):
        if stmt.block.alloc_buffers:
            return None
        stmt = stmt.block.body
    while isinstance(stmt, tirx.For):
        stmt = stmt.body
    if not isinstance(stmt, s_tir.SBlockRealize) or stmt.block.init is not None:
        return None
    block = stmt.block
    if not isinstance(block.body, tirx.BufferStore) or not block.body.buffer.same_as(kernel.params[-1]):
        return None
    index = list(block.body.indices)
    own = [axis.var for axis in block.iter_vars]
    if len(index) != len(own) or not all(i.same_as(var) for i, var in zip(index, own, strict=True)):
        return None
    return own, block.body.value
