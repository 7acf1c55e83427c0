"""Converts between row-major and blocked layout: by a computation that fuses, or by transposing tiles in registers.

For bytes, and for int8 contractions, transposing tiles gains more than fusion.
"""

from __future__ import annotations

import math

from tvm import relax, topi

from nnefc.ir.attributes import SAME_BYTES
from nnefc.ir.kernel_calls import emit_te
from nnefc.passes.compute.blocked import block, blocks, unblock
from nnefc.passes.compute.transposition import POSITIONS, transpose_to_blocks, transpose_to_row_major
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import shape_of
from nnefc.symbolic.dims import expression, may_exceed

__all__ = ["seen_as", "to_blocks", "to_row_major"]

_TRANSPOSED = ("uint8", "int8", "int16", "int32")
_ALONE = {FUSION: OpPattern.OPAQUE}


def to_blocks(builder: relax.BlockBuilder, data: relax.Expr, size: int, by_rows: bool = False) -> relax.Var:
    """`[N, C, *spatial]` → `[N, blocks, *spatial, size]`.

    Args:
        by_rows: whether rows shall be computable alone: no vectors that go on from row to row.
    """
    batch, channels, *spatial = shape_of(data)
    positions = math.prod(spatial)
    if by_rows or not _has_tiles(data, positions, size):
        return emit_te(builder, lambda t: block(t, size), data, name="block")
    flat = seen_as(builder, data, (batch * channels * positions,))
    moved = emit_te(
        builder,
        lambda t: transpose_to_blocks(t, batch, channels, positions, size),
        flat,
        name="block",
        attrs=_ALONE,
    )
    return seen_as(builder, moved, (batch, blocks(channels, size), *spatial, size))


def to_row_major(builder: relax.BlockBuilder, data: relax.Expr, channels: int, by_elements: bool = False) -> relax.Var:
    """Returns the reverse of :func:`to_blocks`.

    Args:
        by_elements: whether elements are moved one by one, as threads of a GPU do, and not by tiles in vectors.
    """
    batch, outer, *spatial, size = shape_of(data)
    positions = math.prod(spatial)
    if by_elements or not _has_tiles(data, positions, size):
        return emit_te(builder, lambda t: unblock(t, channels), data, name="unblock")
    flat = seen_as(builder, data, (batch * outer * positions * size,))
    moved = emit_te(
        builder,
        lambda t: transpose_to_row_major(t, batch, channels, positions, size),
        flat,
        name="unblock",
        attrs=_ALONE,
    )
    return seen_as(builder, moved, (batch, channels, *spatial))


def seen_as(builder: relax.BlockBuilder, data: relax.Expr, shape: tuple[int, ...]) -> relax.Var:
    """Views the same bytes in another shape, without fusing the view with other computations, whose indices it would
    complicate.
    """
    return emit_te(
        builder,
        lambda t: topi.reshape(t, [expression(size) for size in shape]),
        data,
        name="view",
        attrs={**_ALONE, SAME_BYTES: True},
    )


def _has_tiles(data: relax.Expr, positions: int, size: int) -> bool:
    return str(data.ty.dtype) in _TRANSPOSED and not may_exceed(POSITIONS, positions) and size in (2, 4, 8, 16, 32, 64)
