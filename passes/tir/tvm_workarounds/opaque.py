"""Hides expressions from TVM, so that it does not fold, bound or substitute them.

    x / y                   →     x / opaque(y)            # reinterpret of y as its own type: no instruction
    a = y; A[a]; B[a]       →     a = smin(2**63 - 1, y)   # a call of LLVM's, which LLVM folds to y

TVM 0.27 does not look through a `reinterpret`, not even from a type to itself: neither its simplifier nor its analysis
of bounds, and code generators write such a call as its operand. To TVM a `reinterpret` is pure, though: `StmtSimplify`
replaces a variable that is bound to one by the call, in all copies of an unrolled loop. Variables are therefore bound
to a call of LLVM's, whose effects TVM does not know (:func:`opaque_binding`).

Of the ways to hide an expression that this folder and its users need, two are not here: `shifted_remainders.py`
converts indices, which stay narrow so, and `disable_unrolling.py` hides a loop from LLVM, not an expression from TVM.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Call, Op

from nnefc.passes.tir.common.expressions import int64, is_number

__all__ = ["bound_value", "opaque", "opaque_binding", "visible"]

_REINTERPRET = Op.get("tirx.reinterpret")
_LARGEST = (1 << 63) - 1


def opaque(value: tirx.Expr) -> tirx.Expr:
    """Returns an expression with this value, which TVM does not analyze."""
    return Call(_REINTERPRET, [value], ret_ty=value.expr_ty())


def visible(expr: tirx.Expr) -> tirx.Expr:
    """Returns the expression that :func:`opaque` hides, and any other expression unchanged."""
    if not isinstance(expr, Call) or expr.op != _REINTERPRET or expr.ty != expr.args[0].ty:
        return expr
    return expr.args[0]


def opaque_binding(var: tirx.Var, value: tirx.Expr) -> tirx.Bind:
    """Binds a variable of type int64, which TVM does not replace by its value; LLVM folds the minimum to the value."""
    return tirx.Bind(var, tirx.call_llvm_intrin("int64", "llvm.smin.i64", int64(_LARGEST), value))


def bound_value(value: tirx.Expr) -> tirx.Expr:
    """Returns the value of a variable of :func:`opaque_binding`, or of any other binding."""
    if not isinstance(value, Call) or getattr(value.op, "name", "") != "tirx.call_llvm_intrin" or len(value.args) != 3:
        return value
    _, limit, named = value.args
    return named if is_number(limit, _LARGEST) else value
