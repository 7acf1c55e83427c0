"""Hide where tiled axes end from passes that would solve inequalities for it.

    if 14 * i + r < e: C[14 * i + r] = c[r]       →       if opaque(14 * i + r < e): C[14 * i + r] = c[r]

TVM looks for the places that each such condition leaves of a kernel's own tensors, for every access under it: half of
the time in which these get their sizes. They have room for whole tiles, whatever the end is. Rows in whole vectors,
which have no smaller tiles, are left alone: there the end says how much of a tensor is used.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.expressions import variables_of
from nnefc.passes.tir.remainders import tiled_axes
from nnefc.passes.tir.tvm_workarounds.opaque import opaque, visible

__all__ = ["with_ends_shown", "without_ends"]


def without_ends(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled kernel whose statements do not show that conditions are about the ends of its tiled axes."""
    ends = {axis.end for axis in tiled_axes(func) if axis.remainders}

    def hidden(stmt: tirx.IfThenElse) -> tirx.IfThenElse:
        if not ends & variables_of([stmt.condition]):
            return stmt
        return tirx.IfThenElse(opaque(stmt.condition), stmt.then_case, stmt.else_case)

    return tvm_ffi.structural_map(func, (tirx.IfThenElse, hidden)) if ends else func


def with_ends_shown(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with these conditions again."""
    return tvm_ffi.structural_map(func, (tirx.IfThenElse, _shown)) if tiled_axes(func) else func


def _shown(stmt: tirx.IfThenElse) -> tirx.IfThenElse:
    condition = visible(stmt.condition)
    return stmt if condition is stmt.condition else tirx.IfThenElse(condition, stmt.then_case, stmt.else_case)
