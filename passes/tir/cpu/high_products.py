"""Takes the upper halves of products of int32 in the lanes where x86-64 multiplies them.

    int32(int64(a) * int64(b) >> 32)     →     nnefc.high_product(a, b)

One instruction multiplies every other lane of two vectors to 64 bits. Two of these, two shifts and a blend are the
upper halves of all lanes; LLVM extends and narrows both halves of each vector instead, with ten instructions. Quantized
layers are scaled so (`compiler/operators/nn/fixed_point.py`).
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.common.expressions import is_number
from nnefc.passes.tir.common.intrinsics import register_pure_operator

__all__ = ["match_high_products", "use_high_products"]

_NAME = "nnefc.high_product"
_BITS = 32
_MIN_LANES = 4


def match_high_products(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel that computes such products by an operator."""

    def change(cast: tirx.Cast) -> tirx.Expr:
        shift = cast.value
        if str(cast.expr_ty().dtype) != "int32" or not isinstance(shift, tirx.RShift) or not is_number(shift.b, _BITS):
            return cast
        parts = (shift.a.a, shift.a.b) if isinstance(shift.a, tirx.Mul) else ()
        factors = [factor for part in parts if (factor := _factor(part)) is not None]
        return tirx.call_intrin("int32", _NAME, *factors) if len(factors) == 2 else cast

    return tvm_ffi.structural_map(func, (tirx.Cast, change))


def _factor(expr: tirx.Expr) -> tirx.Expr | None:
    """Returns the int32 that was converted to an int64."""
    if str(expr.expr_ty().dtype) != "int64":
        return None
    if isinstance(expr, tirx.IntImm) and -(1 << 31) <= int(expr) < 1 << 31:
        return tirx.const(int(expr), "int32")
    is_wide = isinstance(expr, tirx.Cast) and str(expr.value.expr_ty().dtype) == "int32"
    return expr.value if is_wide else None


def use_high_products() -> None:
    """Registers the operator with TVM and its code generator for CPUs, in this process."""
    register_pure_operator(_NAME, "the upper half of a product of two int32", _high_product)


def _high_product(call: tvm.ir.Call) -> tirx.Expr:
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    if lanes < _MIN_LANES or lanes % 2:
        wide, tail = ("int64", "") if lanes == 1 else (f"int64x{lanes}", f"x{lanes}")
        one, other = (tirx.Cast(wide, factor) for factor in call.args)
        return tirx.Cast(f"int32{tail}", (one * other) >> _each(_BITS, lanes))
    half = lanes // 2
    one, other = (tirx.reinterpret(f"int64x{half}", factor) for factor in call.args)
    bits = _each(_BITS, half)
    even = ((one << bits) >> bits) * ((other << bits) >> bits)
    odd = (one >> bits) * (other >> bits)
    down = tirx.reinterpret(f"uint64x{half}", even) >> tirx.Broadcast(tirx.const(_BITS, "uint64"), half)
    both = tirx.reinterpret(f"int64x{half}", down) | (odd & _each(-(1 << _BITS), half))
    return tirx.reinterpret(f"int32x{lanes}", both)


def _each(value: int, lanes: int) -> tirx.Expr:
    number = tirx.const(value, "int64")
    return number if lanes == 1 else tirx.Broadcast(number, lanes)
