"""Hides conditions on the ends of tiled axes while TVM computes the sizes of a kernel's local tensors.

    if 14 * i + r < e: C[14 * i + r] = c[r]       →       if opaque(14 * i + r < e): C[14 * i + r] = c[r]

Behaviour of TVM 0.27: `CompactBufferAllocation` solves the inequality of each condition around an access for the region
that the access reads or writes. That takes half of the time of the pass, and a tensor of a tile gets more elements than
the tile has. Rows in full vectors, which have no tail tiles, are left alone: there the end says how much of a tensor is
used.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.common.expressions import variables_of
from nnefc.passes.tir.common.peel_tail_tiles import tiled_axes
from nnefc.passes.tir.tvm_workarounds.opaque import opaque, visible

__all__ = ["hide_bounds", "show_bounds"]


def hide_bounds(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel whose conditions on the ends of its tiled axes are opaque."""
    ends = {axis.end for axis in tiled_axes(func) if axis.remainders}

    def hidden(stmt: tirx.IfThenElse) -> tirx.IfThenElse:
        if not ends & variables_of([stmt.condition]):
            return stmt
        return tirx.IfThenElse(opaque(stmt.condition), stmt.then_case, stmt.else_case)

    return tvm_ffi.structural_map(func, (tirx.IfThenElse, hidden)) if ends else func


def show_bounds(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns the kernel with these conditions visible again."""
    return tvm_ffi.structural_map(func, (tirx.IfThenElse, _shown)) if tiled_axes(func) else func


def _shown(stmt: tirx.IfThenElse) -> tirx.IfThenElse:
    condition = visible(stmt.condition)
    return stmt if condition is stmt.condition else tirx.IfThenElse(condition, stmt.then_case, stmt.else_case)
