"""Emits products of pairs of quads: `vpmaddubsw` and `vpmaddwd` for vectors, arithmetic for single lanes.

direct    t = vpmaddubsw(u₀, w₀) + vpmaddubsw(u₁, w₁)          u: uint8, w: int8; sums of int16
shared    the same of the four quads of two direct pairs
folded    t = vpmaddubsw(|w₀|, v₀) + vpmaddubsw(|w₁|, v₁)      v = u ^ (0x80 where w >= 0, 0x7F where w < 0)
          vpmaddwd(t, 1)                                       neighbours added up in int32; pairs apart have one t each
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import tirx

from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.passes.tir.dot.dot_instructions import QUAD_PAIR, quad_kind, quad_operands

__all__ = ["use_quad_pairs"]

_INSTRUCTIONS = {8: ("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd")}
"""LLVM's functions by the lanes of a vector: they multiply quads, and add up neighbours."""


def use_quad_pairs() -> None:
    """Registers the operator with TVM and its code generator for CPUs, in this process."""
    register_pure_operator(QUAD_PAIR, "the products of two quads, added up in int16", _lowered)


def _lowered(call: tvm.ir.Call) -> tirx.Expr:
    operands, (pair, limits) = quad_operands(call), quad_kind(call)
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    _, direct, joined, _ = limits  # of two pairs that share sums, all operands are those of one call

    def products(is_direct: bool, is_joined: bool) -> tirx.Expr:
        return _products(operands, is_direct, is_joined, lanes)

    if all(isinstance(position, tirx.IntImm) for position in (pair, direct, joined)):
        return products(int(pair) < int(direct), int(pair) < int(joined))
    folded = tirx.Select(pair < joined, products(False, True), products(False, False))
    return tirx.Select(pair < direct, products(True, True), folded)


def _products(operands: Sequence[tirx.Expr], is_direct: bool, is_joined: bool, lanes: int) -> tirx.Expr:
    """Returns the sum of all quads: of a vector, of its parts, or of each lane."""
    size = next((n for n in _INSTRUCTIONS if lanes % n == 0), 1)
    made = []
    for first in range(0, lanes, size):
        part = list(range(first, first + size))
        own = operands if size == lanes else [tirx.Shuffle([operand], part) for operand in operands]
        made.append(_of_vector(own, is_direct, is_joined, size) if size > 1 else _of_lane(own, is_direct))
    return made[0] if len(made) == 1 else tirx.Shuffle(made, list(range(lanes)))


def _of_vector(operands: Sequence[tirx.Expr], is_direct: bool, is_joined: bool, lanes: int) -> tirx.Expr:
    multiply, add = _INSTRUCTIONS[lanes]
    products = []
    for data, weights in zip(operands[::2], operands[1::2], strict=True):
        unsigned, signed = (tirx.reinterpret(f"int8x{4 * lanes}", operand) for operand in (data, weights))
        if not is_direct:
            sign = signed >> _spread(7, 4 * lanes)
            magnitude = tirx.max(signed, _spread(0, 4 * lanes) - signed)
            unsigned, signed = magnitude, unsigned ^ (sign ^ _spread(-128, 4 * lanes))
        products.append(tirx.call_llvm_pure_intrin(f"int16x{2 * lanes}", multiply, unsigned, signed))
    ones = tirx.Broadcast(tirx.const(1, "int16"), 2 * lanes)
    parts = [_total(products)] if is_joined else products
    return _total([tirx.call_llvm_pure_intrin(f"int32x{lanes}", add, part, ones) for part in parts])


def _total(terms: Sequence[tirx.Expr]) -> tirx.Expr:
    first, *others = terms
    return sum(others, first)


def _spread(value: int, lanes: int) -> tirx.Expr:
    return tirx.Broadcast(tirx.const(value, "int8"), lanes)


def _of_lane(operands: Sequence[tirx.Expr], is_direct: bool) -> tirx.Expr:
    total: tirx.Expr = tirx.const(0, "int32")
    for data, weights in zip(operands[::2], operands[1::2], strict=True):
        for term in range(4):
            byte = (data >> tirx.const(8 * term, "int32")) & tirx.const(0xFF, "int32")
            weight = (weights << tirx.const(24 - 8 * term, "int32")) >> tirx.const(24, "int32")
            total = total + byte * weight
            if not is_direct:
                total = total - weight * tirx.Select(weight >= 0, tirx.const(128, "int32"), tirx.const(127, "int32"))
    return total
