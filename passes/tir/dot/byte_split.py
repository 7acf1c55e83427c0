"""Multiplies int16 by int8 with int8 dot products: splits each int16 into its high and low byte.

x = 256 high + low          Σ x w = 256 Σ high w + Σ low w          high, low: int8

`nnefc.join_bytes(high, low)` joins both products of a term. The accumulators of high and low products stay separate
until the complete sum is read: see `passes/schedule/cpu/fold_dot_accumulators.py`.
"""

from __future__ import annotations

import functools

import tvm
from tvm import te, tirx

from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.symbolic.dims import dimensions

__all__ = ["LARGEST", "byte_parts_of", "is_byte_split", "join_bytes", "split_bytes", "use_byte_split"]

LARGEST = 127 * 256 + 127
"""The largest integer that two signed bytes (high × 256 + low) represent; its negative is represented, too."""

_NAME = "nnefc.join_bytes"
_BASE = 256


def split_bytes(elements: te.Tensor) -> te.Tensor:
    """Splits whole numbers `[…, K]` up to `LARGEST`, float32, into bytes `[…, 2, K]`, int8: the high ones first."""
    *outer, size = dimensions(elements.shape)

    def element(*index: tirx.Var) -> tirx.Expr:
        *position, digit, k = index
        number = elements(*position, k).astype("int32")
        high = (number + _BASE // 2) >> tirx.const(8, "int32")
        return tirx.Select(digit == 0, high, number - high * _BASE).astype("int8")

    return te.compute((*outer, 2, size), element, name="digits")


def join_bytes(high: tirx.Expr, low: tirx.Expr) -> tirx.Expr:
    """Joins the int32 sums of high and of low bytes into one number."""
    return tirx.call_intrin("int32", _NAME, high, low)


def is_byte_split(expr: tirx.Expr) -> bool:
    """Whether `expr` joins high and low bytes."""
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") == _NAME


def byte_parts_of(expr: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
    """Returns the high and the low part of a number that joins them."""
    high, low = expr.args
    return high, low


@functools.cache  # TVM refuses a second registration
def use_byte_split() -> None:
    """Registers the operator with TVM and its code generator for CPUs, in this process."""
    register_pure_operator(_NAME, "a number of two bytes", _sum)


def _sum(call: tvm.ir.Call) -> tirx.Expr:
    high, low = call.args
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    shift = tirx.const(8, "int32")
    return (high << (shift if lanes == 1 else tirx.Broadcast(shift, lanes))) + low
