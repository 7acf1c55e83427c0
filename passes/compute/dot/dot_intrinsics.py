"""Emits dot products: LLVM intrinsics for vectors, portable arithmetic for scalars."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tvm
from tvm import tirx

from nnefc.passes.compute.dot.quad_pair_intrinsics import use_quad_pairs
from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.passes.tir.cpu.sve import Vector
from nnefc.passes.tir.dot.dot_instructions import (
    BYTE_PRODUCT,
    EXTENDED,
    FLOAT16_ADD,
    FLOAT16_PAIRS,
    MIN_LANES,
    PMADDUBSW_PAIRS,
    PMADDUBSW_SIGNED,
    PMADDUBSW_SMALL,
    PMADDWD,
    PRODUCTS,
    RISCV_PRODUCTS,
    SUM_OF_FLOAT16,
    SUM_OF_INT16,
    WIDENING_PAIRS,
    DotProduct,
)
from nnefc.passes.tir.dot.riscv_vectors import function_text, use_riscv_vectors
from nnefc.support.element_types import bits_of

__all__ = ["llvm_text", "use_dot_products"]


_SIGNS = {8: "llvm.x86.avx2.psign.b", 4: "llvm.x86.ssse3.psign.b.128"}
"""LLVM's functions by lanes of int32: bytes with the signs of others, 0 where these are 0."""


@functools.cache  # TVM refuses a second registration
def use_dot_products() -> None:
    """Registers the operators with TVM and its code generator for CPUs, in this process."""
    use_riscv_vectors()
    use_quad_pairs()
    several = {
        PMADDUBSW_SMALL.name: _added_pairs,
        PMADDUBSW_SIGNED.name: _added_signed_pairs,
        PMADDUBSW_PAIRS.name: _paired_sums,
    }
    for product in PRODUCTS.values():
        if product in RISCV_PRODUCTS.values():
            continue
        emit = several.get(product.name, _instruction)
        lowering = _multiplied_float16 if product is FLOAT16_PAIRS else _lowering(product, emit)
        if product.long is not None:
            lowering = _long_products(product, product.long)
        if product.single:
            lowering = _wide_product
        register_pure_operator(product.name, "a sum of products of narrow numbers", lowering)
    register_pure_operator(BYTE_PRODUCT, "the product of two bytes", _byte_products)
    for dtype, name in EXTENDED.items():
        register_pure_operator(name, f"two {dtype} as two int16", _widening(dtype))
    register_pure_operator(SUM_OF_FLOAT16, "the sum of two float16", _sum_of_float16)
    register_pure_operator(SUM_OF_INT16, "the sum of two int16", _sum_of_int16)
    register_pure_operator(FLOAT16_ADD, "a sum of float16 and one product", _added_product)


def _lowering(product: DotProduct, instruction: Callable[..., tirx.Expr]) -> Callable[[tvm.ir.Call], tirx.Expr]:
    """Return the lowering of a call of `product`, which writes `instruction` for each vector that has an intrinsic."""

    def lower(call: tvm.ir.Call) -> tirx.Expr:
        lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
        intrinsic = dict(product.intrinsics).get(lanes)
        if intrinsic is not None:
            return instruction(product, intrinsic, lanes, *call.args)
        minimum, of_minimum = min(product.intrinsics, default=(0, ""))
        if minimum and lanes % minimum == 0:
            parts = [list(range(first, first + minimum)) for first in range(0, lanes, minimum)]
            vectors = [[tirx.Shuffle([arg], part) for arg in call.args] for part in parts]
            made = [instruction(product, of_minimum, minimum, *vector) for vector in vectors]
            return tirx.Shuffle(made, list(range(lanes)))
        return _by_lanes(product, lanes, *call.args)

    return lower


def _added_pairs(
    _: DotProduct, multiply: str, lanes: int, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr
) -> tirx.Expr:
    """Sums of two products in 16 bits, then those of neighbours in 32."""
    return total + _added_neighbours(_products_of_pairs(multiply, lanes, left, right), lanes)


def _added_signed_pairs(
    _: DotProduct, multiply: str, lanes: int, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr
) -> tirx.Expr:
    """The same of the magnitudes of the right operands, and of the left ones with the signs of these."""
    dtype = f"int8x{4 * lanes}"
    data, weights = (tirx.reinterpret(dtype, operand) for operand in (left, right))
    magnitudes = tirx.max(weights, tirx.Broadcast(tirx.const(0, "int8"), 4 * lanes) - weights)
    signed = tirx.call_llvm_pure_intrin(dtype, _SIGNS[lanes], data, weights)
    return total + _added_neighbours(_products_of_pairs(multiply, lanes, magnitudes, signed), lanes)


