"""Sums of products of narrow integers, as instructions compute them: four or two terms at once in every lane.

A *packed dot operand* is an int32 that holds the operands of one lane: four bytes, or two integers of 16 bits. An
instruction adds `Σ left[t] · right[t]` over the terms t of two of them to a sum, modulo 2³², without saturation:

    vpdpbusd(sum, left, right)    left: 4 × uint8, right: 4 × int8       AVX-512 VNNI
    pmaddwd(sum, left, right)     left, right: 2 × int16                 SSE2, AVX2, AVX-512
    sdot, udot(sum, left, right)  left, right: 4 × int8, 4 × uint8       64-bit Arm with dot products

Each is an operator of TIR that vectorizes; single ones are computed by ordinary arithmetic, on any machine.

Constant weights stay bytes in memory. Where the instruction wants 16 bits, the two bytes of one are kept as one
int16, and are widened where they are read, by the operators `nnefc.widened_int8` and `nnefc.widened_uint8`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import te, tirx
from tvm.ir import _ffi_api as ir_ffi
from tvm.ir import register_op_attr

from nnefc.element_types import bits_of
from nnefc.passes.compute.blocked import blocks
from nnefc.targets.machine.target import Target

__all__ = [
    "DotProduct",
    "Multiplication",
    "accumulated",
    "convert",
    "is_dot_product",
    "is_widening",
    "multiplication_of",
    "pack_dot_matrix",
    "packed_array",
    "packed_dot_operands",
    "use_dot_products",
]

_PURE = 1  # TVM's CallEffectKind


@dataclass(frozen=True)
class DotProduct:
    """An instruction.

    Attributes:
        name: of the operator of TIR.
        left, right: the types of the operands' items.
        intrinsics: LLVM's functions by the number of their lanes.
        accumulates: whether LLVM's function adds to a sum; else an addition follows.
    """

    name: str
    left: str
    right: str
    intrinsics: tuple[tuple[int, str], ...]
    accumulates: bool = True

    @property
    def terms(self) -> int:
        """Products of two packed operands."""
        return 32 // bits_of(self.left)

    def __call__(self, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
        """The sum of the products of two packed operands."""
        return tirx.call_intrin("int32", self.name, tirx.const(0, "int32"), left, right)


_VPDPBUSD = DotProduct(
    "nnefc.vpdpbusd",
    "uint8",
    "int8",
    tuple((lanes, f"llvm.x86.avx512.vpdpbusd.{lanes * 32}") for lanes in (16, 8, 4)),
)
_PMADDWD = DotProduct(
    "nnefc.pmaddwd",
    "int16",
    "int16",
    ((16, "llvm.x86.avx512.pmaddw.d.512"), (8, "llvm.x86.avx2.pmadd.wd"), (4, "llvm.x86.sse2.pmadd.wd")),
    accumulates=False,
)
_SDOT = DotProduct("nnefc.sdot", "int8", "int8", ((4, "llvm.aarch64.neon.sdot.v4i32.v16i8"),))
_UDOT = DotProduct("nnefc.udot", "uint8", "uint8", ((4, "llvm.aarch64.neon.udot.v4i32.v16i8"),))
_ALL = {product.name: product for product in (_VPDPBUSD, _PMADDWD, _SDOT, _UDOT)}
_WIDENED = {dtype: f"nnefc.widened_{dtype}" for dtype in ("int8", "uint8")}

# What a machine has, the best first: its architecture, the features needed, and the instructions for weights of uint8
# and of int8.
_MACHINES: tuple[tuple[str, frozenset[str], dict[str, DotProduct]], ...] = (
    ("x86_64", frozenset({"avx512vnni", "avx512vl"}), {"uint8": _VPDPBUSD, "int8": _VPDPBUSD}),
    ("x86_64", frozenset(), {"uint8": _PMADDWD, "int8": _PMADDWD}),
    ("aarch64", frozenset({"dotprod"}), {"uint8": _UDOT, "int8": _SDOT}),
)


@dataclass(frozen=True)
class Multiplication:
    """How a target sums up products of 8-bit data and weights in int32.

    Attributes:
        data, weights: the types that they are brought to.
        offset: what that adds to the data, modulo 256.
        dot: the instruction; None for ordinary arithmetic, on items that are not packed.
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

    def product(self, data: tirx.Expr, weights: tirx.Expr) -> tirx.Expr:
        """One step of the sum: of items, or of packed operands; of weights also two bytes that are to be widened."""
        if self.dot is None:
            return data.astype("int32") * weights.astype("int32")
        if self.stored is not None and str(weights.expr_ty().dtype) == "int16":
            weights = tirx.call_intrin("int32", _WIDENED[self.stored], weights)
        return self.dot(data, weights) if self.data == self.dot.left else self.dot(weights, data)


