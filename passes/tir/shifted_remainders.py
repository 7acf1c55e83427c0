"""Keep TVM from making wrong code for GPUs of two shifted remainders in one access.

    C[i, j] = A[(i + 2) % 6, (j + 4) % 9]      becomes, with i and j fused into k, A[(k + 18) % 54]

TVM simplifies the flat index by what it knows of the fused loop and loses the second shift. It knows nothing of sums
that are converted to another type, so that is what they become here.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.passes.tir.expressions import parts_of, rebuilt
from nnefc.passes.tir.statements import with_values

__all__ = ["with_safe_remainders"]


def with_safe_remainders(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled kernel without remainders or quotients of two shifted sums in one access, but for converted ones."""
    return tirx.PrimFunc(func.params, with_values(func.body, _value), func.ret_type, func.attrs)


def _value(expr: tirx.Expr) -> tirx.Expr:
    expr = rebuilt(expr, _value)
    if isinstance(expr, TensorLoad) and sum(map(_shifted_sums, expr.indices)) > 1:
        return tirx.BufferLoad(expr.source, [_hidden(index) for index in expr.indices])
    return expr


def _shifted_sums(index: tirx.Expr) -> int:
    return sum(_is_shifted_part(part) for part in _with_parts(index))


def _hidden(index: tirx.Expr) -> tirx.Expr:
    index = rebuilt(index, _hidden)
    if not _is_shifted_part(index):
        return index
    dtype = str(index.a.expr_ty().dtype)
    other = "int32" if dtype == "int64" else "int64"
    return tirx.Cast(dtype, type(index)(tirx.Cast(other, index.a), tirx.Cast(other, index.b)))


def _with_parts(expr: tirx.Expr) -> Iterator[tirx.Expr]:
    yield expr
    for part in parts_of(expr):
        yield from _with_parts(part)


def _is_shifted_part(expr: tirx.Expr) -> bool:
    return isinstance(expr, tirx.FloorMod | tirx.FloorDiv) and _is_shifted(expr.a)


def _is_shifted(expr: tirx.Expr) -> bool:
    """Whether it is a sum with a constant, anywhere among its terms."""
    match expr:
        case tirx.Add() | tirx.Sub():
            return any(isinstance(side, tirx.IntImm) or _is_shifted(side) for side in (expr.a, expr.b))
    return False
