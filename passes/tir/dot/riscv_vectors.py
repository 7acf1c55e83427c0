"""Multiplies int8 and int16 vectors by RISC-V's widening multiplications (`vwmul`, `vwmacc`).

    extending_product(sum, a, w)     a, w: int16         sum + a · w        vwmacc: into int32, a from a scalar register
    byte_pair(a, w, b, v)          all of them int8    a · w + b · v      vwmul, vwmacc: into int16

Each is an operator of TIR that vectorizes. LLVM selects these instructions for sums of products too, but it hoists
the extensions out of loops, where they take registers. The instructions are therefore called by name; see `sve.py`.
"""

from __future__ import annotations

import functools

import tvm
from tvm import tirx

from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.passes.tir.cpu.sve import Vector
from nnefc.targets.machine.cpu.architecture import RISCV_LENGTHS
from nnefc.targets.machine.cpu.target import Target

__all__ = ["byte_pair", "extending_product_name", "function_text", "use_riscv_vectors"]

_GRANULE = 64  # bits: scalable vectors have so many, times a number that is not known
_ANY_TAIL = 3  # policy: what lies beyond the lanes may become anything
_SUM, _MAX = 32, 8  # bits of a sum, and registers that are one vector at most
_PRODUCT, _PAIR = "nnefc.riscv_product_", "nnefc.riscv_pair_"


def extending_product_name(bits: int) -> str:
    """Returns the operator that adds a product of two int16 to an int32, for registers of this many bits."""
    return f"{_PRODUCT}{bits}"


def byte_pair(target: Target, *operands: tirx.Expr) -> tirx.Expr:
    """Returns the sum of two products of int8 as an int16, which holds it."""
    return tirx.call_intrin("int16", f"{_PAIR}{target.vectors.bytes * 8 // target.vectors.group}", *operands)


@functools.cache  # TVM refuses a second registration
def use_riscv_vectors() -> None:
    """Registers the operators with TVM and its code generator for CPUs, in this process."""
    for bits in RISCV_LENGTHS:
        product, pair = f"{_PRODUCT}{bits}", f"{_PAIR}{bits}"
        register_pure_operator(product, "a sum and a product of int16", functools.partial(_product, bits))
        register_pure_operator(pair, "two products of int8", functools.partial(_pair, bits))


def _product(bits: int, call: tvm.ir.Call) -> tirx.Expr:
    total, left, right = call.args
    dtype = str(call.expr_ty().dtype)
    lanes = int(tvm.DataType(dtype).lanes)
    if lanes not in _lanes(bits) or not isinstance(left, tirx.Broadcast):
        return total + left.astype(dtype) * right.astype(dtype)
    return tirx.call_pure_extern(dtype, _function("product", bits, lanes), total, left.value, right)


def _pair(bits: int, call: tvm.ir.Call) -> tirx.Expr:
    dtype = str(call.expr_ty().dtype)
    lanes = int(tvm.DataType(dtype).lanes)
    if lanes not in _lanes(bits):
        first, second, third, fourth = (arg.astype(dtype) for arg in call.args)
        return first * second + third * fourth
    return tirx.call_pure_extern(dtype, _function("pair", bits, lanes), *call.args)


def _function(kind: str, bits: int, lanes: int) -> str:
    return f"nnefc_riscv_{kind}_{bits}_{lanes}"


def function_text(call: tvm.ir.Call) -> str:
    """Returns LLVM's text of the functions that `call` may become a call of; "" for none."""
    name = str(getattr(call.op, "name", ""))
    for prefix, text in ((_PRODUCT, _text_of_product), (_PAIR, _text_of_pair)):
        if name.startswith(prefix):
            bits = int(name.removeprefix(prefix))
            return "".join(text(bits, lanes) for lanes in _lanes(bits))
    return ""


def _lanes(bits: int) -> list[int]:
    """Returns the lanes of the vectors that such functions are for."""
    return [lanes for lanes in (4, 8, 16, 32, 64) if bits <= lanes * _GRANULE and lanes * _SUM <= bits * _MAX]


def _minimum(bits: int, lanes: int) -> int:
    """Returns the minimum lanes of a scalable vector that holds this many elements."""
    return lanes * _GRANULE // bits


def _text_of_product(bits: int, lanes: int) -> str:
    minimum = _minimum(bits, lanes)
    wide, half = Vector("i32", lanes, minimum), Vector("i16", lanes, minimum)
    name, function = _function("product", bits, lanes), f"llvm.riscv.vwmacc.{wide.suffix}.i16.{half.suffix}.i64"
    given = f"{wide.scalable} %long_s, i16 %a, {half.scalable} %long_w, i64 {lanes}, i64 {_ANY_TAIL}"
    lines = [
        "",
        f"declare {wide.scalable} @{function}({wide.scalable}, i16, {half.scalable}, i64, i64)",
        f"define linkonce_odr hidden {wide.fixed} @{name}({wide.fixed} %s, i16 %a, {half.fixed} %w) alwaysinline {{",
        wide.begin("s"),
        half.begin("w"),
        f"  %made = call {wide.scalable} @{function}({given})",
        *wide.returned("made"),
    ]
    return "\n".join(lines)


def _text_of_pair(bits: int, lanes: int) -> str:
    minimum = _minimum(bits, lanes)
    wide, element = Vector("i16", lanes, minimum), Vector("i8", lanes, minimum)
    name, types = _function("pair", bits, lanes), f"{wide.suffix}.{element.suffix}.{element.suffix}.i64"
    parameters = ", ".join(f"{element.fixed} %{each}" for each in "awbv")
    first = f"{wide.scalable} poison, {element.scalable} %long_a, {element.scalable} %long_w, i64 {lanes}"
    second = (
        f"{wide.scalable} %first, {element.scalable} %long_b, {element.scalable} %long_v, i64 {lanes}, i64 {_ANY_TAIL}"
    )
    operands = f"{wide.scalable}, {element.scalable}, {element.scalable}, i64"
    lines = [
        "",
        f"declare {wide.scalable} @llvm.riscv.vwmul.{types}({operands})",
        f"declare {wide.scalable} @llvm.riscv.vwmacc.{types}({operands}, i64)",
        f"define linkonce_odr hidden {wide.fixed} @{name}({parameters}) alwaysinline {{",
        *map(element.begin, "awbv"),
        f"  %first = call {wide.scalable} @llvm.riscv.vwmul.{types}({first})",
        f"  %made = call {wide.scalable} @llvm.riscv.vwmacc.{types}({second})",
        *wide.returned("made"),
    ]
    return "\n".join(lines)
