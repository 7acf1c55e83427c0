"""Quantizes and dequantizes elements with a scale and a zero point.

quantized(x, s, z)       =      cut(round(x / s) + z)          rounded to even, cut to the range of the result's type;
                                                              NaN becomes its lower limit
dequantized(q, s, z)     =      (q - z) · s

Floats of 8 bits have no zero point: a conversion rounds to even, cuts, and keeps NaN.
"""

from __future__ import annotations

import tvm
from tvm import tirx

from nnefc.support.element_types import FLOAT8

__all__ = ["dequantized", "quantized"]


def quantized(element: tirx.Expr, scale: tirx.Expr, zero: tirx.Expr | None, dtype: str) -> tirx.Expr:
    """Returns a float32 element as an integer of `dtype`, which has 8 or 16 bits, or a float of 8; no zero point is
    0."""
    if dtype in FLOAT8:
        return (element / scale).astype(dtype)
    low, high = (tirx.const(int(limit(dtype).value), "float32") for limit in (tvm.tirx.min_value, tvm.tirx.max_value))
    rounded = tirx.nearbyint(element / scale)
    moved = rounded if zero is None else rounded + zero.astype("float32")
    return tirx.min(tirx.max(moved, low), high).astype("int32").astype(dtype)


def dequantized(element: tirx.Expr, scale: tirx.Expr, zero: tirx.Expr | None) -> tirx.Expr:
    """Returns an integer element, or a float of 8 bits, as float32; no zero point is 0."""
    if str(element.expr_ty().dtype) in FLOAT8:
        return element.astype("float32") * scale
    wide = element.astype("int32")
    moved = wide if zero is None else wide - zero.astype("int32")
    return moved.astype("float32") * scale
