"""Replaces divisions by known numbers by multiplications with the reciprocal and a correction by multiply-adds.

    y[i] = x[i] / 6     →     q = x[i] * (1 / 6);  y[i] = q + (x[i] - 6 * q) * (1 / 6)

A division of a vector of 16 takes as long as 32 multiply-adds. The remainder is exact, so that the result is the same,
in the last bit too (Brisebarre, Muller and Raina, Accelerating correctly rounded floating-point division when the
divisor is known in advance, 2004). Where the quotient is zero, infinite or NaN, it is `q`; the same holds close to
the smallest normal numbers, where it may differ in the last bit.
"""

from __future__ import annotations

import math

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op

__all__ = ["divide_by_reciprocal"]

# By type: quotients of at least this size have remainders that are normal numbers; and the greatest number.
_RANGES = {"float32": (2.0**-100, float(np.finfo(np.float32).max)), "float64": (2.0**-960, float(np.finfo(float).max))}
_INTRINSIC = Op.get("tirx.call_llvm_pure_intrin")
_FARTHEST = 100  # powers of two between a divisor and one


def divide_by_reciprocal(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel without divisions of floats by constants."""
    return tvm_ffi.structural_map(func, (tirx.Div, _multiplied))


def _multiplied(quotient: tirx.Div) -> tirx.Expr:
    divisor, dtype = quotient.b, str(quotient.expr_ty().dtype)
    if not isinstance(divisor, tirx.FloatImm) or dtype not in _RANGES:
        return quotient
    if _has_quotients(quotient.a):
        return quotient
    fraction, exponent = math.frexp(float(divisor))
    if abs(fraction) in (0, 0.5) or not abs(exponent) < _FARTHEST:  # LLVM multiplies by powers of two by itself
        return quotient
    kind = np.dtype(dtype).type
    inverse = tirx.const(float(kind(1) / kind(divisor.value)), dtype)
    minimum, maximum = (tirx.const(bound, dtype) for bound in _RANGES[dtype])

    q = quotient.a * inverse  # is there several times, which LLVM joins: TVM makes no vectors of variables in factors
    exact = _multiply_add(_multiply_add(-q, divisor, quotient.a), inverse, q)
    return tirx.Select(tirx.abs(q) >= minimum, tirx.Select(tirx.abs(q) <= maximum, exact, q), q)


def _has_quotients(expr: tirx.Expr) -> bool:
    """Whether an expression contains divisions, replaced or not: it is then too long to be copied."""
    found: list[tirx.Expr] = []
    tvm_ffi.structural_walk(expr, (tirx.Div, found.append))
    tvm_ffi.structural_walk(expr, (tirx.Let, found.append))
    tvm_ffi.structural_walk(expr, (Call, lambda call: found.append(call) if call.op == _INTRINSIC else None))
    return bool(found)


def _multiply_add(a: tirx.Expr, b: tirx.Expr, c: tirx.Expr) -> tirx.Expr:
    return tirx.call_llvm_pure_intrin(str(c.expr_ty().dtype), "llvm.fma", a, b, c)
