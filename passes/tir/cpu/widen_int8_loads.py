"""Converts int8 to float32 on Arm through one instruction that sign- or zero-extends eight bytes to 16 bits.

    float32(bytes[i : i + 8])     →     float32(extended(bytes[i : i + 8]))

LLVM sees that no value is lost, and extends four elements at a time, by four instructions. Inline assembly hides the
extension from LLVM.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.common.expressions import in_parts
from nnefc.passes.tir.common.intrinsics import register_pure_operator

__all__ = ["use_int8_widening", "widen_int8_loads", "widening_text"]

_AT_ONCE = 8
_NAMES = {dtype: f"nnefc.wider_{dtype}" for dtype in ("int8", "uint8")}
_INSTRUCTIONS = {
    "aarch64": {"int8": "sshll $0.8h, $1.8b, #0", "uint8": "ushll $0.8h, $1.8b, #0"},
    "armv7a": {"int8": "vmovl.s8 ${0:q}, ${1:P}", "uint8": "vmovl.u8 ${0:q}, ${1:P}"},
}


def widen_int8_loads(func: tirx.PrimFunc, architecture: str) -> tirx.PrimFunc:
    """Returns a scheduled kernel with such conversions of bytes to floats; unchanged except for Arm."""
    if architecture not in _INSTRUCTIONS:
        return func

    def change(cast: tirx.Cast) -> tirx.Expr:
        name = _NAMES.get(str(cast.value.expr_ty().dtype))
        if name is None or str(cast.expr_ty().dtype) != "float32":
            return cast
        return tirx.Cast("float32", tirx.call_intrin("int16", name, cast.value))

    return tvm_ffi.structural_map(func, (tirx.Cast, change))


def widening_text(call: tvm.ir.Call, architecture: str) -> str:
    """Returns LLVM's text of the function that `call` becomes a call of; "" for none."""
    name = str(getattr(call.op, "name", ""))
    dtype = next((dtype for dtype, known in _NAMES.items() if known == name), None)
    if dtype is None:
        return ""
    instruction = _INSTRUCTIONS[architecture][dtype]
    return f"""
define linkonce_odr hidden <{_AT_ONCE} x i16> @{_function(dtype)}(<{_AT_ONCE} x i8> %x) alwaysinline {{
  %r = call <{_AT_ONCE} x i16> asm "{instruction}", "=w,w"(<{_AT_ONCE} x i8> %x)
  ret <{_AT_ONCE} x i16> %r
}}
"""


def _function(dtype: str) -> str:
    return f"nnefc_wider_{dtype}"


@functools.cache  # TVM refuses a second registration
def use_int8_widening() -> None:
    """Registers the operators with TVM and its code generator for CPUs, in this process."""
    for dtype, name in _NAMES.items():
        register_pure_operator(name, "bytes as numbers of 16 bits", _wider(dtype))


def _wider(dtype: str) -> Callable[[tvm.ir.Call], tirx.Expr]:
    def eight(part: tirx.Expr) -> tirx.Expr:
        return tirx.call_pure_extern(f"int16x{_AT_ONCE}", _function(dtype), part)

    def lower(call: tvm.ir.Call) -> tirx.Expr:
        (value,) = call.args
        made = str(call.expr_ty().dtype)
        lanes = int(tvm.DataType(made).lanes)
        if lanes % _AT_ONCE:
            return value.astype(made)
        return eight(value) if lanes == _AT_ONCE else in_parts(value, _AT_ONCE, eight)

    return lower
