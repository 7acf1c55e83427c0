"""Writes float64 constants for GPUs by their bits.

TVM's code generator for CUDA writes them with 15 digits after the point, so that 2⁻⁵³ would become 0.
"""

from __future__ import annotations

import math
import struct

import tvm_ffi
from tvm import tirx

__all__ = ["write_float64_literals"]


def write_float64_literals(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel whose float64 constants keep all their digits."""
    return tvm_ffi.structural_map(func, (tirx.FloatImm, _by_its_bits))


def _by_its_bits(expr: tirx.FloatImm) -> tirx.Expr:
    value = float(expr.value)
    if str(expr.expr_ty().dtype) != "float64" or not math.isfinite(value) or float(f"{value:.15f}") == value:
        return expr
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return tirx.call_pure_extern("float64", "__longlong_as_double", tirx.IntImm("int64", bits))
