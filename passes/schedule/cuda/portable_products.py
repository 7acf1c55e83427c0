"""Declares products of matrices in shared memory by warps, for devices without an instruction for them.

Code with `wgmma` or `tcgen05.mma` runs on few architectures. Code for others, as PTX that newer devices compile, has
`ldmatrix` and `mma.sync` on the same swizzled tiles: a warp multiplies 16 rows with all columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from nnefc.passes.schedule.cuda.swizzled_tile import SwizzledLayout
from nnefc.passes.schedule.cuda.warp_matrices import ELEMENTS, SUMS
from nnefc.targets.machine.cuda.capabilities import MATRIX_INSTRUCTIONS
from nnefc.targets.machine.gpu.description import LOAD_BYTES

__all__ = ["ProductTypes", "c_type", "portable_product"]

_PRODUCT = """\
  unsigned lane = threadIdx.x % 32, eighth = lane % 8, second = lane / 8 % 2;
  unsigned last = lane / 16, a[4], b[4];
  {read_left}
  #pragma unroll
  for (unsigned i = 0; i < {pairs}; ++i) {{
    unsigned position = {right_position}, depth = {right_depth};
    unsigned at = {right_address};
    {read_right}
    #pragma unroll
    for (unsigned j = 0; j < 2; ++j) {{
      {total} *own = sums + 8 * i + 4 * j;
      asm volatile (
          "mma.sync.aligned.m16n8k{depth}.row.col.{types}.{of_sums} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, "
          "{{%8, %9}}, {{%10, %11, %12, %13}};"
          : "={kind}"(own[0]), "={kind}"(own[1]), "={kind}"(own[2]), "={kind}"(own[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * j]), "r"(b[2 * j + 1]), "{kind}"(own[0]),
            "{kind}"(own[1]), "{kind}"(own[2]), "{kind}"(own[3]));
    }}
  }}"""
_READ_LEFT = """\
{{
    unsigned position = {position}, depth = {depth};
    unsigned at = {address};
    {read}
  }}"""
_KEPT_LEFT = """\
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) a[i] = left[i];"""
_READ = """\
asm volatile ("ldmatrix.sync.aligned.m8n8.x4{option}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
        : "=r"({to}[0]), "=r"({to}[1]), "=r"({to}[2]), "=r"({to}[3])
        : "r"(at ^ (at >> 7 & {mask}) << 4)
        : "memory");"""


@dataclass(frozen=True)
class ProductTypes:
    """The element types of a product's operands, and of its sums."""

    left: str
    right: str
    sums: str

    @property
    def depth(self) -> int:
        """Returns the products of each sum by one instruction."""
        return MATRIX_INSTRUCTIONS[self.left].depth

    @property
    def ptx(self) -> str:
        """Returns the types of the sums and of the operands, as instructions have them."""
        return f"{SUMS[self.sums][2]}.{ELEMENTS[self.left]}.{ELEMENTS[self.right]}"

    @property
    def name(self) -> str:
        """Returns what functions are called by; the types are mostly equal."""
        left, right = ELEMENTS[self.left], ELEMENTS[self.right]
        return left if left == right else f"{left}_{right}"


def c_type(dtype: str) -> dict[str, str]:
    """Returns the type of sums in C, and as an operand of assembly."""
    total, kind, _ = SUMS[dtype]
    return {"total": total, "kind": kind}


def portable_product(
    types: ProductTypes, columns: int, left: SwizzledLayout | None, right: SwizzledLayout, first_row: str
) -> str:
    """Returns statements in C that add the products of `types.depth` depths to the sums of a warp.

    They name `sums`, and `left_at` and `right_at`, where rows begin (`SwizzledLayout.rows_at`); without a layout of the
    left operand, `left`, its four registers.

    Args:
        columns: of the right operand's tile.
        first_row: the first of 16 rows of the warp in the left operand's tile, in C.
    """
    return _PRODUCT.format(
        **c_type(types.sums),
        types=types.ptx,
        of_sums=SUMS[types.sums][2],
        depth=types.depth,
        pairs=columns // (2 * MATRIX_INSTRUCTIONS[types.left].columns),
        read_left=_KEPT_LEFT if left is None else _read_left(left, first_row),
        right_position=_position(right, f"{2 * MATRIX_INSTRUCTIONS[types.left].columns} * i", "last"),
        right_depth=_depth(right, "second"),
        right_address=_address(right, "right_at"),
        read_right=_read(right, "b"),
    )


def _read_left(left: SwizzledLayout, first_row: str) -> str:
    return _READ_LEFT.format(
        position=_position(left, first_row, "second"),
        depth=_depth(left, "last"),
        address=_address(left, "left_at"),
        read=_read(left, "a"),
    )


def _position(side: SwizzledLayout, first: str, block: str) -> str:
    """Returns in C the position of the row of a block of 8 by 8 that a thread addresses."""
    return f"{first} + 8 * {block} + eighth" if side.along_depth else f"{first} + 8 * {block}"


def _depth(side: SwizzledLayout, block: str) -> str:
    return f"{side.lanes} * {block}" if side.along_depth else f"8 * {block} + eighth"


def _address(side: SwizzledLayout, first: str) -> str:
    """Returns in C the address of a vector as it would be without the swizzle, which is a function of this address."""
    row, lanes = side.row_vectors * LOAD_BYTES, side.lanes
    if side.along_depth:
        return f"{first} + {row} * position + depth / {lanes} * {side.leading_bytes}"
    group, vector = side.row_vectors * lanes, f"position % {side.row_vectors * lanes} / {lanes} * {LOAD_BYTES}"
    return f"{first} + position / {group} * {side.leading_bytes} + {row} * depth + {vector}"


def _read(side: SwizzledLayout, to: str) -> str:
    return _READ.format(option="" if side.along_depth else ".trans", to=to, mask=side.row_vectors - 1)
