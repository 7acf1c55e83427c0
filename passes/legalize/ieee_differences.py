"""Writes float differences as sums and negated comparisons as integers, because TVM simplifies floats as reals.

    (x + y) - y      →      (x + y) + y * -1
    not x < y        →      int(x < y) == 0

TVM's analyzer makes `x` of the first one, 0 of `x - x`, and `y <= x` of the last one, wherever it meets them in a
kernel. For floats these rewrites are wrong: sums are rounded, and programs round by adding and subtracting a large
number; `inf - inf` and NaN differences are NaN; every comparison with NaN is false. LLVM and GPU compilers turn the
second forms into one subtraction and one comparison.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.operators.dtypes import is_float

__all__ = ["rewrite_differences"]


def rewrite_differences(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrites differences of floats, and negations of their comparisons, in all kernels."""
    changes = [(tirx.Sub, _sum), (tirx.Not, _negation)]
    changed = {
        gv: tvm_ffi.structural_map(func, changes) if isinstance(func, tirx.PrimFunc) else func
        for gv, func in mod.functions.items()
    }
    return tvm.IRModule(changed, mod.attrs)


def _sum(node: tirx.Sub) -> tirx.Expr:
    dtype = str(node.expr_ty().dtype)
    if not is_float(dtype):
        return node
    if isinstance(node.b, tirx.FloatImm):
        return tirx.Add(node.a, tirx.const(-node.b.value, dtype))
    return tirx.Add(node.a, tirx.Mul(node.b, tirx.const(-1, dtype)))


_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


def _negation(node: tirx.Not) -> tirx.Expr:
    if not _compares_floats(node.a):
        return node
    return tirx.EQ(node.a.astype("int8"), tirx.const(0, "int8"))


def _compares_floats(condition: tirx.Expr) -> bool:
    """Whether a condition compares floats, or combines such comparisons."""
    if isinstance(condition, tirx.And | tirx.Or):
        return _compares_floats(condition.a) or _compares_floats(condition.b)
    return isinstance(condition, _COMPARISONS) and is_float(str(condition.a.expr_ty().dtype))
