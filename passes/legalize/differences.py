"""Differences of floats as sums, for TVM takes them for those of real numbers.

    (x + y) - y      →      (x + y) + y * -1

TVM's analyzer makes `x` of the first one, and 0 of `x - x`, wherever it meets them in a kernel. Of floats both are
other numbers: sums are rounded, which programs use that round by adding a large number and taking it away, and what is
infinite or no number has no difference of 0. LLVM and compilers for GPUs make one subtraction of the second form.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.operators.dtypes import is_float

__all__ = ["PlainDifferences"]


@tvm.transform.module_pass(opt_level=0, name="PlainDifferences")
class PlainDifferences:
    """All kernels without differences of floats."""

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        changed = {
            gv: tvm_ffi.structural_map(func, (tirx.Sub, _sum)) if isinstance(func, tirx.PrimFunc) else func
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
