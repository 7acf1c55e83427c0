"""Splits loops over pairs of quads into those over direct pairs, folded pairs, and pairs apart.

                                                  for p in d: S += quad_pair(…, True, True)
for p in n: S += quad_pair(…, p < d, p < j)   →   for p in d … j: S += quad_pair(…, False, True)
                                                  for p in j … n: S += quad_pair(…, False, False)
"""

from __future__ import annotations

from itertools import pairwise

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import is_number
from nnefc.passes.tir.common.lower_kernel import with_values
from nnefc.passes.tir.common.statements import renewed
from nnefc.passes.tir.dot.dot_instructions import is_quad_pair, quad_pair

__all__ = ["partition_quad_pairs"]


def partition_quad_pairs(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statements of a flat kernel with such loops split."""
    return tvm_ffi.structural_map(stmt, (tirx.For, _split))


def _split(loop: tirx.For) -> tirx.Stmt:
    limits = _limits(loop)
    if limits is None or not is_number(loop.min, 0) or not isinstance(loop.extent, tirx.IntImm):
        return loop
    bounds, parts = [0, *limits, int(loop.extent)], []
    for kind, (first, end) in enumerate(pairwise(bounds)):
        if first == end:
            continue
        var = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
        body = renewed(_decided(with_values(loop.body, {loop.loop_var: var}), kind == 0, kind < 2))
        start, extent = (tirx.const(n, loop.loop_var.expr_ty().dtype) for n in (first, end - first))
        parts.append(with_fields(loop, loop_var=var, min=start, extent=extent, body=body))
    return parts[0] if len(parts) == 1 else tirx.SeqStmt(parts)


def _limits(loop: tirx.For) -> tuple[int, int] | None:
    """Returns up to which iteration pairs are direct, and up to which they are added up in int16; None for other
    loops."""
    found: list[tuple[int, int]] = []

    def note(call: tvm.ir.Call) -> None:
        conditions = call.args[4:] if is_quad_pair(call) else []
        if conditions and all(isinstance(c, tirx.LT) and c.a.same_as(loop.loop_var) for c in conditions):
            found.append((int(conditions[0].b), int(conditions[1].b)))

    tvm_ffi.structural_walk(loop.body, (tvm.ir.Call, note))
    return found[0] if found else None


def _decided(stmt: tirx.Stmt, is_direct: bool, is_joined: bool) -> tirx.Stmt:
    flags = [tirx.const(flag, "bool") for flag in (is_direct, is_joined)]

    def change(call: tvm.ir.Call) -> tirx.Expr:
        return quad_pair(*call.args[:4], *flags) if is_quad_pair(call) else call

    return tvm_ffi.structural_map(stmt, (tvm.ir.Call, change))
