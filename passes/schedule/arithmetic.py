"""Counts the arithmetic operations of a kernel."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call

from nnefc.ir.rebuild import with_fields
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.passes.tir.common.expressions import is_number
from nnefc.passes.tir.dot.dot_instructions import is_dot_product, terms_of

__all__ = ["arithmetic_of"]


def arithmetic_of(kernel: tirx.PrimFunc) -> int:
    """Additions, multiplications and other operations of one call, of a kernel without a schedule; 0 where they depend
    on sizes known at run time, and of kernels written in vectors, which move data only.

    Of a dot product each term counts, with its addition.
    """
    if dynamic_sizes_of(kernel):
        return 0
    body = tvm_ffi.structural_map(kernel.body, [(Call, _term_by_term), (tirx.Mul, _without_sign)])
    measured = with_fields(kernel, body=body)
    try:
        return int(tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": measured})))
    except (tvm.error.InternalError, ValueError, TypeError, OverflowError):
        return 0


def _without_sign(product: tirx.Mul) -> tirx.Expr:
    """Of an element with the other sign the element, which takes no operation: see
    `passes/legalize/ieee_differences.py`."""
    return product.a if is_number(product.b, -1) else product


def _term_by_term(call: Call) -> tirx.Expr:
    """Expands a dot product into its multiplications and additions; returns any other call unchanged."""
    if not is_dot_product(call):
        return call
    _, left, right = call.args
    dtype = call.expr_ty().dtype
    term = left.astype(dtype) * right.astype(dtype)
    return sum([term] * (terms_of(call) - 1), term)