def _paired_sums(
    _: DotProduct, multiply: str, lanes: int, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr
) -> tirx.Expr:
    """Adds sums of two products each to `total`, both int16."""
    sums = tirx.reinterpret(f"int16x{2 * lanes}", total) + _products_of_pairs(multiply, lanes, left, right)
    return tirx.reinterpret(f"int32x{lanes}", sums)


def _products_of_pairs(multiply: str, lanes: int, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    operands = [tirx.reinterpret(f"int8x{4 * lanes}", operand) for operand in (left, right)]
    return tirx.call_llvm_pure_intrin(f"int16x{2 * lanes}", multiply, *operands)


def _added_neighbours(pairs: tirx.Expr, lanes: int) -> tirx.Expr:
    ones = tirx.Broadcast(tirx.const(1, "int16"), 2 * lanes)
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", dict(PMADDWD.intrinsics)[lanes], pairs, ones)


def _sum_of_int16(call: tvm.ir.Call) -> tirx.Expr:
    """Adds the two int16 halves of each int32 lane."""
    (total,) = call.args
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    if lanes in dict(PMADDWD.intrinsics):
        return _added_neighbours(tirx.reinterpret(f"int16x{2 * lanes}", total), lanes)
    shift = tirx.const(16, "int32") if lanes == 1 else tirx.Broadcast(tirx.const(16, "int32"), lanes)
    return ((total << shift) >> shift) + (total >> shift)


def _by_lanes(product: DotProduct, lanes: int, *args: tirx.Expr) -> tirx.Expr:
    """Compute each lane by scalar arithmetic, or by the scalar form of the instruction."""
    one = functools.partial(_by_pairs if product.name in WIDENING_PAIRS else _by_arithmetic, product)
    if lanes == 1:
        return one(*args)
    parts = [[tirx.Shuffle([arg], [lane]) for arg in args] for lane in range(lanes)]
    return tirx.Shuffle([one(*part) for part in parts], list(range(lanes)))


def _long_products(product: DotProduct, functions: tuple[str, str]) -> Callable[[tvm.ir.Call], tirx.Expr]:
    """Return a lowering to widening multiplications (8 to 16 bits): terms 0 and 1 of each lane first, then 2 and 3."""
    multiply, add = functions

    def lower(call: tvm.ir.Call) -> tirx.Expr:
        total, left, right = call.args
        lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
        if lanes != 4:
            return _by_lanes(product, lanes, *call.args)
        pairs = [
            tirx.call_llvm_pure_intrin("int16x8", multiply, a, b)
            for a, b in zip(_pairs_of_bytes(left), _pairs_of_bytes(right), strict=True)
        ]
        for pair in [pairs[0] + pairs[1]] if product.joined else pairs:
            sums = [total, pair] if product.accumulates else [pair]
            added = tirx.call_llvm_pure_intrin("int32x4", add, *sums)
            total = added if product.accumulates else total + added
        return total

    return lower


def _pairs_of_bytes(words: tirx.Expr) -> list[tirx.Expr]:
    """Returns the first two bytes of each of four words, and the other two, int8x8."""
    half_vectors = []
    for shift in (0, 16):
        if isinstance(words, tirx.Broadcast):
            half: tirx.Expr = tirx.Broadcast((words.value >> tirx.const(shift, "int32")).astype("int16"), 4)
        else:
            half = (words >> tirx.Broadcast(tirx.const(shift, "int32"), 4)).astype("int16x4")
        half_vectors.append(tirx.reinterpret("int8x8", half))
    return half_vectors


def _multiplied_float16(call: tvm.ir.Call) -> tirx.Expr:
    """Both float16 of a sum, each with one product added to it in one step."""
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    total, left, right = (tirx.reinterpret(f"float16x{2 * lanes}", arg) for arg in call.args)
    made = tirx.call_llvm_pure_intrin(f"float16x{2 * lanes}", f"llvm.fma.v{2 * lanes}f16", left, right, total)
    return tirx.reinterpret(str(call.expr_ty().dtype), made)


def _wide_product(call: tvm.ir.Call) -> tirx.Expr:
    """Return `total + left * right`, computed in the type of `total`."""
    total, left, right = call.args
    dtype = str(total.expr_ty().dtype)
    return total + left.astype(dtype) * right.astype(dtype)


def _added_product(call: tvm.ir.Call) -> tirx.Expr:
    total, left, right = call.args
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    name = f"llvm.fma.v{lanes}f16" if lanes > 1 else "llvm.fma.f16"
    return tirx.call_llvm_pure_intrin(str(call.expr_ty().dtype), name, left, right, total)


def _sum_of_float16(call: tvm.ir.Call) -> tirx.Expr:
    """Return the sums of neighbouring float16 elements in float32: one addition in float16, then one conversion."""
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    suffix = f"x{lanes}" if lanes > 1 else ""
    words = tirx.reinterpret(f"int32{suffix}", call.args[0])
    high = words >> tirx.Broadcast(tirx.const(16, "int32"), lanes) if lanes > 1 else words >> tirx.const(16, "int32")
    both = tirx.reinterpret(f"float16x{2 * lanes}", words) + tirx.reinterpret(f"float16x{2 * lanes}", high)
    low = tirx.reinterpret(f"int32{suffix}", both).astype(f"int16{suffix}")
    return tirx.reinterpret(f"float16{suffix}", low).astype(f"float32{suffix}")


def _widening(dtype: str) -> Callable[[tvm.ir.Call], tirx.Expr]:
    def lower(call: tvm.ir.Call) -> tirx.Expr:
        (pair,) = call.args
        lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
        elements = tirx.reinterpret(f"{dtype}x{2 * lanes}", pair).astype(f"int16x{2 * lanes}")
        return tirx.reinterpret("int32" if lanes == 1 else f"int32x{lanes}", elements)

    return lower


def llvm_text(call: tvm.ir.Call) -> str:
    """LLVM's text of the functions that `call` becomes calls of; "" for none."""
    product = PRODUCTS.get(getattr(call.op, "name", ""))
    if product is None or product in RISCV_PRODUCTS.values():
        return function_text(call)
    if product.scalable:
        return _declaration(product) + "".join(_scalable_text(product, n, name) for n, name in product.intrinsics)
    if product.left != "bfloat16":
        return ""
    return "".join(
        _LLVM_TEXT.format(lanes=n, pairs=2 * n, name=_function(name), llvm=name) for n, name in product.intrinsics
    )


_LLVM_TEXT = """
declare <{lanes} x float> @{llvm}(<{lanes} x float>, <{pairs} x bfloat>, <{pairs} x bfloat>)
define linkonce_odr hidden <{lanes} x float> @{name}(<{lanes} x float> %s, <{lanes} x i32> %a, <{lanes} x i32> %b)
  alwaysinline {{
  %x = bitcast <{lanes} x i32> %a to <{pairs} x bfloat>
  %y = bitcast <{lanes} x i32> %b to <{pairs} x bfloat>
  %r = call <{lanes} x float> @{llvm}(<{lanes} x float> %s, <{pairs} x bfloat> %x, <{pairs} x bfloat> %y)
  ret <{lanes} x float> %r
}}
"""


def _scalable(product: DotProduct, lanes: int) -> tuple[Vector, Vector]:
    """Returns the vectors of a sum, and of an operand's elements."""
    total, element = ("float", "bfloat") if product.left == "bfloat16" else ("i32", "i8")
    return Vector(total, lanes, MIN_LANES), Vector(element, lanes * product.terms, MIN_LANES * product.terms)


def _declaration(product: DotProduct) -> str:
    """LLVM's text for its function on vectors of SVE."""
    total, operand = (vector.scalable for vector in _scalable(product, MIN_LANES))
    return f"\ndeclare {total} @{product.intrinsics[0][1]}({total}, {operand}, {operand})\n"


def _scalable_text(product: DotProduct, lanes: int, intrinsic: str) -> str:
    """LLVM's text of a function on vectors of as many lanes as registers of SVE have there."""
    total, operand = _scalable(product, lanes)
    given = f"{total.scalable} %long_s, {operand.scalable} %long_a, {operand.scalable} %long_b"
    words = f"<{lanes} x i32>"
    lines = [
        f"define linkonce_odr hidden {total.fixed} @{_function(intrinsic, lanes)}",
        f"  ({total.fixed} %s, {words} %u, {words} %v) alwaysinline {{",
        f"  %a = bitcast {words} %u to {operand.fixed}",
        f"  %b = bitcast {words} %v to {operand.fixed}",
        total.begin("s"),
        operand.begin("a"),
        operand.begin("b"),
        f"  %made = call {total.scalable} @{intrinsic}({given})",
        *total.returned("made"),
    ]
    return "\n".join(lines)


def _function(intrinsic: str, lanes: int = 0) -> str:
    """Returns the name of what calls an instruction on bfloat16, or on vectors of scalable length."""
    return intrinsic.replace("llvm.", "nnefc_").replace(".", "_") + (f"_{lanes}" if lanes else "")


def _instruction(
    product: DotProduct, intrinsic: str, lanes: int, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr
) -> tirx.Expr:
    if product.scalable or product.left == "bfloat16":
        name = _function(intrinsic, lanes if product.scalable else 0)
        return tirx.call_pure_extern(f"{product.sums}x{lanes}", name, total, left, right)
    bits = 32 // product.terms
    if product.left == product.right and not product.right_first and isinstance(left, tirx.Broadcast):
        left, right = right, left  # what LLVM takes for a lane of a vector comes last
    elements = [tirx.reinterpret(f"int{bits}x{lanes * product.terms}", word) for word in (left, right)]
    if product.right_first:
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, *elements[::-1], total)
    if product.accumulates:
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, total, *elements)
    return total + tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, *elements)


