"""Emits AArch64 assembly that multiplies packed matrices by outer products (SME), for any length of streaming vectors.

    A[K, 32] · B[blocks, K, 32] → C[rows, columns]

    enter streaming mode
    for each block of 32 columns, each two vectors of its columns, each two vectors of the 32 rows:
        za0 … za3 = 0
        for k in K: za += A[k, two vectors] ⊗ B[k, two vectors]        # 4 fmopa
        store the rows of za that C has
    leave it

Vectors of 512 bits hold 16 numbers: two of them are 32 rows or columns. Longer ones are filled up with zeros, and of
shorter ones a block takes several steps. Of 8-bit integers a number of 32 bits is four terms of a sum.

The procedure call standard lets a caller leave numbers of its own in ZA, and say in TPIDR2_EL0 where they are to be
saved before another function uses ZA.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["BLOCK", "OUTER_PRODUCTS", "outer_product_text"]

BLOCK = 32
"""The rows and columns of a packed block."""

OUTER_PRODUCTS = {
    ("float32", "float32"): "fmopa",
    ("int8", "int8"): "smopa",
    ("uint8", "uint8"): "umopa",
    ("uint8", "int8"): "usmopa",
    ("int8", "uint8"): "sumopa",
}
"""The instructions by the types of A and B."""

_TPIDR2 = "S3_3_C13_C0_5"
_WHERE_SAVED = (
    f"mrs x9, {_TPIDR2}",
    "cbz x9, 3f",
    "ldr x10, [x9]",  # a buffer, and how many rows of ZA it has room for
    "ldrh w11, [x9, #8]",
    "cbz x10, 2f",
    "rdsvl x13, #1",
    "mov w12, #0",
    "1:",
    "cmp w12, w11",
    "b.hs 2f",
    "str za[w12, 0], [x10]",
    "add x10, x10, x13",
    "add w12, w12, #1",
    "b 1b",
    "2:",
    f"msr {_TPIDR2}, xzr",
    "3:",
)

# x0: A, x1: B, x2: C, x3: rows, x4: K, x5: columns, x6: numbers from a row of C to the next
_ARGUMENTS = 7
_COLUMNS = (
    "smstart",
    "mov x20, x1",
    "lsl x21, x6, #2",
    "ptrue p0.b",
    "cntw x9",
    f"lsl x7, x4, #{(4 * BLOCK).bit_length() - 1}",  # bytes of a block of B
    f"mov x17, #{BLOCK}",
    "mov x8, #0",  # first column of the block
    "4:",
    "mov x10, #0",  # column in the block
    "5:",
    "add x11, x8, x10",
    "cmp x11, x5",
    "b.hs 12f",
    "add x16, x11, x9",
    "whilelo p2.s, x11, x5",  # columns that C has
    "whilelo p3.s, x16, x5",
    "add x16, x10, x9",
    "whilelo p4.s, x10, x17",  # columns of the block
    "whilelo p5.s, x16, x17",
    "mov x14, #0",  # row
    "6:",
    "add x16, x14, x9",
    "whilelo p6.s, x14, x17",
    "whilelo p7.s, x16, x17",
    "zero {za}",
    "add x15, x0, x14, lsl #2",
    "add x16, x20, x10, lsl #2",
    "mov x13, x4",
    "7:",
    "ld1w {z0.s}, p6/z, [x15]",
    "ld1w {z1.s}, p7/z, [x15, #1, mul vl]",
    "ld1w {z2.s}, p4/z, [x16]",
    "ld1w {z3.s}, p5/z, [x16, #1, mul vl]",
)
_STORES = (
    f"add x15, x15, #{4 * BLOCK}",
    f"add x16, x16, #{4 * BLOCK}",
    "subs x13, x13, #1",
    "b.ne 7b",
    "madd x15, x14, x21, x2",
    "add x15, x15, x11, lsl #2",
    "sub x16, x3, x14",
    "cmp x16, x9",
    "csel x13, x16, x9, lo",  # rows of the first two tiles
    "mov w12, #0",
    "8:",
    "st1w {za0h.s[w12, 0]}, p2, [x15]",
    "st1w {za1h.s[w12, 0]}, p3, [x15, x9, lsl #2]",
    "add x15, x15, x21",
    "add w12, w12, #1",
    "cmp w12, w13",
    "b.lo 8b",
    "subs x16, x16, x9",
    "b.ls 10f",
    "cmp x16, x9",
    "csel x13, x16, x9, lo",  # of the other two
    "mov w12, #0",
    "9:",
    "st1w {za2h.s[w12, 0]}, p2, [x15]",
    "st1w {za3h.s[w12, 0]}, p3, [x15, x9, lsl #2]",
    "add x15, x15, x21",
    "add w12, w12, #1",
    "cmp w12, w13",
    "b.lo 9b",
    "10:",
    "add x14, x14, x9, lsl #1",
    "cmp x14, x3",
    "b.lo 6b",
    "add x10, x10, x9, lsl #1",
    f"cmp x10, #{BLOCK}",
    "b.lo 5b",
    "add x20, x20, x7",
    f"add x8, x8, #{BLOCK}",
    "cmp x8, x5",
    "b.lo 4b",
    "12:",
    "smstop",
)


_CLOBBERED = (
    *(f"x{number}" for number in (*range(_ARGUMENTS, 18), 20, 21)),
    *(f"v{number}" for number in range(32)),
    *(f"p{number}" for number in range(16)),
    *("memory", "cc"),
)
"""The registers that the function changes: entering streaming mode clears all vectors and predicates."""


def outer_product_text(instruction: str) -> str:
    """Returns the function of an instruction of `OUTER_PRODUCTS` as text in LLVM IR."""
    lines = "\\0A".join(_lines(instruction))
    names = ("a", "b", "c", "rows", "depth", "columns", "stride")
    arguments = ", ".join(f"{'ptr' if name in 'abc' else 'i64'} %{name}" for name in names)
    constraints = [f"{{x{number}}}" for number in range(_ARGUMENTS)] + [f"~{{{name}}}" for name in _CLOBBERED]
    return f"""
define linkonce_odr hidden void @nnefc_tile_{instruction}({arguments}) {{
  call void asm sideeffect "{lines}", "{",".join(constraints)}"({arguments})
  ret void
}}
"""


def _lines(instruction: str) -> Iterator[str]:
    element = "s" if instruction == "fmopa" else "b"
    yield ".arch_extension sme"
    yield from _WHERE_SAVED
    yield from _COLUMNS
    for tile, (row, column) in enumerate(((0, 2), (0, 3), (1, 2), (1, 3))):
        yield f"{instruction} za{tile}.s, p0/m, p0/m, z{row}.{element}, z{column}.{element}"
    yield from _STORES
