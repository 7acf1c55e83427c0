"""Lowers min and max of floats to one instruction, on Arm.

    max(0, x)     →     greater(0, x)                 propagates NaN
    max(x, 0)     →     greater_number(x, 0)          0 of NaN; on 32-bit Arm, which has none, it stays

TIR's max is a comparison and a select, which is its second operand where one is NaN, and whose result differs for
signed zeros: LLVM emits two instructions for it.
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

_PROPAGATING: dict[_Kind, tuple[str, str]] = {
    tirx.Max: ("nnefc.greater", "llvm.maximum"),
    tirx.Min: ("nnefc.lesser", "llvm.minimum"),
}
_REPLACING: dict[_Kind, tuple[str, str]] = {
    tirx.Max: ("nnefc.greater_number", "llvm.maxnum"),
    tirx.Min: ("nnefc.lesser_number", "llvm.minnum"),
}
"""Instructions whose result is the other operand where one is NaN."""
_TYPES = {"float32": "f32", "float16": "f16"}


def lower_fmin_fmax(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """Returns a flat kernel with such instructions, if the target has them."""
    if not target.quirks.selects_min_max:
        return func
    types = [dtype for dtype in _TYPES if dtype == "float32" or "fullfp16" in target.features]
    replaces = target.triple.startswith("aarch64")

    def change(node: tirx.Max | tirx.Min) -> tirx.Expr:
        dtype, is_replaced = str(node.expr_ty().dtype), _is_constant(node.b)
        if dtype.partition("x")[0] not in types or (is_replaced and not replaces):
            return node
        name, _ = (_REPLACING if is_replaced else _PROPAGATING)[type(node)]
        return tirx.call_intrin(dtype, name, node.a, node.b)

    return tvm_ffi.structural_map(func, ((tirx.Max, tirx.Min), change))


def _is_constant(expr: tirx.Expr) -> bool:
    return isinstance(expr.value if isinstance(expr, tirx.Broadcast) else expr, tirx.FloatImm)


@functools.cache  # TVM refuses a second registration
def use_fmin_fmax() -> None:
    """Registers the operators with TVM and its code generator for CPUs, in this process."""
    for kind, (name, function) in (*_PROPAGATING.items(), *_REPLACING.items()):
        register_pure_operator(name, "one of two floats", functools.partial(_instruction, kind, function))


def _instruction(kind: _Kind, function: str, call: tvm.ir.Call) -> tirx.Expr:
    dtype = tvm.DataType(str(call.expr_ty().dtype))
    lanes = int(dtype.lanes)
    if lanes == 1:
        return kind(*call.args)
    suffix = _TYPES[str(dtype).partition("x")[0]]
    return tirx.call_llvm_pure_intrin(str(dtype), f"{function}.v{lanes}{suffix}", *call.args)
