"""Builds matrix products by outer products, of a packed constant right factor: the kernels of `SME` on Arm.

    y = matmul(x, W)     →     y = multiply_outer(pack_rows(x), pack(W))

Axes of the left factor before its last two are rows too.
"""

from __future__ import annotations

import math

from tvm import relax

from nnefc.ir.kernel_calls import emit_te
from nnefc.passes.compute.outer_products import multiply_outer, pack_rows, takes_outer_products
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import shape_of
from nnefc.symbolic.dims import element_count
from nnefc.targets.machine.cpu.target import Target

__all__ = ["is_by_outer_products", "multiply_by_outer_products"]


def is_by_outer_products(left: relax.Expr, dtype: str, columns: int, target: Target) -> bool:
    """Whether a product with a constant right factor of this type takes less time by outer products than by vectors."""
    *rows, depth = shape_of(left)
    return takes_outer_products(target, (str(left.ty.dtype), dtype), element_count(rows), depth, columns)


def multiply_by_outer_products(
    builder: relax.BlockBuilder, left: relax.Expr, packed: relax.Expr, columns: int, types: tuple[str, str]
) -> relax.Expr:
    """Multiplies by outer products; the result has as many axes as the left factor.

    Args:
        left: numbers of 32 bits: float32, or four bytes of a row each.
        packed: blocks of the right factor, in the same numbers.
        columns: of the right factor.
        types: of the factors before they were packed.
    """
    *outer, depth = shape_of(left)
    rows = math.prod(map(int, outer))
    flat = left if len(outer) == 1 else builder.emit(relax.op.reshape(left, (rows, depth)))
    panels = emit_te(builder, pack_rows, flat, name="pack_rows")
    product = emit_te(
        builder,
        lambda a, b: multiply_outer(a, b, rows, columns, types),
        panels,
        packed,
        name="matmul",
        attrs={FUSION: OpPattern.OPAQUE},
    )
    return product if len(outer) == 1 else relax.op.reshape(product, (*outer, columns))
