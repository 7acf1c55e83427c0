"""Sums of products of narrow numbers, as instructions compute them: four or two terms at once in every lane.

A *packed dot operand* is an int32 that holds the operands of one lane: four bytes, or two numbers of 16 bits. An
instruction adds `Σ left[t] · right[t]` over the terms t of two of them to a sum; of integers modulo 2³²:

    vpdpbusd(sum, left, right)    left: 4 × uint8, right: 4 × int8       AVX-512 VNNI, AVX-VNNI
    pmaddwd(sum, left, right)     left, right: 2 × int16                 SSE2, AVX2, AVX-512
    i32x4.dot(sum, left, right)   left, right: 2 × int16                 WebAssembly with SIMD128
    sdot, udot(sum, left, right)  left, right: 4 × int8, 4 × uint8       64-bit Arm with dot products
    sve_sdot, sve_udot(…)         the same                           vectors of SVE, of a length that is known
    smull, umull(sum, …)          left, right: 4 × int8, 4 × uint8       Arm: products of 16 bits, added up in pairs
    smlal(sum, left, right)       left, right: 4 × int8, one > -128      Arm: the same of sums of two products
    vdpbf16ps(sum, left, right)   left, right: 2 × bfloat16              AVX-512 BF16
    bfdot(sum, left, right)       left, right: 2 × bfloat16              64-bit Arm with bfloat16
    riscv_product(…)              left, right: int16                   RISC-V with vectors: see `riscv_vectors.py`
    smlad(sum, left, right)       left, right: 4 × int8, or uint8        Arm's DSP extension, two terms at a time
    half_pairs(sum, left, right)  left, right: 2 × float16               AVX-512 FP16
    sve_bfdot(sum, left, right)   left, right: 2 × bfloat16              vectors of SVE, of a length that is known
    half_product(sum, left, right)  left, right: float16                 64-bit Arm with half floats, RISC-V with Zvfh

Sums of floats are float32. Only those of `half_pairs` are two float16 in its place, one of each term, as vectors of
float16 are multiplied and added: no more than `HALF_SUM` products go into one, then `half_sum` makes float32 of both.
Where vectors are multiplied by lanes of others, a sum of `half_product` is one float16: `schedule/cpu/half_sums.py`.

Each is an operator of TIR that vectorizes; single ones are computed by ordinary arithmetic, on any machine.

Constant weights stay bytes in memory. Where the instruction wants 16 bits, the two bytes of one are kept as one
int16, and are widened where they are read, by the operators `nnefc.widened_int8` and `nnefc.widened_uint8`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import te, tirx

from nnefc.element_types import bits_of
from nnefc.passes.compute.blocked import blocks
from nnefc.passes.compute.riscv_vectors import LENGTHS as RISCV_LENGTHS
from nnefc.passes.compute.riscv_vectors import function_text, use_riscv_vectors, widened_product_name
from nnefc.passes.tir.pure_operators import register_pure_operator
from nnefc.passes.tir.scalable_vectors import Vector
from nnefc.targets.machine.target import Target

__all__ = [
    "HALF_PART",
    "HALF_SUM",
    "HALF_TOTAL",
    "DotProduct",
    "Multiplication",
    "accumulated",
    "byte_product",
    "convert",
    "half_multiply_add",
    "instructions",
    "is_dot_product",
    "is_half_product",
    "is_widening",
    "llvm_text",
    "multiplication_of",
    "of_halves",
    "pack_dot_matrix",
    "packed_array",
    "packed_dot_operands",
    "pair_product",
    "pair_speed",
    "spreading",
    "sums_in_halves",
    "terms_of",
    "use_dot_products",
    "whole_sum",
]


HALF_SUM = 32
"""Products that are summed up in float16 at most. Of random terms, the error is then 0.4 thousandths of the sum, half
of what rounding the operands to bfloat16 makes it."""

HALF_PART, HALF_TOTAL = 72, 64
"""Products of a part of a sum in float16, and parts that are added up in float16, at most. Of random terms, the error
is 0.6 thousandths of a sum of 32 to 1,024 products, and 0.8 of longer ones, as that of rounding to bfloat16."""


@dataclass(frozen=True)
class DotProduct:
    """An instruction.

    Attributes:
        name: of the operator of TIR.
        left, right: the types of the operands' items.
        intrinsics: LLVM's functions by the number of their lanes.
        accumulates: whether LLVM's function adds to a sum; else an addition follows.
        sums: the type of the sum.
        long: LLVM's functions that multiply eight bytes, and that add neighbours among eight numbers of 16 bits, if the
            operator is made of these. `accumulates` is of the second then.
        joined: whether 16 bits hold the sum of two of its products.
        single: whether its operands are items, which are not packed.
        scalable: whether LLVM's function is one on vectors of scalable length.
    """

    name: str
    left: str
    right: str
    intrinsics: tuple[tuple[int, str], ...]
    accumulates: bool = True
    sums: str = "int32"
    long: tuple[str, str] | None = None
    joined: bool = False
    single: bool = False
    scalable: bool = False

    @property
    def terms(self) -> int:
        """Products of two packed operands."""
        return 1 if self.single else 32 // bits_of(self.left)

    @property
    def spreading(self) -> float:
        """What it takes to load an operand and to make its halves, in products of four lanes: four instructions."""
        return 0.0 if self.long is None else 4 / 3 if self.joined else 1.0

    def __call__(self, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
        """The sum of the products of two packed operands."""
        return tirx.call_intrin(self.sums, self.name, tirx.const(0, self.sums), left, right)


_SCALABLE_LANES, _LEAST_LANES = (16, 8), 4  # of SVE

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
_WASM_DOT = DotProduct("nnefc.wasm_dot", "int16", "int16", ((4, "llvm.wasm.dot"),), accumulates=False)
_SDOT = DotProduct("nnefc.sdot", "int8", "int8", ((4, "llvm.aarch64.neon.sdot.v4i32.v16i8"),))
_UDOT = DotProduct("nnefc.udot", "uint8", "uint8", ((4, "llvm.aarch64.neon.udot.v4i32.v16i8"),))
_SVE_SDOT, _SVE_UDOT = (
    DotProduct(
        f"nnefc.sve_{name}",
        dtype,
        dtype,
        tuple((lanes, f"llvm.aarch64.sve.{name}.nxv4i32") for lanes in _SCALABLE_LANES),
        scalable=True,
    )
    for name, dtype in (("sdot", "int8"), ("udot", "uint8"))
)
_SMULL, _SMLAL, _UMULL = (
    DotProduct(f"nnefc.{name}", dtype, dtype, (), accumulates=False, long=(multiply, add), joined=name == "smlal")
    for name, dtype, multiply, add in (
        ("smull", "int8", "llvm.aarch64.neon.smull.v8i16", "llvm.aarch64.neon.saddlp.v4i32.v8i16"),
        ("smlal", "int8", "llvm.aarch64.neon.smull.v8i16", "llvm.aarch64.neon.saddlp.v4i32.v8i16"),
        ("umull", "uint8", "llvm.aarch64.neon.umull.v8i16", "llvm.aarch64.neon.uaddlp.v4i32.v8i16"),
    )
)
_VMULL_S8, _VMLAL_S8, _VMULL_U8 = (
    DotProduct(f"nnefc.{name}", dtype, dtype, (), long=(multiply, add), joined=name == "vmlal_s8")
    for name, dtype, multiply, add in (
        ("vmull_s8", "int8", "llvm.arm.neon.vmulls.v8i16", "llvm.arm.neon.vpadals.v4i32.v8i16"),
        ("vmlal_s8", "int8", "llvm.arm.neon.vmulls.v8i16", "llvm.arm.neon.vpadals.v4i32.v8i16"),
        ("vmull_u8", "uint8", "llvm.arm.neon.vmullu.v8i16", "llvm.arm.neon.vpadalu.v4i32.v8i16"),
    )
)
_VDPBF16PS = DotProduct(
    "nnefc.vdpbf16ps",
    "bfloat16",
    "bfloat16",
    tuple((lanes, f"llvm.x86.avx512bf16.dpbf16ps.{lanes * 32}") for lanes in (16, 8, 4)),
    sums="float32",
)
_BFDOT = DotProduct(
    "nnefc.bfdot", "bfloat16", "bfloat16", ((4, "llvm.aarch64.neon.bfdot.v4f32.v8bf16"),), sums="float32"
)
_SVE_BFDOT = DotProduct(
    "nnefc.sve_bfdot",
    "bfloat16",
    "bfloat16",
    tuple((lanes, "llvm.aarch64.sve.bfdot") for lanes in _SCALABLE_LANES),
    sums="float32",
    scalable=True,
)
_SMLAD = DotProduct("nnefc.smlad", "int8", "int8", ())
_UMLAD = DotProduct("nnefc.umlad", "uint8", "uint8", ())
_WIDENING_PAIRS = {_SMLAD.name: "llvm.arm.sxtb16", _UMLAD.name: "llvm.arm.uxtb16"}
_BYTES = "nnefc.byte_product"
_HALF_PAIRS = DotProduct("nnefc.half_pairs", "float16", "float16", (), sums="float32")
_HALF_PRODUCT = DotProduct("nnefc.half_product", "float16", "float16", (), sums="float32", single=True)
_RISCV = {bits: DotProduct(widened_product_name(bits), "int16", "int16", (), single=True) for bits in RISCV_LENGTHS}
_HALF_SUM = "nnefc.half_sum"
_HALF_ADD = "nnefc.half_multiply_add"
_HALF_SUMS = {_HALF_PAIRS.name: HALF_SUM, _HALF_PRODUCT.name: HALF_PART}
_LONG = (_SMULL, _SMLAL, _UMULL, _VMULL_S8, _VMLAL_S8, _VMULL_U8)
_PRODUCTS = (
    _VPDPBUSD,
    _PMADDWD,
    _WASM_DOT,
    _SDOT,
    _UDOT,
    _SVE_SDOT,
    _SVE_UDOT,
    _SMLAD,
    _UMLAD,
    *_LONG,
    _VDPBF16PS,
    _BFDOT,
    _SVE_BFDOT,
    _HALF_PAIRS,
    _HALF_PRODUCT,
    *_RISCV.values(),
)
_ALL = {product.name: product for product in _PRODUCTS}
_WIDENED = {dtype: f"nnefc.widened_{dtype}" for dtype in ("int8", "uint8")}

# What a machine has, the best first: its architecture, the features needed, and the instructions for weights of uint8
# and of int8.
_MACHINES: tuple[tuple[str, frozenset[str], dict[str, DotProduct]], ...] = (
    ("x86_64", frozenset({"avx512vnni", "avx512vl"}), {"uint8": _VPDPBUSD, "int8": _VPDPBUSD}),
    ("x86_64", frozenset({"avxvnni"}), {"uint8": _VPDPBUSD, "int8": _VPDPBUSD}),
    ("x86_64", frozenset(), {"uint8": _PMADDWD, "int8": _PMADDWD}),
    ("wasm32", frozenset(), {"uint8": _WASM_DOT, "int8": _WASM_DOT}),
    ("aarch64", frozenset({"sve256"}), {"uint8": _SVE_UDOT, "int8": _SVE_SDOT}),
    ("aarch64", frozenset({"sve512"}), {"uint8": _SVE_UDOT, "int8": _SVE_SDOT}),
    ("aarch64", frozenset({"dotprod"}), {"uint8": _UDOT, "int8": _SDOT}),
    ("thumb", frozenset({"dsp"}), {"uint8": _UMLAD, "int8": _SMLAD}),
    ("aarch64", frozenset(), {"uint8": _UMULL, "int8": _SMULL}),
    ("armv7a", frozenset(), {"uint8": _VMULL_U8, "int8": _VMULL_S8}),
    *(
        ("riscv64", frozenset({"v", f"zvl{bits}b"}), {"uint8": _RISCV[bits], "int8": _RISCV[bits]})
        for bits in reversed(RISCV_LENGTHS)
    ),
)

# The same for pairs of floats, by their type.
_FLOAT_MACHINES: dict[str, tuple[tuple[str, frozenset[str], DotProduct], ...]] = {
    "bfloat16": (
        ("x86_64", frozenset({"avx512bf16", "avx512vl"}), _VDPBF16PS),
        ("aarch64", frozenset({"sve256", "bf16"}), _SVE_BFDOT),
        ("aarch64", frozenset({"sve512", "bf16"}), _SVE_BFDOT),
        ("aarch64", frozenset({"bf16"}), _BFDOT),
    ),
    "float16": (
        ("x86_64", frozenset({"avx512fp16", "avx512vl"}), _HALF_PAIRS),
        ("aarch64", frozenset({"fullfp16"}), _HALF_PRODUCT),
        ("riscv64", frozenset({"zvfh"}), _HALF_PRODUCT),
    ),
}


def instructions() -> Iterator[tuple[str, frozenset[str], str, str]]:
    """What each instruction set sums up products by, the best first: its name, the features needed, the type of the
    weights, and the name of the operator of TIR."""
    for name, features, products in _MACHINES:
        yield from ((name, features, weights, product.name) for weights, product in products.items())
    for dtype, machines in _FLOAT_MACHINES.items():
        yield from ((name, features, dtype, product.name) for name, features, product in machines)


@dataclass(frozen=True)
class Multiplication:
    """How a target sums up products of narrow data and weights: of 8-bit ones in int32, of floats in float32.

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

    def is_cut(self, items: int) -> bool:
        """Whether a sum of so many products can be made in parts that are short enough for its type."""
        steps, longest = -(-items // self.terms), self._longest
        return not longest or steps <= longest or any(steps % n == 0 for n in range(longest // 4, longest + 1))

    @property
    def _longest(self) -> int:
        """Steps of a sum in a half float, at most; 0 for sums of other types."""
        return 0 if self.dot is None else _HALF_SUMS.get(self.dot.name, 0)

    @property
    def lane(self) -> str:
        """A type of the size that a sum has in a vector."""
        return "float16" if self.dot is _HALF_PRODUCT else "int32"

    def filled(self, items: int) -> int:
        """`items`, or as many as there are with zeros after them: whole steps, in parts if that is needed."""
        unit = self.terms if self.is_cut(items) else self.terms * self._longest // 2
        return -(-items // unit) * unit

    def of_values(self, weights: np.ndarray) -> Multiplication:
        """The same for these weights, which may allow a faster way."""
        joined = {_SMULL: _SMLAL, _VMULL_S8: _VMLAL_S8}.get(self.dot) if self.dot is not None else None
        if joined is not None and weights.min(initial=0) > np.iinfo(np.int8).min:
            return replace(self, dot=joined)
        return self

    def product(self, data: tirx.Expr, weights: tirx.Expr) -> tirx.Expr:
        """One step of the sum: of items, or of packed operands; of weights also two bytes that are to be widened."""
        if self.dot is None:
            sums = "int32" if bits_of(self.data) == 8 else "float32"
            return data.astype(sums) * weights.astype(sums)
        if self.stored is not None and str(weights.expr_ty().dtype) == "int16":
            weights = tirx.call_intrin("int32", _WIDENED[self.stored], weights)
        if self.dot.single:
            return self.dot(data.astype(self.dot.left), weights.astype(self.dot.right))
        return self.dot(data, weights) if self.data == self.dot.left else self.dot(weights, data)


def multiplication_of(target: Target, data: str, weights: str) -> Multiplication:
    """The best that `target` has for data and weights of these types, 8-bit integers or half floats."""
    if weights in _FLOAT_MACHINES:
        return Multiplication(data, weights, 0, _pairs_of(target, weights))
    architecture, features = target.triple.split("-")[0], set(target.features)
    if target.summed_bytes:  # see `lane_sums.py`; vectors of int32 take fewer instructions than halves of words
        return Multiplication(data, weights)
    dot = next((d[weights] for name, needed, d in _MACHINES if name == architecture and needed <= features), None)
    if dot is None:
        return Multiplication(data, weights)
    if dot.single:
        return Multiplication(data, weights, 0, dot)
    if dot.terms == 2:
        return Multiplication("int16", "int16", 0, dot, weights)
    wanted = dot.left if weights == dot.right else dot.right
    return Multiplication(wanted, weights, 0 if wanted == data else 128 if wanted == "uint8" else -128, dot)


def pair_product(target: Target) -> Callable[[tirx.Expr, tirx.Expr], tirx.Expr] | None:
    """The product of a byte and a weight, the lower half of an int32 whose upper half is zero; None for targets without
    an instruction that multiplies pairs of 16 bits. It adds to the sum too; products of 32 bits take several steps."""
    dot = {"x86_64": _PMADDWD, "wasm32": _WASM_DOT}.get(target.triple.split("-")[0])
    return None if dot is None else lambda data, weights: dot(data.astype("int32"), weights)


def byte_product(target: Target) -> Callable[[tirx.Expr, tirx.Expr], tirx.Expr] | None:
    """The product of two bytes in int32, for vectors of which a target reads several bytes at once; None for others."""
    if not target.triple.startswith("thumb") or "dsp" not in target.features or "mve" in target.features:
        return None
    return lambda left, right: tirx.call_intrin("int32", _BYTES, left, right)


_SUMMING = 10  # products in float16 that would be made while the sums of one part become float32
_ADDING = 2  # the same where they are added up in float16


_TILE_PRODUCTS = 16**3 * 2  # of bfloat16, by two whole tiles
_TILE_SHARE = 0.5  # of the matrix unit's speed: the rest of its time goes into loading tiles, and short ones


def pair_speed(target: Target) -> float:
    """Products of the half float that `target` shall multiply, in the time of one of float32; 1 if it gains nothing."""
    dtype = target.half_float
    pairs = None if dtype is None else _pairs_of(target, dtype)
    if dtype is None or pairs is None:
        return 1.0
    if pairs is _VDPBF16PS and "amx-bf16" in target.tiles:
        vectors = _TILE_PRODUCTS / target.costs.tile_cycles / target.lanes("float32")
        return _TILE_SHARE * vectors / target.costs.multiply_adds
    if dtype == "bfloat16":
        return max(1.0, 2 * target.costs.bf16_dots)
    part, adding = (HALF_PART, _ADDING) if pairs is _HALF_PRODUCT else (HALF_SUM, _SUMMING)
    return 2 * part / (part + adding)


def sums_in_halves(target: Target) -> bool:
    """Whether a vector of float16 is multiplied and added to as one of float32 is: each item to a sum of its own."""
    return _pairs_of(target, "float16") is _HALF_PRODUCT


def _pairs_of(target: Target, dtype: str) -> DotProduct | None:
    architecture, features = target.triple.split("-")[0], set(target.features)
    return next((d for name, needed, d in _FLOAT_MACHINES[dtype] if name == architecture and needed <= features), None)


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


def terms_of(call: tirx.Expr) -> int:
    """Products that a dot product sums up."""
    return _ALL[call.op.name].terms


def spreading(total: tirx.Expr) -> float:
    """What a sum takes to bring an operand in the form that is multiplied, in products of four lanes."""
    call = total.b if isinstance(total, tirx.Add) else total
    return _ALL[call.op.name].spreading if is_dot_product(call) else 0.0


def is_widening(expr: tirx.Expr) -> bool:
    """Whether `expr` is a call of an operator that makes bytes 16 bits wide; its operand is half a packed one."""
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") in _WIDENED.values()


def accumulated(call: tirx.Expr, total: tirx.Expr) -> tirx.Expr:
    """The same products added to `total`."""
    _, left, right = call.args
    return tirx.call_intrin(_ALL[call.op.name].sums, call.op.name, total, left, right)


def of_halves(call: tirx.Expr) -> bool:
    """Whether `call` adds to a sum of two float16."""
    return is_dot_product(call) and bool(call.op.name == _HALF_PAIRS.name)


def is_half_product(expr: tirx.Expr | None) -> bool:
    """Whether `expr` is a product whose sum is one float16."""
    return expr is not None and is_dot_product(expr) and bool(expr.op.name == _HALF_PRODUCT.name)


def half_multiply_add(total: tirx.Expr, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    """The sum of `total` and a product, all float16, rounded once."""
    return tirx.call_intrin("float16", _HALF_ADD, total, left, right)


def whole_sum(total: tirx.Expr) -> tirx.Expr:
    """The float32 that a sum of two float16 stands for."""
    return tirx.call_intrin("float32", _HALF_SUM, total)


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
        if bits == 16 and "float" in str(item.expr_ty().dtype):
            item = tirx.reinterpret("uint16", item)
        narrow = item.astype("int32") & tirx.const((1 << bits) - 1, "int32")
        word = word | (narrow << tirx.const(bits * term, "int32"))
    return word


# Code.


@functools.cache  # TVM refuses a second registration
def use_dot_products() -> None:
    """Make the operators known to TVM, and its code generator for CPUs, in this process."""
    use_riscv_vectors()
    for product in _ALL.values():
        if product in _RISCV.values():
            continue
        lowering = _multiplied_halves if product is _HALF_PAIRS else _lowering(product)
        if product.long is not None:
            lowering = _long_products(product, product.long)
        if product.single:
            lowering = _wide_product
        register_pure_operator(product.name, "a sum of products of narrow numbers", lowering)
    register_pure_operator(_BYTES, "the product of two bytes", _byte_products)
    for dtype, name in _WIDENED.items():
        register_pure_operator(name, f"two {dtype} as two int16", _widening(dtype))
    register_pure_operator(_HALF_SUM, "the sum of two float16", _sum_of_halves)
    register_pure_operator(_HALF_ADD, "a sum of float16 and one product", _added_product)


def _lowering(product: DotProduct) -> Callable[[tvm.ir.Call], tirx.Expr]:
    def lower(call: tvm.ir.Call) -> tirx.Expr:
        lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
        intrinsic = dict(product.intrinsics).get(lanes)
        if intrinsic is not None:
            return _instruction(product, intrinsic, lanes, *call.args)
        return _by_lanes(product, lanes, *call.args)

    return lower


def _by_lanes(product: DotProduct, lanes: int, *args: tirx.Expr) -> tirx.Expr:
    """Each lane by arithmetic, or by instructions for one lane."""
    one = functools.partial(_by_pairs if product.name in _WIDENING_PAIRS else _by_arithmetic, product)
    if lanes == 1:
        return one(*args)
    parts = [[tirx.Shuffle([arg], [lane]) for arg in args] for lane in range(lanes)]
    return tirx.Shuffle([one(*part) for part in parts], list(range(lanes)))


def _long_products(product: DotProduct, functions: tuple[str, str]) -> Callable[[tvm.ir.Call], tirx.Expr]:
    """By products of 16 bits: first of the terms 0 and 1 of each of four lanes, then of the terms 2 and 3."""
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
    """The first two bytes of each of four words, and the other two, int8x8."""
    halves = []
    for shift in (0, 16):
        if isinstance(words, tirx.Broadcast):
            half: tirx.Expr = tirx.Broadcast((words.value >> tirx.const(shift, "int32")).astype("int16"), 4)
        else:
            half = (words >> tirx.Broadcast(tirx.const(shift, "int32"), 4)).astype("int16x4")
        halves.append(tirx.reinterpret("int8x8", half))
    return halves


def _multiplied_halves(call: tvm.ir.Call) -> tirx.Expr:
    """Both float16 of a sum, each with one product added to it in one step."""
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    total, left, right = (tirx.reinterpret(f"float16x{2 * lanes}", arg) for arg in call.args)
    made = tirx.call_llvm_pure_intrin(f"float16x{2 * lanes}", f"llvm.fma.v{2 * lanes}f16", left, right, total)
    return tirx.reinterpret(str(call.expr_ty().dtype), made)


def _wide_product(call: tvm.ir.Call) -> tirx.Expr:
    """In float32."""
    total, left, right = call.args
    dtype = str(total.expr_ty().dtype)
    return total + left.astype(dtype) * right.astype(dtype)


def _added_product(call: tvm.ir.Call) -> tirx.Expr:
    total, left, right = call.args
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    name = f"llvm.fma.v{lanes}f16" if lanes > 1 else "llvm.fma.f16"
    return tirx.call_llvm_pure_intrin(str(call.expr_ty().dtype), name, left, right, total)


def _sum_of_halves(call: tvm.ir.Call) -> tirx.Expr:
    """One addition in float16, then half as many numbers to widen."""
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
        items = tirx.reinterpret(f"{dtype}x{2 * lanes}", pair).astype(f"int16x{2 * lanes}")
        return tirx.reinterpret("int32" if lanes == 1 else f"int32x{lanes}", items)

    return lower


def llvm_text(call: tvm.ir.Call) -> str:
    """LLVM's text of the functions that `call` becomes calls of; "" for none."""
    product = _ALL.get(getattr(call.op, "name", ""))
    if product is None or product in _RISCV.values():
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
    """The vectors of a sum, and of an operand's items."""
    total, item = ("float", "bfloat") if product.left == "bfloat16" else ("i32", "i8")
    return Vector(total, lanes, _LEAST_LANES), Vector(item, lanes * product.terms, _LEAST_LANES * product.terms)


def _declaration(product: DotProduct) -> str:
    """LLVM's text for its function on vectors of SVE."""
    total, operand = (vector.scalable for vector in _scalable(product, _LEAST_LANES))
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
    """The name of what calls an instruction on bfloat16, or on vectors of scalable length."""
    return intrinsic.replace("llvm.", "nnefc_").replace(".", "_") + (f"_{lanes}" if lanes else "")


def _instruction(
    product: DotProduct, intrinsic: str, lanes: int, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr
) -> tirx.Expr:
    if product.scalable or product.left == "bfloat16":
        name = _function(intrinsic, lanes if product.scalable else 0)
        return tirx.call_pure_extern(f"{product.sums}x{lanes}", name, total, left, right)
    bits = 32 // product.terms
    if product.left == product.right and isinstance(left, tirx.Broadcast):
        left, right = right, left  # what LLVM takes for a lane of a vector comes last
    items = [tirx.reinterpret(f"int{bits}x{lanes * product.terms}", word) for word in (left, right)]
    if product.accumulates:
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, total, *items)
    return total + tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, *items)


def _by_pairs(product: DotProduct, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    """The even bytes of both, then the odd ones, each two as two halves of a word."""
    widen = _WIDENING_PAIRS[product.name]
    for shift in (0, 8):
        pair = []
        for word in (left, right):
            if shift:  # which the instruction does on the way
                word = tirx.call_llvm_pure_intrin("int32", "llvm.fshr.i32", word, word, tirx.const(shift, "int32"))
            pair.append(tirx.call_llvm_pure_intrin("int32", widen, word))
        total = tirx.call_llvm_pure_intrin("int32", "llvm.arm.smlad", *pair, total)
    return total


def _byte_products(call: tvm.ir.Call) -> tirx.Expr:
    """Of whole words: their even bytes, then the odd ones, whose lower and upper halves LLVM multiplies as they are."""
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
    """Four bytes of a vector as two words of two halves each."""
    dtype, lanes = str(vector.expr_ty().dtype).split("x")[0], int(tvm.DataType(str(vector.expr_ty().dtype)).lanes)
    words = tirx.reinterpret("int32" if lanes == 4 else f"int32x{lanes // 4}", vector)
    word = words if lanes == 4 else tirx.Shuffle([words], [number])
    widen = "llvm.arm.sxtb16" if dtype == "int8" else "llvm.arm.uxtb16"
    turned = tirx.call_llvm_pure_intrin("int32", "llvm.fshr.i32", word, word, tirx.const(8, "int32"))
    return [tirx.call_llvm_pure_intrin("int32", widen, part) for part in (word, turned)]


def _by_arithmetic(product: DotProduct, total: tirx.Expr, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    for term in range(product.terms):
        total = total + _item(left, product.left, term) * _item(right, product.right, term)
    return total


def _item(word: tirx.Expr, dtype: str, term: int) -> tirx.Expr:
    """Item `term` of a packed operand, as an int32, or a float32."""
    bits = bits_of(dtype)
    if dtype == "bfloat16":
        high = word << tirx.const(16, "int32") if term == 0 else word & tirx.const(-1 << 16, "int32")
        return tirx.reinterpret("float32", high)
    if dtype.startswith("uint"):
        return (word >> tirx.const(bits * term, "int32")) & tirx.const((1 << bits) - 1, "int32")
    return (word << tirx.const(32 - bits * (term + 1), "int32")) >> tirx.const(32 - bits, "int32")
