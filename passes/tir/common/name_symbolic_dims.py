"""Binds dynamic dimension expressions of a kernel to variables: TVM knows more of a variable than of an expression.

for y in (h - 1) // 2 + 1: C[y] = A[2 * y]     →     for y in s: C[y] = A[2 * y]          # s = (h - 1) // 2 + 1
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm_ffi
from tvm import tirx

from nnefc.ir.attributes import LET_BOUND_DIMENSIONS
from nnefc.passes.tir.common.expressions import loads_of, variables_of
from nnefc.symbolic.dims import Size, expression, named

__all__ = ["name_loop_extents", "name_symbolic_dims", "named_sizes"]


def name_symbolic_dims(func: tirx.PrimFunc, sizes: Mapping[tirx.Var, tirx.Expr]) -> tirx.PrimFunc:
    """Returns a kernel with variables for the dynamic dimension expressions in the shapes of its tensors."""
    before = dict(named_sizes(func))
    return func.with_attr(LET_BOUND_DIMENSIONS, [[var, size] for var, size in {**before, **sizes}.items()])


def named_sizes(func: tirx.PrimFunc) -> list[tuple[tirx.Var, tirx.Expr]]:
    """Returns the variables of a kernel that stand for size expressions, with these expressions."""
    return [(var, size) for var, size in func.attrs.get(LET_BOUND_DIMENSIONS, ())] if func.attrs else []


def name_loop_extents(func: tirx.PrimFunc, *, every: bool = False) -> tirx.PrimFunc:
    """Returns a kernel with variables for the extents of loops that contain quotients.

    Extents that vary with an outer loop, or are read from tensors, are not dimensions.

    Args:
        every: whether other formulas get variables too: less is known of them then, and TVM cannot trip over them.
    """
    found: list[tuple[tirx.Var, tirx.Expr]] = []
    inside: set[tirx.Var] = set()

    def define(stmt: tirx.For | tirx.Bind) -> None:
        inside.add(stmt.loop_var if isinstance(stmt, tirx.For) else stmt.var)

    def note(loop: tirx.For) -> None:
        size = loop.extent
        if inside & variables_of([size]) or loads_of(size):
            return
        is_formula = not isinstance(size, (tirx.Var, tirx.IntImm)) if every else _has_quotient(size)
        if is_formula and not any(tvm_ffi.structural_equal(size, other) for _, other in found):
            found.append((expression(named("s", Size(size))), size))

    def change(expr: tirx.Expr) -> tirx.Expr:
        return next((var for var, size in found if tvm_ffi.structural_equal(expr, size)), expr)

    tvm_ffi.structural_walk(func.body, ((tirx.For, tirx.Bind), define))
    tvm_ffi.structural_walk(func.body, (tirx.For, note))
    if not found:
        return func
    kinds = tuple(dict.fromkeys(type(size) for _, size in found))
    return name_symbolic_dims(tvm_ffi.structural_map(func, (kinds, change)), dict(found))


def _has_quotient(expr: tirx.Expr) -> bool:
    found: list[object] = []

    def note(node: object) -> None:
        found.append(node)

    tvm_ffi.structural_walk(expr, (tirx.FloorDiv, note))
    return bool(found)
