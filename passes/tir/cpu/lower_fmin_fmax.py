"""Lowers min and max of floats to one instruction, on processors with one that propagates NaN.

    max(0, x)     →     greater(0, x)

TIR's max is a comparison and a select, whose result differs for NaN and for signed zeros: LLVM emits two instructions
for it on Arm.
"""

from __future__ import annotations

import functools

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.targets.machine.cpu.target import Target

__all__ = ["lower_fmin_fmax", "use_fmin_fmax"]

_Kind = type[tirx.Max] | type[tirx.Min]

_OPERATORS: dict[str, tuple[_Kind, str]] = {
    "nnefc.greater": (tirx.Max, "llvm.maximum"),
    "nnefc.lesser": (tirx.Min, "llvm.minimum"),
}
_TYPES = {"float32": "f32", "float16": "f16"}


def lower_fmin_fmax(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """Returns a flat kernel with such instructions, if the target has them."""
    if not target.quirks.selects_min_max:
        return func
    types = [dtype for dtype in _TYPES if dtype == "float32" or "fullfp16" in target.features]

    def change(node: tirx.Max | tirx.Min) -> tirx.Expr:
        dtype = str(node.expr_ty().dtype)
        name = next(name for name, (kind, _) in _OPERATORS.items() if isinstance(node, kind))
        return tirx.call_intrin(dtype, name, node.a, node.b) if dtype.partition("x")[0] in types else node

    return tvm_ffi.structural_map(func, ((tirx.Max, tirx.Min), change))


@functools.cache  # TVM refuses a second registration
def use_fmin_fmax() -> None:
    """Registers the operators with TVM and its code generator for CPUs, in this process."""
    for name, (kind, function) in _OPERATORS.items():
        register_pure_operator(name, "one of two floats", functools.partial(_instruction, kind, function))


def _instruction(kind: _Kind, function: str, call: tvm.ir.Call) -> tirx.Expr:
    dtype = tvm.DataType(str(call.expr_ty().dtype))
    lanes = int(dtype.lanes)
    if lanes == 1:
        return kind(*call.args)
    suffix = _TYPES[str(dtype).partition("x")[0]]
    return tirx.call_llvm_pure_intrin(str(dtype), f"{function}.v{lanes}{suffix}", *call.args)
