"""Converts floats of 8 bits by the instructions of tensor-core devices, and keeps them as bytes otherwise.

    y[i] = float8_e4m3fn(x)          →      y[i] = reinterpret(float8_e4m3fn, nnefc_to_e4m3(x))
    float32(select(c, y[i], 0))      →      nnefc_from_e4m3(select(c, reinterpret(uint8, y[i]), 0))

`cvt.rn.satfinite` rounds to even, makes what is too large the largest number, and keeps NaN (PTX ISA, "cvt"; sm_89 and
newer). TVM's own passes convert by integer arithmetic, and would convert what is only moved too.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.ir.expr import Call

from nnefc.ir.rebuild import with_fields
from nnefc.support.element_types import FLOAT8

__all__ = ["convert_float8"]

_TO = {
    1: """
__device__ __forceinline__ unsigned char nnefc_to_{kind}(float value) {{
  unsigned short both;
  asm ("cvt.rn.satfinite.{kind}x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(value));
  return (unsigned char)both;
}}
""",
    2: """
__device__ __forceinline__ unsigned short nnefc_to_{kind}_2(float a, float b) {{
  unsigned short both;
  asm ("cvt.rn.satfinite.{kind}x2.f32 %0, %1, %2;" : "=h"(both) : "f"(b), "f"(a));
  return both;
}}
""",
    4: """
__device__ __forceinline__ unsigned nnefc_to_{kind}_4(float a, float b, float c, float d) {{
  unsigned short low, high;
  asm ("cvt.rn.satfinite.{kind}x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm ("cvt.rn.satfinite.{kind}x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return (unsigned)high << 16 | low;
}}
""",
}
"""Conversions by the numbers that they convert."""

_UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32"}
_FROM = """
__device__ __forceinline__ float nnefc_from_{kind}(unsigned char code) {{
  unsigned both;
  float value;
  asm ("cvt.rn.f16x2.{kind}x2 %0, %1;" : "=r"(both) : "h"((unsigned short)code));
  asm ("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)both));
  return value;
}}
"""
_KINDS = dict(zip(FLOAT8, ("e4m3", "e5m2"), strict=True))


def convert_float8(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function of loops in which floats of 8 bits are only loaded, stored and reinterpreted."""
    entries = [(tirx.Cast, _cast), (tirx.BufferStore, _stored)]
    return with_fields(func, body=tvm_ffi.structural_map(func.body, entries))


def _type_of(expr: tirx.Expr) -> tuple[str, int]:
    dtype = tvm.DataType(str(expr.expr_ty().dtype))
    lanes = int(dtype.lanes)
    return str(dtype).removesuffix(f"x{lanes}") if lanes > 1 else str(dtype), lanes


def _vector(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _cast(cast: tirx.Cast) -> tirx.Expr:
    (source, lanes), (dtype, _) = _type_of(cast.value), _type_of(cast)
    if source in FLOAT8:
        numbers = _numbers(_bits(cast.value), _KINDS[source])
        return numbers if dtype == "float32" else _cast(tirx.Cast(_vector(dtype, lanes), numbers))
    if dtype in FLOAT8:
        wide = cast.value if source == "float32" else tirx.Cast(_vector("float32", lanes), cast.value)
        return tirx.reinterpret(_vector(dtype, lanes), _codes(wide, _KINDS[dtype]))
    return cast


def _numbers(codes: tirx.Expr, kind: str) -> tirx.Expr:
    """Returns the float32 that codes stand for."""
    if not isinstance(codes, tirx.Var) and _type_of(codes)[1] > 1:
        once = tirx.Var("codes", str(codes.expr_ty().dtype))
        return tirx.Let(once, codes, _numbers(once, kind))
    source = _FROM.format(kind=kind)
    made = [
        cuda_func_call(f"nnefc_from_{kind}", code, source_code=source, return_type="float32")
        for code in _lanes_of(codes)
    ]
    return made[0] if len(made) == 1 else tirx.Shuffle(made, list(range(len(made))))


def _codes(numbers: tirx.Expr, kind: str) -> tirx.Expr:
    """Returns the codes of float32, in registers as full as they can be."""
    if not isinstance(numbers, tirx.Var) and _type_of(numbers)[1] > 1:
        once = tirx.Var("numbers", str(numbers.expr_ty().dtype))
        return tirx.Let(once, numbers, _codes(once, kind))
    lanes = _lanes_of(numbers)
    at_once = next(count for count in sorted(_TO, reverse=True) if len(lanes) % count == 0)
    name = f"nnefc_to_{kind}" + (f"_{at_once}" if at_once > 1 else "")
    source, returned = _TO[at_once].format(kind=kind), _UNSIGNED[at_once]
    parts = [lanes[first : first + at_once] for first in range(0, len(lanes), at_once)]
    made = [cuda_func_call(name, *part, source_code=source, return_type=returned) for part in parts]
    words = made[0] if len(made) == 1 else tirx.Shuffle(made, list(range(len(made))))
    return words if len(lanes) == 1 else tirx.reinterpret(f"uint8x{len(lanes)}", words)


def _lanes_of(vector: tirx.Expr) -> list[tirx.Expr]:
    lanes = _type_of(vector)[1]
    return [vector] if lanes == 1 else [tirx.Shuffle([vector], [lane]) for lane in range(lanes)]


def _stored(store: tirx.BufferStore) -> tirx.Stmt:
    dtype, lanes = _type_of(store.value)
    if dtype not in FLOAT8:
        return store
    value = tirx.reinterpret(_vector(dtype, lanes), _bits(store.value))
    return tirx.BufferStore(store.buffer, value, store.indices)


def _bits(expr: tirx.Expr) -> tirx.Expr:
    """Returns the codes of floats of 8 bits, uint8."""
    dtype, lanes = _type_of(expr)
    match expr:
        case tirx.FloatImm():
            code = np.float32(expr.value).astype(getattr(ml_dtypes, dtype)).view(np.uint8)
            return tirx.IntImm("uint8", int(code))
        case tirx.Broadcast():
            return tirx.Broadcast(_bits(expr.value), lanes)
        case tirx.Select():
            return tirx.Select(expr.condition, _bits(expr.true_value), _bits(expr.false_value))
        case Call() if getattr(expr.op, "name", "").rpartition(".")[2] == "if_then_else":
            condition, *values = expr.args
            return tirx.if_then_else(condition, *map(_bits, values))
        case Call(op=tvm.ir.Op(name="tirx.reinterpret")) if _type_of(expr.args[0])[0] == "uint8":
            return expr.args[0]
    return tirx.reinterpret(_vector("uint8", lanes), expr)
