"""Counts the arithmetic operations of a kernel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.expr import Call

from nnefc.ir.rebuild import with_fields
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.passes.tir.common.expressions import is_number
from nnefc.passes.tir.common.name_symbolic_dims import named_sizes
from nnefc.passes.tir.dot.dot_instructions import is_dot_product, terms_of
from nnefc.symbolic.dims import Dimension, dimension, substituted

__all__ = ["arithmetic_formula", "arithmetic_of"]


def arithmetic_of(kernel: tirx.PrimFunc) -> int:
    """Counts the additions, multiplications and other operations in one call of an unscheduled kernel; 0 where they
    depend on dynamic sizes, and for kernels written in vectors, which only move data.

    Of a dot product each term counts, with its addition.
    """
    if dynamic_sizes_of(kernel):
        return 0
    measured = with_fields(kernel, body=_expanded(kernel.body))
    try:
        return int(tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": measured})))
    except (tvm.error.InternalError, ValueError, TypeError, OverflowError):
        return 0


def arithmetic_formula(kernel: tirx.PrimFunc, sizes: Mapping[tirx.Var, Dimension] = MappingProxyType({})) -> str:
    """Returns the operations of one call of a kernel with dynamic dimensions, as a formula of their names.

        for i in range(batch): for j in range(8): C[i, j] = A[i, j] + B[j]        8 * (batch)

    It is empty where the dimensions are known, and where there is no such formula. Operations count as in
    :func:`arithmetic_of`, with a sum for each trip of its loops.

    Args:
        sizes: what the call gives the kernel for the sizes that it is written with.
    """
    if not dynamic_sizes_of(kernel):
        return ""
    values = dict(sizes)
    values |= {var: substituted(dimension(size), values) for var, size in named_sizes(kernel)}
    try:
        terms: Counter[tuple[str, ...]] = Counter()
        for number, factors in _terms(_expanded(kernel.body), [], values):
            terms[factors] += number
    except (tvm.error.InternalError, ValueError, TypeError, OverflowError):
        return ""
    return " + ".join(" * ".join([str(number), *factors]) for factors, number in sorted(terms.items()) if number)


def _terms(
    stmt: tirx.Stmt, extents: list[Dimension], values: Mapping[tirx.Var, Dimension]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yields the operations of each innermost statement, with the trip counts of the loops around it as factors."""
    match stmt:
        case tirx.For():
            yield from _terms(stmt.body, [*extents, substituted(dimension(stmt.extent), values)], values)
        case s_tir.SBlockRealize():
            yield from _terms(stmt.block.body, extents, values)
        case tirx.SeqStmt():
            for each in stmt.seq:
                yield from _terms(each, extents, values)
        case _:
            number = int(tvm.s_tir.analysis.estimate_tir_flops(stmt))
            number *= math.prod(extent for extent in extents if isinstance(extent, int))
            yield number, tuple(sorted(f"({extent})" for extent in extents if not isinstance(extent, int)))


def _expanded(body: tirx.Stmt) -> tirx.Stmt:
    """Returns a body in which TVM counts operations as this module does."""
    return tvm_ffi.structural_map(body, [(Call, _term_by_term), (tirx.Mul, _without_sign)])


def _without_sign(product: tirx.Mul) -> tirx.Expr:
    """Replaces a product with -1 by its operand: it takes no operation, see `passes/legalize/ieee_differences.py`."""
    return product.a if is_number(product.b, -1) else product


def _term_by_term(call: Call) -> tirx.Expr:
    """Expands a dot product into its multiplications and additions; returns any other call unchanged."""
    if not is_dot_product(call):
        return call
    _, left, right = call.args
    dtype = call.expr_ty().dtype
    term = left.astype(dtype) * right.astype(dtype)
    return sum([term] * (terms_of(call) - 1), term)