def multiplication_of(target: Target, data: str, weights: str) -> Multiplication:
    """The best that `target` has for data and weights of the types `data` and `weights`, uint8 or int8."""
    architecture, features = target.triple.split("-")[0], set(target.features)
    dot = next((d[weights] for name, needed, d in _MACHINES if name == architecture and needed <= features), None)
    if dot is None:
        return Multiplication(data, weights)
    if dot.terms == 2:
        return Multiplication("int16", "int16", 0, dot, weights)
    wanted = dot.left if weights == dot.right else dot.right
    return Multiplication(wanted, weights, 0 if wanted == data else 128 if wanted == "uint8" else -128, dot)


def convert(data: te.Tensor, dtype: str) -> te.Tensor:
    """8-bit data as `dtype`: wider, or with 128 added or taken away to change the sign."""

    def element(*index: tirx.Var) -> tirx.Expr:
        item = data(*index)
        if bits_of(dtype) > 8:
            return item.astype(dtype)
        return (item ^ tirx.const(-128 if data.dtype == "int8" else 128, data.dtype)).astype(dtype)

    return te.compute(data.shape, element, name="convert")


def is_dot_product(expr: tirx.Expr) -> bool:
    """Whether `expr` is a call of one of the operators; its operands: the sum, the left and the right one."""
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") in _ALL


def is_widening(expr: tirx.Expr) -> bool:
    """Whether `expr` is a call of an operator that makes bytes 16 bits wide; its operand is half a packed one."""
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") in _WIDENED.values()


def accumulated(call: tirx.Expr, total: tirx.Expr) -> tirx.Expr:
    """The same products added to `total`."""
    _, left, right = call.args
    return tirx.call_intrin("int32", call.op.name, total, left, right)


# Words.


def packed_array(array: np.ndarray, axis: int, terms: int) -> np.ndarray:
    """Each `terms` items along `axis` as one packed operand, or half of one, the last filled up with zeros."""
    moved = np.moveaxis(array, axis, -1)
    missing = -moved.shape[-1] % terms
    padded = np.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, missing)])
    return np.moveaxis(np.ascontiguousarray(padded).view(f"<i{terms * array.itemsize}"), -1, axis)


