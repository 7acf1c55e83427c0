"""Describes a target's dot products, and recognizes calls of them; see :mod:`dot_instructions`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tvm import te, tirx

from nnefc.passes.tir.dot.dot_instructions import (
    BYTE_PRODUCT,
    EXTENDED,
    FLOAT16_ADD,
    FLOAT16_PAIRS,
    FLOAT16_PART,
    FLOAT16_PRODUCT,
    FLOAT16_SUM,
    FLOAT_MACHINES,
    HALF_SUMS,
    LONGEST_FLOAT16_SUMS,
    MACHINES,
    PMADDWD,
    PRODUCTS,
    SMLAL,
    SMULL,
    VMLAL_S8,
    VMULL_S8,
    WASM_DOT,
    DotProduct,
    is_dot_product,
)
from nnefc.support.element_types import bits_of
from nnefc.targets.machine.cpu.matrix_units import TILE_PRODUCTS
from nnefc.targets.machine.cpu.target import Target

__all__ = [
    "Multiplication",
    "accumulated",
    "accumulates",
    "byte_product",
    "convert",
    "float16_multiply_add",
    "has_half_sums",
    "is_float16_product",
    "lane_type_of",
    "multiplication_of",
    "of_float16",
    "operator_of",
    "pair_product",
    "pair_speed",
    "spreading",
    "sums_in_float16",
    "whole_sum",
]


@dataclass(frozen=True)
class Multiplication:
    """A target's sum of products of narrow data and weights: of 8-bit ones in int32, of floats in float32.

    Attributes:
        data, weights: the types that they are brought to.
        offset: what that adds to the data, modulo 256.
        dot: the instruction; None for ordinary arithmetic, on elements that are not packed.
        stored: the type that constant weights have in memory, of 8 bits; None for `weights`.
    """

    data: str
    weights: str
    offset: int = 0
    dot: DotProduct | None = None
    stored: str | None = None

    @property
    def signed(self) -> bool:
        """Whether weights are."""
        return self.weights.startswith("int")

    @property
    def terms(self) -> int:
        """Products that are one step of the sum."""
        return 1 if self.dot is None else self.dot.terms

    @property
    def is_long(self) -> bool:
        """Whether a step takes several instructions, through numbers of 16 bits."""
        return self.dot is not None and self.dot.long is not None

    @property
    def is_in_parts(self) -> bool:
        """Whether sums are to be made in parts that are short enough for their type."""
        return self._longest > 0

    def is_cut(self, *steps: int) -> bool:
        """Whether a sum over axes of so many steps, the last one varying fastest, can be made in such parts, if it is
        to be."""
        longest, inner = self._longest, 1
        if not longest or math.prod(steps) <= longest:
            return True
        for size in reversed(steps):
            if any(size % n == 0 and longest // 4 <= inner * n <= longest for n in range(1, size + 1)):
                return True
            inner *= size
        return False

    @property
    def _longest(self) -> int:
        """The maximum number of products that a float16 sum accumulates; 0 for sums of other types."""
        return 0 if self.dot is None else LONGEST_FLOAT16_SUMS.get(self.dot.name, 0)

    @property
    def lane(self) -> str:
        """A type as many of which are in a vector as sums are: single factors may be half as wide as these."""
        return self.dot.left if self.dot is not None and self.dot.single else "int32"

    def filled(self, elements: int) -> int:
        """`elements`, or as many as there are with zeros after them: whole steps, in parts if that is needed."""
        unit = self.terms if self.is_cut(-(-elements // self.terms)) else self.terms * self._longest // 2
        return -(-elements // unit) * unit

    def of_values(self, weights: np.ndarray) -> Multiplication:
        """Returns the same for these weights, which may allow a faster way."""
        joined = {SMULL: SMLAL, VMULL_S8: VMLAL_S8}.get(self.dot) if self.dot is not None else None
        if joined is not None and weights.min(initial=0) > np.iinfo(np.int8).min:
            return replace(self, dot=joined)
        return self

    def product(self, data: tirx.Expr, weights: tirx.Expr) -> tirx.Expr:
        """Return one term of the sum: the product of two elements or of two packed operands. Weights may be two bytes
        that are still to be extended."""
        if self.dot is None:
            sums = "int32" if bits_of(self.data) == 8 else "float32"
            return data.astype(sums) * weights.astype(sums)
        if self.stored is not None and str(weights.expr_ty().dtype) == "int16":
            weights = tirx.call_intrin("int32", EXTENDED[self.stored], weights)
        if self.dot.single:
            return self.dot(data.astype(self.dot.left), weights.astype(self.dot.right))
        return self.dot(data, weights) if self.data == self.dot.left else self.dot(weights, data)


def multiplication_of(target: Target, data: str, weights: str) -> Multiplication:
    """Returns the best that `target` has for data and weights of these types, 8-bit integers or 16-bit floats."""
    if weights in FLOAT_MACHINES:
        return Multiplication(data, weights, 0, _pairs_of(target, weights))
    architecture, features = target.triple.split("-")[0], set(target.features)
    if target.summed_bytes:  # see `dot_accumulate.py`; vectors of int32 take fewer instructions than halves of words
        return Multiplication(data, weights)
    dot = next((d[weights] for name, needed, d in MACHINES if name == architecture and needed <= features), None)
    if dot is None:
        return Multiplication(data, weights)
    if dot.single:
        return Multiplication(data, weights, 0, dot)
    if dot.terms == 2:
        return Multiplication("int16", "int16", 0, dot, weights)
    wanted = dot.left if weights == dot.right else dot.right
    return Multiplication(wanted, weights, 0 if wanted == data else 128 if wanted == "uint8" else -128, dot)


def pair_product(target: Target) -> Callable[[tirx.Expr, tirx.Expr], tirx.Expr] | None:
    """Returns the sum of the products of two packed operands of 16 bits; None for targets without an instruction for
    it.
    """
    return {"x86_64": PMADDWD, "i686": PMADDWD, "wasm32": WASM_DOT}.get(target.triple.split("-")[0])


def byte_product(target: Target) -> Callable[[tirx.Expr, tirx.Expr], tirx.Expr] | None:
    """Returns the product of two bytes in int32, for vectors of which a target reads several bytes at once; None for
    others.
    """
    if not target.triple.startswith("thumb") or "dsp" not in target.features or "mve" in target.features:
        return None
    return lambda left, right: tirx.call_intrin("int32", BYTE_PRODUCT, left, right)


def pair_speed(target: Target) -> float:
    """Products of the 16-bit float that `target` shall multiply, in the time of one of float32; 1 if it gains
    nothing."""
    dtype = target.float16_type
    pairs = None if dtype is None else _pairs_of(target, dtype)
    if dtype is None or pairs is None:
        return 1.0
    tiles = TILE_PRODUCTS.get(pairs.name)
    if tiles is not None and tiles.feature in target.tiles:
        products = tiles.unit.rows * tiles.unit.lanes * tiles.unit.terms * pairs.terms
        vectors = products / tiles.unit.cycles / target.lanes("float32")
        return target.costs.loops.tile_share * vectors / target.costs.multiply_adds
    if dtype == "bfloat16":
        return max(1.0, 2 * target.costs.bf16_dots)
    loops = target.costs.loops
    if pairs is FLOAT16_PRODUCT:
        part, adding = FLOAT16_PART, loops.half_add_products
    else:
        part, adding = FLOAT16_SUM, loops.half_sum_products
    return 2 * part / (part + adding)


def sums_in_float16(target: Target) -> bool:
    """Whether a vector of float16 is multiplied and added to as one of float32 is: each element to a sum of its own."""
    return _pairs_of(target, "float16") is FLOAT16_PRODUCT


def _pairs_of(target: Target, dtype: str) -> DotProduct | None:
    architecture, features = target.triple.split("-")[0], set(target.features)
    return next((d for name, needed, d in FLOAT_MACHINES[dtype] if name == architecture and needed <= features), None)


def convert(data: te.Tensor, dtype: str, offset: int) -> te.Tensor:
    """8-bit data as `dtype`: wider, or with `offset` added, modulo 256, to change the sign."""

    def element(*index: tirx.Var) -> tirx.Expr:
        scalar = data(*index)
        if bits_of(dtype) > 8:
            return scalar.astype(dtype)
        if abs(offset) == 128:
            return (scalar ^ tirx.const(-128 if data.dtype == "int8" else 128, data.dtype)).astype(dtype)
        return scalar.astype(dtype) + tirx.const(offset, dtype)

    return te.compute(data.shape, element, name="convert")


def operator_of(total: tirx.Expr) -> str:
    """Returns the operator of a sum of dot products; "" for other sums."""
    call = total.b if isinstance(total, tirx.Add) else total
    return str(call.op.name) if is_dot_product(call) else ""


def lane_type_of(total: tirx.Expr, dtype: str) -> str:
    """Returns the same of a sum of `dtype`: see :attr:`Multiplication.lane`."""
    product = PRODUCTS.get(operator_of(total))
    return product.left if product is not None and product.single else dtype


def accumulates(total: tirx.Expr) -> bool:
    """Whether a sum is one of dot products by an instruction that adds to it."""
    name = operator_of(total)
    return bool(name) and PRODUCTS[name].accumulates


def spreading(total: tirx.Expr) -> float:
    """Returns the cost of bringing an operand into the form that is multiplied, in products of four lanes."""
    name = operator_of(total)
    return PRODUCTS[name].spreading if name else 0.0


def accumulated(call: tirx.Expr, total: tirx.Expr) -> tirx.Expr:
    """Returns the same products added to `total`."""
    _, left, right = call.args
    return tirx.call_intrin(PRODUCTS[call.op.name].sums, call.op.name, total, left, right)


def of_float16(call: tirx.Expr) -> bool:
    """Whether `call` adds to a sum of two float16."""
    return is_dot_product(call) and bool(call.op.name == FLOAT16_PAIRS.name)


def is_float16_product(expr: tirx.Expr | None) -> bool:
    """Whether `expr` is a product whose sum is one float16."""
    return expr is not None and is_dot_product(expr) and bool(expr.op.name == FLOAT16_PRODUCT.name)


def float16_multiply_add(total: tirx.Expr, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    """Returns the sum of `total` and a product, all float16, rounded once."""
    return tirx.call_intrin("float16", FLOAT16_ADD, total, left, right)


def has_half_sums(call: tirx.Expr) -> bool:
    """Whether `call` adds to a sum that is two numbers of 16 bits."""
    return is_dot_product(call) and call.op.name in HALF_SUMS


def whole_sum(total: tirx.Expr, product: str) -> tirx.Expr:
    """Returns the number that a sum of two numbers of 16 bits stands for: of products with the operator `product`."""
    return tirx.call_intrin(PRODUCTS[product].sums, HALF_SUMS[product], total)
