"""Divides by dynamic sizes with C's truncating division, where the dividend is never negative.

    floordiv(block * 64 + thread, w)      →      (block * 64 + thread) / w

TVM does so for constants, but does not know that sizes are positive: for others it would write code that looks at the
signs of both, for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm_ffi
from tvm import tirx
from tvm.ir import Range
from tvm.sym import Analyzer

from nnefc.ir.rebuild import with_fields

__all__ = ["use_truncating_division"]

_MAX = (1 << 31) - 1
_INDICES = ("int32", "int64")
_TRUNCATING = {tirx.FloorDiv: tirx.Div, tirx.FloorMod: tirx.Mod}


def use_truncating_division(func: tirx.PrimFunc, bounds: Mapping[tirx.Var, tuple[int, int]]) -> tirx.PrimFunc:
    """Returns a function of the device's; `bounds` are the smallest and the largest values of its parameters that are
    numbers.
    """
    analyzer = Analyzer()
    for var, (minimum, maximum) in bounds.items():
        _bind(analyzer, var, minimum, maximum)

    def note_loop(stmt: tirx.For) -> None:
        _bind(analyzer, stmt.loop_var, int(stmt.min) if isinstance(stmt.min, tirx.IntImm) else -_MAX, _MAX)

    def note_threads(stmt: tirx.AttrStmt) -> None:
        if isinstance(stmt.node, tirx.IterVar):
            _bind(analyzer, stmt.node.var, 0, _MAX)

    def note_value(stmt: tirx.Bind) -> None:
        if str(stmt.value.ty.dtype) in _INDICES:
            bound = analyzer.const_int_bound(stmt.value)
            _bind(analyzer, stmt.var, int(bound.min_value), int(bound.max_value))

    def truncating(expr: tirx.FloorDiv | tirx.FloorMod) -> tirx.Expr:
        if isinstance(expr.b, tirx.IntImm) or str(expr.ty.dtype) not in _INDICES:
            return expr
        dividend, divisor = (int(analyzer.const_int_bound(part).min_value) for part in (expr.a, expr.b))
        return expr if dividend < 0 or divisor < 0 else _TRUNCATING[type(expr)](expr.a, expr.b)

    tvm_ffi.structural_walk(func.body, (tirx.For, note_loop))  # first, for what surrounds a statement comes after it
    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, note_threads))
    tvm_ffi.structural_walk(func.body, (tirx.Bind, note_value))
    body = tvm_ffi.structural_map(func.body, (tuple(_TRUNCATING), truncating))
    return with_fields(func, body=body)


def _bind(analyzer: Analyzer, var: tirx.Var, minimum: int, maximum: int) -> None:
    if minimum > -_MAX:  # else nothing is known
        dtype = str(var.ty.dtype)
        analyzer.bind(var, Range(tirx.IntImm(dtype, minimum), tirx.IntImm(dtype, min(maximum, _MAX - 1) + 1)))
