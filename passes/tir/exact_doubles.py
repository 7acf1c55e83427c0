"""Write constants of float64 for GPUs by their bits.

TVM's code generator for CUDA writes them with 15 digits after the point, so that 2⁻⁵³ would be nothing.
"""

from __future__ import annotations

import math
import struct

import tvm
from tvm import tirx

from nnefc.passes.tir.expressions import rebuilt
from nnefc.passes.tir.statements import with_values

__all__ = ["with_exact_doubles"]


def with_exact_doubles(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled kernel whose constants of float64 are what they are."""
    return tirx.PrimFunc(func.params, with_values(func.body, _value), func.ret_type, func.attrs)


def _value(expr: tirx.Expr) -> tirx.Expr:
    if not isinstance(expr, tvm.tirx.FloatImm):
        return rebuilt(expr, _value)
    value = float(expr.value)
    if str(expr.expr_ty().dtype) != "float64" or not math.isfinite(value) or float(f"{value:.15f}") == value:
        return expr
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return tirx.call_pure_extern("float64", "__longlong_as_double", tirx.IntImm("int64", bits))
