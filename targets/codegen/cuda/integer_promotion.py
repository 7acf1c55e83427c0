"""Computes 8- and 16-bit integer arithmetic in its own type, where C promotes to int.

    float32(a * b)      →      float32(uint8(int32(a * b)))

What C makes of two bytes is not cut to eight bits before it is stored, divided, compared or made a float.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields

__all__ = ["truncate_promoted_integers"]

_NARROW = ("int8", "uint8", "int16", "uint16")
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.FloorDiv, tirx.BitwiseNot, tirx.LShift)
"""Whose results may not be of the type of what they are made of."""


def truncate_promoted_integers(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function of the device's, whose results of such types are cut to them one by one; vectors are
    already.
    """

    def cut(expr: tirx.Expr) -> tirx.Expr:
        dtype = str(expr.ty.dtype)
        return tirx.Cast(dtype, tirx.Cast("int32", expr)) if dtype in _NARROW else expr  # TVM writes no cast to itself

    body = tvm_ffi.structural_map(func.body, (_ARITHMETIC, cut))
    return with_fields(func, body=body)
