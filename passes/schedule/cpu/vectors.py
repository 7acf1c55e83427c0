"""Vectorizes loops over elements, and unrolls several vectors where each iteration would rebuild vector constants.

for i in 208: y[i] = exp(x[i])      →      for o in 13: for v in unrolled(4): y[o, v, :] = exp(x[o, v, :])
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.ir.expr import Call
from tvm.s_tir.schedule import LoopRV

from nnefc.passes.schedule.schedules import largest_divisor, trip_count
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, inside
from nnefc.targets.machine.cpu.target import Target

__all__ = ["in_vectors"]

_AT_ONCE = 4
"""The number of vectors in an iteration: with more, neither results nor constants stay in an engine's registers."""


def in_vectors(sch: s_tir.Schedule, loop: LoopRV, lanes: int, value: tirx.Expr | None, target: Target) -> LoopRV:
    """Splits a loop over a multiple of `lanes` elements into vectors, and returns the loop over them.

    Args:
        value: of an element; None where that is none.
    """
    count = 1
    if target.quirks.rebuilds_constants and value is not None and any(map(_takes_numbers, inside(value))):
        count = largest_divisor(trip_count(sch, loop) // lanes, _AT_ONCE)
    if count == 1:
        vectors, lane = sch.split(loop, [None, lanes])
    else:
        vectors, several, lane = sch.split(loop, [None, count, lanes])
        sch.unroll(several)
    sch.vectorize(lane)
    return vectors


def _takes_numbers(expr: tirx.Expr) -> bool:
    """Whether an expression has a float constant, or a function, which is computed with some."""
    is_function = isinstance(expr, Call) and getattr(expr.op, "name", "") not in IF_THEN_ELSE
    return is_function or isinstance(expr, tirx.FloatImm)
