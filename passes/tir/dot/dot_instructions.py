"""Lists the dot-product instructions of targets: each lane adds up two or four products of narrow types.

A *packed dot operand* is an int32 that holds the operands of one lane: four bytes, or two numbers of 16 bits. An
instruction adds `Σ left[t] · right[t]` over the terms t of two of them to a sum; of integers modulo 2³²:

    vpdpbusd(sum, left, right)    left: 4 × uint8, right: 4 × int8       AVX-512 VNNI, AVX-VNNI
    pmaddwd(sum, left, right)     left, right: 2 × int16                 SSE2, AVX2, AVX-512
    pmaddubsw(sum, left, right)   left: 4 × uint8 of 7 bits, right: 4 × int8   AVX2: sums of two products in int16,
                                                                       to which `pmaddwd` with ones adds neighbours
    pmaddubsw_signed(sum, …)      left, right: 4 × int8, left > -128   AVX2: the same of magnitudes, by `psignb`
    i32x4.dot(sum, left, right)   left, right: 2 × int16                 WebAssembly with SIMD128
    relaxed_dot(sum, left, right) left: 4 × uint8 or int8, right: 4 × int8   WebAssembly with relaxed SIMD: what engines
                                                                       do with eight bits is asked for when one loads
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
    half_product(sum, left, right)  left, right: float16                 64-bit Arm with 16-bit floats, RISC-V with Zvfh

Sums of floats are float32. Only those of `half_pairs` are two float16 in its position, one of each term, as vectors of
float16 are multiplied and added: no more than `FLOAT16_SUM` products go into one, then `half_sum` makes float32 of
both. Where vectors are multiplied by lanes of others, a sum of `half_product` is one float16:
`passes/schedule/cpu/fp16_accumulators.py`.

Each is an operator of TIR that vectorizes; single ones are computed by ordinary arithmetic, on any machine.

Constant weights stay bytes in memory. Where the instruction wants 16 bits, the two bytes of one are kept as one
int16, and are extended where they are read, by the operators `nnefc.extended_int8` and `nnefc.extended_uint8`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import tirx

from nnefc.passes.tir.dot.riscv_vectors import extending_product_name
from nnefc.support.element_types import bits_of
from nnefc.targets.machine.cpu.architecture import RISCV_LENGTHS

__all__ = [
    "BYTE_PRODUCT",
    "EXTENDED",
    "FLOAT16_ADD",
    "FLOAT16_PAIRS",
    "FLOAT16_PART",
    "FLOAT16_PRODUCT",
    "FLOAT16_SUM",
    "FLOAT16_TOTAL",
    "FLOAT_MACHINES",
    "HALF_SUMS",
    "LONGEST_FLOAT16_SUMS",
    "MACHINES",
    "MIN_LANES",
    "PMADDUBSW",
    "PMADDUBSW_PAIRS",
    "PMADDUBSW_SIGNED",
    "PMADDUBSW_SMALL",
    "PMADDWD",
    "PRODUCTS",
    "QUAD_LIMITS",
    "QUAD_PAIR",
    "RISCV_PRODUCTS",
    "SMLAL",
    "SMULL",
    "SUM_OF_FLOAT16",
    "SUM_OF_INT16",
    "VDPBF16PS",
    "VMLAL_S8",
    "VMULL_S8",
    "WASM_DOT",
    "WIDENING_PAIRS",
    "DotProduct",
    "instructions",
    "is_dot_product",
    "is_quad_pair",
    "is_widening",
    "quad_kind",
    "quad_operands",
    "quad_pair",
    "terms_of",
]


FLOAT16_SUM = 32
"""The maximum number of products that are summed up in float16. Of random terms, the error is then 0.4 thousandths of
the sum, half of the error of rounding the operands to bfloat16.
"""

FLOAT16_PART, FLOAT16_TOTAL = 72, 64
"""The maximum number of products in a part of a float16 sum, and of parts that are added up in float16. Of random
terms, the error is 0.6 thousandths of a sum of 32 to 1,024 products, and 0.8 of longer ones, as that of rounding to
bfloat16.
"""


@dataclass(frozen=True)
class DotProduct:
    """A dot-product instruction.

    Attributes:
        name: of the operator of TIR.
        left, right: the types of the operands' elements.
        intrinsics: LLVM's functions by the number of their lanes.
        accumulates: whether LLVM's function adds to a sum; else an addition follows.
        sums: the type of the sum.
        long: LLVM's functions that multiply eight bytes, and that add neighbours among eight numbers of 16 bits, if the
            operator is made of these. `accumulates` is of the second then.
        joined: whether 16 bits hold the sum of two of its products.
        single: whether its operands are elements, which are not packed.
        scalable: whether LLVM's function is one on vectors of scalable length.
        right_first: whether LLVM's function has the right operand first, and the sum last.
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
    right_first: bool = False

    @property
    def terms(self) -> int:
        """The number of products of two packed operands."""
        return 1 if self.single else 32 // bits_of(self.left)

    @property
    def spreading(self) -> float:
        """Returns the cost of loading and halving an operand, in products of four lanes: four instructions."""
        return 0.0 if self.long is None else 4 / 3 if self.joined else 1.0

    def __call__(self, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
        """Returns the sum of the products of two packed operands."""
        return tirx.call_intrin(self.sums, self.name, tirx.const(0, self.sums), left, right)


_SCALABLE_LANES, MIN_LANES = (16, 8), 4  # of SVE

_VPDPBUSD = DotProduct(
    "nnefc.vpdpbusd",
    "uint8",
    "int8",
    tuple((lanes, f"llvm.x86.avx512.vpdpbusd.{lanes * 32}") for lanes in (16, 8, 4)),
)

PMADDWD = DotProduct(
    "nnefc.pmaddwd",
    "int16",
    "int16",
    ((16, "llvm.x86.avx512.pmaddw.d.512"), (8, "llvm.x86.avx2.pmadd.wd"), (4, "llvm.x86.sse2.pmadd.wd")),
    accumulates=False,
)
PMADDUBSW = DotProduct("nnefc.pmaddubsw", "uint8", "int8", ())
"""The operand types of `quad_pair`, the operator that multiplies them."""
PMADDUBSW_SMALL = DotProduct(
    "nnefc.pmaddubsw_small",
    "uint8",
    "int8",
    ((8, "llvm.x86.avx2.pmadd.ub.sw"), (4, "llvm.x86.ssse3.pmadd.ub.sw.128")),
    accumulates=False,
)
"""`vpmaddubsw` for left operands of 7 bits: int16 holds the sum of two products."""
PMADDUBSW_PAIRS = replace(PMADDUBSW_SMALL, name="nnefc.pmaddubsw_pairs")
"""`vpmaddubsw` whose int16 sums of two terms are accumulated in 16 bits, where int16 holds the whole sum."""
PMADDUBSW_SIGNED = replace(PMADDUBSW_SMALL, name="nnefc.pmaddubsw_signed", left="int8")
"""`vpmaddubsw` for signed left operands other than -128, which take over the signs of the right operands: these are
replaced by their magnitudes."""

WASM_DOT = DotProduct("nnefc.wasm_dot", "int16", "int16", ((4, "llvm.wasm.dot"),), accumulates=False)
_WASM_UDOT, _WASM_SDOT = (
    DotProduct(name, data, "int8", ((4, "llvm.wasm.relaxed.dot.i8x16.i7x16.add.signed"),), right_first=True)
    for name, data in (("nnefc.wasm_udot", "uint8"), ("nnefc.wasm_sdot", "int8"))
)
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

SMULL, SMLAL, _UMULL = (
    DotProduct(f"nnefc.{name}", dtype, dtype, (), accumulates=False, long=(multiply, add), joined=name == "smlal")
    for name, dtype, multiply, add in (
        ("smull", "int8", "llvm.aarch64.neon.smull.v8i16", "llvm.aarch64.neon.saddlp.v4i32.v8i16"),
        ("smlal", "int8", "llvm.aarch64.neon.smull.v8i16", "llvm.aarch64.neon.saddlp.v4i32.v8i16"),
        ("umull", "uint8", "llvm.aarch64.neon.umull.v8i16", "llvm.aarch64.neon.uaddlp.v4i32.v8i16"),
    )
)

VMULL_S8, VMLAL_S8, _VMULL_U8 = (
    DotProduct(f"nnefc.{name}", dtype, dtype, (), long=(multiply, add), joined=name == "vmlal_s8")
    for name, dtype, multiply, add in (
        ("vmull_s8", "int8", "llvm.arm.neon.vmulls.v8i16", "llvm.arm.neon.vpadals.v4i32.v8i16"),
        ("vmlal_s8", "int8", "llvm.arm.neon.vmulls.v8i16", "llvm.arm.neon.vpadals.v4i32.v8i16"),
        ("vmull_u8", "uint8", "llvm.arm.neon.vmullu.v8i16", "llvm.arm.neon.vpadalu.v4i32.v8i16"),
    )
)

VDPBF16PS = DotProduct(
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
WIDENING_PAIRS = {_SMLAD.name: "llvm.arm.sxtb16", _UMLAD.name: "llvm.arm.uxtb16"}
BYTE_PRODUCT = "nnefc.byte_product"
FLOAT16_PAIRS = DotProduct("nnefc.half_pairs", "float16", "float16", (), sums="float32")
FLOAT16_PRODUCT = DotProduct("nnefc.half_product", "float16", "float16", (), sums="float32", single=True)
RISCV_PRODUCTS = {
    bits: DotProduct(extending_product_name(bits), "int16", "int16", (), single=True) for bits in RISCV_LENGTHS
}
QUAD_PAIR = "nnefc.quad_pair"
"""The operator that adds up the products of two or four quads of uint8 and int8 in int16: see
`passes/compute/dot/quad_pairs.py`.
"""
QUAD_LIMITS = 4

SUM_OF_FLOAT16 = "nnefc.half_sum"
SUM_OF_INT16 = "nnefc.int16_sum"
HALF_SUMS = {FLOAT16_PAIRS.name: SUM_OF_FLOAT16, PMADDUBSW_PAIRS.name: SUM_OF_INT16}
"""The operator that adds up both sums, for products with two 16-bit sums in each lane."""
FLOAT16_ADD = "nnefc.half_multiply_add"
LONGEST_FLOAT16_SUMS = {FLOAT16_PAIRS.name: FLOAT16_SUM, FLOAT16_PRODUCT.name: FLOAT16_PART}
_LONG = (SMULL, SMLAL, _UMULL, VMULL_S8, VMLAL_S8, _VMULL_U8)

_PRODUCTS = (
    _VPDPBUSD,
    PMADDWD,
    PMADDUBSW_SMALL,
    PMADDUBSW_PAIRS,
    PMADDUBSW_SIGNED,
    WASM_DOT,
    _WASM_UDOT,
    _WASM_SDOT,
    _SDOT,
    _UDOT,
    _SVE_SDOT,
    _SVE_UDOT,
    _SMLAD,
    _UMLAD,
    *_LONG,
    VDPBF16PS,
    _BFDOT,
    _SVE_BFDOT,
    FLOAT16_PAIRS,
    FLOAT16_PRODUCT,
    *RISCV_PRODUCTS.values(),
)
PRODUCTS = {product.name: product for product in _PRODUCTS}
EXTENDED = {dtype: f"nnefc.extended_{dtype}" for dtype in ("int8", "uint8")}

# What a machine has, the best first: its architecture, the features needed, and the instructions for weights of uint8
# and of int8.
MACHINES: tuple[tuple[str, frozenset[str], dict[str, DotProduct]], ...] = (
    ("x86_64", frozenset({"avx512vnni", "avx512vl"}), {"uint8": _VPDPBUSD, "int8": _VPDPBUSD}),
    ("x86_64", frozenset({"avxvnni"}), {"uint8": _VPDPBUSD, "int8": _VPDPBUSD}),
    ("x86_64", frozenset(), {"uint8": PMADDWD, "int8": PMADDWD}),
    ("i686", frozenset(), {"uint8": PMADDWD, "int8": PMADDWD}),
    ("wasm32", frozenset({"relaxed-udot"}), {"uint8": _WASM_UDOT, "int8": _WASM_UDOT}),
    ("wasm32", frozenset({"relaxed-sdot"}), {"uint8": WASM_DOT, "int8": _WASM_SDOT}),
    ("wasm32", frozenset(), {"uint8": WASM_DOT, "int8": WASM_DOT}),
    ("aarch64", frozenset({"sve256"}), {"uint8": _SVE_UDOT, "int8": _SVE_SDOT}),
    ("aarch64", frozenset({"sve512"}), {"uint8": _SVE_UDOT, "int8": _SVE_SDOT}),
    ("aarch64", frozenset({"dotprod"}), {"uint8": _UDOT, "int8": _SDOT}),
    ("thumb", frozenset({"dsp"}), {"uint8": _UMLAD, "int8": _SMLAD}),
    ("aarch64", frozenset(), {"uint8": _UMULL, "int8": SMULL}),
    ("armv7a", frozenset(), {"uint8": _VMULL_U8, "int8": VMULL_S8}),
    *(
        ("riscv64", frozenset({"v", f"zvl{bits}b"}), {"uint8": RISCV_PRODUCTS[bits], "int8": RISCV_PRODUCTS[bits]})
        for bits in RISCV_LENGTHS
    ),
)

# The same for pairs of floats, by their type.
FLOAT_MACHINES: dict[str, tuple[tuple[str, frozenset[str], DotProduct], ...]] = {
    "bfloat16": (
        ("x86_64", frozenset({"avx512bf16", "avx512vl"}), VDPBF16PS),
        ("aarch64", frozenset({"sve256", "bf16"}), _SVE_BFDOT),
        ("aarch64", frozenset({"sve512", "bf16"}), _SVE_BFDOT),
        ("aarch64", frozenset({"bf16"}), _BFDOT),
    ),
    "float16": (
        ("x86_64", frozenset({"avx512fp16", "avx512vl"}), FLOAT16_PAIRS),
        ("aarch64", frozenset({"fullfp16"}), FLOAT16_PRODUCT),
        ("riscv64", frozenset({"zvfh"}), FLOAT16_PRODUCT),
    ),
}


def instructions() -> Iterator[tuple[str, frozenset[str], str, str]]:
    """Returns the dot products of each instruction set, the best first: name, features needed, type of the weights, and
    the operator of TIR.
    """
    for name, features, products in MACHINES:
        yield from ((name, features, weights, product.name) for weights, product in products.items())
    for dtype, machines in FLOAT_MACHINES.items():
        yield from ((name, features, dtype, product.name) for name, features, product in machines)


def is_dot_product(expr: tirx.Expr) -> bool:
    """Whether `expr` is a call of one of the operators, with the sum, the left and the right operand."""
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") in PRODUCTS


def quad_pair(operands: Sequence[tirx.Expr], pair: tirx.Expr, limits: Sequence[tirx.Expr]) -> tirx.Expr:
    """Returns the sum of the products of two quads, or of the four quads of two pairs.

    Args:
        operands: packed operands of the data and of the weights in turn, four or eight.
        pair: the position of the pair, on which its kind depends; no vector.
        limits: the ends of the shared, the direct, the folded pairs and those apart, which follow each other; the
            products of pairs behind these are zero.
    """
    return tirx.call_intrin("int32", QUAD_PAIR, *operands, pair, *limits)


def is_quad_pair(expr: tirx.Expr) -> bool:
    """Whether `expr` is a sum of :func:`quad_pair`."""
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") == QUAD_PAIR


def quad_operands(call: tirx.Expr) -> Sequence[tirx.Expr]:
    """Returns the operands of a sum of :func:`quad_pair`, of the data and of the weights in turn."""
    operands: Sequence[tirx.Expr] = list(call.args)[: -1 - QUAD_LIMITS]
    return operands


def quad_kind(call: tirx.Expr) -> tuple[tirx.Expr, Sequence[tirx.Expr]]:
    """Returns the position and the limits of a sum of :func:`quad_pair`."""
    pair, *limits = (arg.value if isinstance(arg, tirx.Broadcast) else arg for arg in call.args[-1 - QUAD_LIMITS :])
    return pair, limits


def terms_of(call: tirx.Expr) -> int:
    """Returns the number of products that a dot product sums up."""
    return PRODUCTS[call.op.name].terms


def is_widening(expr: tirx.Expr) -> bool:
    """Whether `expr` is a call of an operator that extends bytes to 16 bits; its operand is half a packed one."""
    return isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") in EXTENDED.values()