def packed_dot_operands(data: te.Tensor) -> te.Tensor:
    """The elements of `data` packed along the last axis, whose size is a multiple of the terms of an instruction.

    The bytes are the same on a little-endian machine: the memory plan need not run this.
    """
    bits = bits_of(str(data.dtype))
    terms = 32 // bits
    *outer, size = data.shape

    def element(*index: tirx.Var) -> tirx.Expr:
        *place, word = index
        return _joined([data(*place, word * terms + term) for term in range(terms)], bits)

    return te.compute((*outer, int(size) // terms), element, name="dot_operands")


def pack_dot_matrix(matrix: te.Tensor, size: int, terms: int) -> te.Tensor:
    """`[…, K, N]` → packed `[…, N / size, K / terms, size]`, filled up with zeros, at run time."""
    *batch, depth, columns = matrix.shape
    bits = bits_of(str(matrix.dtype))

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, block, word, lane = index
        column = block * size + lane
        items = []
        for term in range(terms):
            row = word * terms + term
            inside = ([row < depth] if int(depth) % terms else []) + ([column < columns] if int(columns) % size else [])
            item = matrix(*outer, row, column)
            items.append(tirx.if_then_else(tirx.all(*inside), item, tirx.const(0, matrix.dtype)) if inside else item)
        return _joined(items, bits)

    shape = (*batch, blocks(int(columns), size), blocks(int(depth), terms), size)
    return te.compute(shape, element, name="pack_dot_operands")


def _joined(items: Sequence[tirx.Expr], bits: int) -> tirx.Expr:
    """Items packed into 32 bits, the first in the lowest."""
    word: tirx.Expr = tirx.const(0, "int32")
    for term, item in enumerate(items):
        narrow = item.astype("int32") & tirx.const((1 << bits) - 1, "int32")
        word = word | (narrow << tirx.const(bits * term, "int32"))
    return word


# Code.


@functools.cache  # TVM refuses a second registration
def use_dot_products() -> None:
    """Make the operators known to TVM, and its code generator for CPUs, in this process."""
    for product in _ALL.values():
        ir_ffi.RegisterOp(product.name, "a sum of products of narrow integers")
        register_op_attr(product.name, "TCallEffectKind", _PURE)
        register_op_attr(product.name, "TVectorizable", True)
        register_op_attr(product.name, "TScriptPrinterName", product.name)
        tirx.register_intrin_lowering(product.name, target="llvm", f=_lowering(product), level=100)
    for dtype, name in _WIDENED.items():
        ir_ffi.RegisterOp(name, f"two {dtype} as two int16")
        register_op_attr(name, "TCallEffectKind", _PURE)
        register_op_attr(name, "TVectorizable", True)
        register_op_attr(name, "TScriptPrinterName", name)
        tirx.register_intrin_lowering(name, target="llvm", f=_widening(dtype), level=100)


def _lowering(product: DotProduct) -> Callable[[tvm.ir.Call], tirx.Expr]:
    def lower(call: tvm.ir.Call) -> tirx.Expr:
        lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
        intrinsic = dict(product.intrinsics).get(lanes)
        if intrinsic is not None:
            return _instruction(product, intrinsic, lanes, *call.args)
        if lanes == 1:
            return _by_arithmetic(product, *call.args)
        parts = [[tirx.Shuffle([arg], [lane]) for arg in call.args] for lane in range(lanes)]
        return tirx.Shuffle([_by_arithmetic(product, *part) for part in parts], list(range(lanes)))

    return lower


def _widening(dtype: str) -> Callable[[tvm.ir.Call], tirx.Expr]:
    def lower(call: tvm.ir.Call) -> tirx.Expr:
        (pair,) = call.args
        lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
        items = tirx.reinterpret(f"{dtype}x{2 * lanes}", pair).astype(f"int16x{2 * lanes}")
        return tirx.reinterpret("int32" if lanes == 1 else f"int32x{lanes}", items)

    return lower


def _instruction(
    product: DotProduct, intrinsic: str, lanes: int, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr
) -> tirx.Expr:
    bits = 32 // product.terms
    items = [tirx.reinterpret(f"int{bits}x{lanes * product.terms}", word) for word in (left, right)]
    if product.accumulates:
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, total, *items)
    return total + tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, *items)


def _by_arithmetic(product: DotProduct, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    for term in range(product.terms):
        total = total + _item(left, product.left, term) * _item(right, product.right, term)
    return total


def _item(word: tirx.Expr, dtype: str, term: int) -> tirx.Expr:
    """Item `term` of a packed operand, as an int32."""
    bits = bits_of(dtype)
    if dtype.startswith("uint"):
        return (word >> tirx.const(bits * term, "int32")) & tirx.const((1 << bits) - 1, "int32")
    return (word << tirx.const(32 - bits * (term + 1), "int32")) >> tirx.const(32 - bits, "int32")
