"""Elementary functions whose results are rounded to bytes, in as many digits as bytes have.

    uint8(int32(round(min(max(x · sigmoid(x) · s, low), high))))         →   the same with `nnefc.sigmoid_of_bytes`
    uint8(int32(round(min(max(x · (1 + erf(u)) · s, low), high))))       →   x · 2 sigmoid_of_bytes(u P(u²)) · s

A relative error of a factor is one of the product, of which 255 steps are kept at most: sigmoids of 12 correct bits
move it by less than a twentieth of a step. Sums of functions and other numbers stay as they are, for what is added may
cancel, but for 1 + tanh and 1 + erf, which are sigmoids themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.passes.compute.byte_functions import one_and_erf, sigmoid
from nnefc.passes.tir.expressions import is_number

__all__ = ["with_functions_of_bytes"]

_SCALES = {"avx512f", "avx512dq"}
_BYTES = ("uint8", "int8")


def with_functions_of_bytes(func: tirx.PrimFunc, features: Collection[str]) -> tirx.PrimFunc:
    """A scheduled kernel that computes such functions so; `features`: those that the target has, by LLVM's names."""
    scales = set(features) >= _SCALES

    def change(cast: tirx.Cast) -> tirx.Expr:
        dtype = str(cast.expr_ty().dtype)
        made = _rounded(cast.value, scales) if dtype in _BYTES else None
        return cast if made is None else tirx.Cast(dtype, made)

    return tvm_ffi.structural_map(func, (tirx.Cast, change))


def _rounded(expr: tirx.Expr, scales: bool) -> tirx.Expr | None:
    """What becomes a byte, with such functions; None where nothing is rounded."""
    match expr:
        case tirx.Cast() | tirx.Min() | tirx.Max() | tirx.Add():
            return _of_first(expr, lambda inner: _rounded(inner, scales))
        case Call() if expr.op.name == "tirx.nearbyint":
            made = _cut(expr.args[0], scales)
            return None if made is None else tirx.nearbyint(made)
    return None


def _cut(expr: tirx.Expr, scales: bool) -> tirx.Expr | None:
    """What is rounded, perhaps cut to limits before."""
    if isinstance(expr, tirx.Min | tirx.Max):
        return _of_first(expr, lambda inner: _cut(inner, scales))
    made = _product(expr, scales)
    return None if made.same_as(expr) else made


def _of_first(expr: tirx.Expr, change: Callable[[tirx.Expr], tirx.Expr | None]) -> tirx.Expr | None:
    """A conversion, or an operation with a constant, of something else; None where that is nothing."""
    if isinstance(expr, tirx.Cast):
        inner = change(expr.value)
        return None if inner is None else tirx.Cast(str(expr.expr_ty().dtype), inner)
    left, right = expr.a, expr.b
    if _is_given(right):
        inner = change(left)
        return None if inner is None else type(expr)(inner, right)
    if _is_given(left):
        inner = change(right)
        return None if inner is None else type(expr)(left, inner)
    return None


def _is_given(expr: tirx.Expr) -> bool:
    """Whether an expression is a number, or one that is read."""
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    return isinstance(expr, tirx.IntImm | tirx.FloatImm | TensorLoad)


def _product(expr: tirx.Expr, scales: bool) -> tirx.Expr:
    """The same, with other functions among its factors."""
    match expr:
        case tirx.Mul():
            return _rebuilt(expr, _product(expr.a, scales), _product(expr.b, scales))
        case tirx.Div(b=tirx.FloatImm() as divisor) if divisor.value:
            above = _product(expr.a, scales)
            return expr if above.same_as(expr.a) else above * tirx.const(1 / float(divisor.value), "float32")
        case Call() if expr.op.name == "tirx.sigmoid" and _is_single(expr):
            return sigmoid(expr.args[0], scales)
        case tirx.Add() if _is_single(expr):
            for one, function in ((expr.a, expr.b), (expr.b, expr.a)):
                if is_number(one, 1) and isinstance(function, Call):
                    made = _one_and(function, scales)
                    return expr if made is None else made
    return expr


def _one_and(function: Call, scales: bool) -> tirx.Expr | None:
    """The sum of 1 and a function, if it is a sigmoid."""
    match function.op.name:
        case "tirx.tanh":
            two = tirx.const(2.0, "float32")
            return two * sigmoid(two * function.args[0], scales)
        case "tirx.erf":
            return one_and_erf(function.args[0], scales)
    return None


def _is_single(expr: tirx.Expr) -> bool:
    return str(expr.expr_ty().dtype) == "float32"


def _rebuilt(expr: tirx.Mul, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    return expr if left.same_as(expr.a) and right.same_as(expr.b) else type(expr)(left, right)
