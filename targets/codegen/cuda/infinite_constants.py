"""Writes infinite and NaN constants of bfloat16 as conversions of float32's.

    bfloat16(-inf)      →      (bfloat16)float32(-inf)

TVM's code generator writes the former as `__float2bfloat16_rn(-inff)`, which names nothing in CUDA C.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields

__all__ = ["convert_infinite_constants"]


def convert_infinite_constants(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function of the device's in which no constant of bfloat16 is infinite or NaN."""

    def converted(expr: tirx.FloatImm) -> tirx.Expr:
        if str(expr.ty.dtype) != "bfloat16" or math.isfinite(expr.value):
            return expr
        return tirx.Cast("bfloat16", tirx.FloatImm("float32", expr.value))

    return with_fields(func, body=tvm_ffi.structural_map(func.body, (tirx.FloatImm, converted)))