def _by_pairs(product: DotProduct, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    """Adds four products of bytes by two `smlad`: of the even bytes, then of the odd ones, each two as int16x2."""
    widen = WIDENING_PAIRS[product.name]
    for shift in (0, 8):
        pair = []
        for word in (left, right):
            if shift:  # which the instruction does on the way
                word = tirx.call_llvm_pure_intrin("int32", "llvm.fshr.i32", word, word, tirx.const(shift, "int32"))
            pair.append(tirx.call_llvm_pure_intrin("int32", widen, word))
        total = tirx.call_llvm_pure_intrin("int32", "llvm.arm.smlad", *pair, total)
    return total


def _byte_products(call: tvm.ir.Call) -> tirx.Expr:
    """Return the products of bytes, computed on words: even bytes first, then odd ones, in lower and upper halves."""
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    if lanes % 4:
        dtype = str(call.expr_ty().dtype)
        return call.args[0].astype(dtype) * call.args[1].astype(dtype)
    half, products = tirx.const(16, "int32"), []
    for word in range(lanes // 4):
        pairs = [_even_and_odd(arg, word) for arg in call.args]
        low = [(a << half >> half) * (b << half >> half) for a, b in zip(*pairs, strict=True)]
        high = [(a >> half) * (b >> half) for a, b in zip(*pairs, strict=True)]
        products += [low[0], low[1], high[0], high[1]]
    return tirx.Shuffle(products, list(range(lanes)))


def _even_and_odd(vector: tirx.Expr, number: int) -> list[tirx.Expr]:
    """Extends four bytes of a vector to 16 bits: the even ones in one int32, the odd ones in another."""
    dtype, lanes = str(vector.expr_ty().dtype).split("x")[0], int(tvm.DataType(str(vector.expr_ty().dtype)).lanes)
    words = tirx.reinterpret("int32" if lanes == 4 else f"int32x{lanes // 4}", vector)
    word = words if lanes == 4 else tirx.Shuffle([words], [number])
    widen = "llvm.arm.sxtb16" if dtype == "int8" else "llvm.arm.uxtb16"
    rotated = tirx.call_llvm_pure_intrin("int32", "llvm.fshr.i32", word, word, tirx.const(8, "int32"))
    return [tirx.call_llvm_pure_intrin("int32", widen, part) for part in (word, rotated)]


def _by_arithmetic(product: DotProduct, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    if product is not PMADDUBSW_PAIRS:
        return _added_terms(product, total, left, right, range(product.terms))
    shift = tirx.const(16, "int32")
    low = _added_terms(product, total, left, right, (0, 1)) & tirx.const(0xFFFF, "int32")
    return (_added_terms(product, total >> shift, left, right, (2, 3)) << shift) | low


def _added_terms(
    product: DotProduct, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr, terms: Sequence[int]
) -> tirx.Expr:
    for term in terms:
        total = total + _element(left, product.left, term) * _element(right, product.right, term)
    return total


def _element(word: tirx.Expr, dtype: str, term: int) -> tirx.Expr:
    """Element `term` of a packed operand, as an int32, or a float32."""
    bits = bits_of(dtype)
    if dtype == "bfloat16":
        high = word << tirx.const(16, "int32") if term == 0 else word & tirx.const(-1 << 16, "int32")
        return tirx.reinterpret("float32", high)
    if dtype.startswith("uint"):
        return (word >> tirx.const(bits * term, "int32")) & tirx.const((1 << bits) - 1, "int32")
    return (word << tirx.const(32 - bits * (term + 1), "int32")) >> tirx.const(32 - bits, "int32")
