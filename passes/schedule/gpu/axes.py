"""Fuses axes of a computation into one index, from which a thread recovers its coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import tirx

from nnefc.passes.tir.common.expressions import linear_strides, loads_of, number, substituted, variables_of
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import may_exceed

__all__ = ["Axes"]


@dataclass(frozen=True)
class Axes:
    """Fuses some axes into one index; the last varies fastest: of y and x (3 values) it is `3 y + x`."""

    variables: tuple[tirx.Var, ...]
    sizes: tuple[Size, ...]

    @property
    def size(self) -> Size:
        """Returns the number of values of the fused index."""
        return math.prod(self.sizes)

    def is_fastest(self, var: tirx.Var) -> bool:
        """Whether an axis is the last of these."""
        return bool(self.variables) and var.same_as(self.variables[-1])

    def at(self, index: tirx.Expr, of: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        """Returns the values of the axes for a value of the fused index, split as far as the expression `of` needs.

        Divisions take time. Of y and x (3 values), the fused index being p:

            of = A[5 y + x]      y = p // 3, x = p % 3
            of = A[3 y + x]      y = 0, x = p                # the same position, and no division: one run of axes
        """
        values: dict[tirx.Var, tirx.Expr] = {}
        inner: Size = 1
        for run in reversed(self._runs(of)):
            digit = tirx.floordiv(index, number(inner)) if may_exceed(inner, 1) else index
            size = math.prod(self.sizes[position] for position in run)
            *others, last = (self.variables[position] for position in run)
            is_slowest = run[0] == 0
            values[last] = digit if is_slowest else tirx.floormod(digit, number(size))
            values |= {var: number(0) for var in others}
            inner *= size
        return values

    def _runs(self, of: tirx.Expr) -> list[list[int]]:
        """Returns the axes' positions, those together that an expression needs only as one."""
        offsets = [load.indices[0] for load in loads_of(of)]
        used_by_themselves = variables_of([_without_loads(of)])
        runs: list[list[int]] = []
        for position, var in enumerate(self.variables):
            pair = {var, *self.variables[max(0, position - 1) : position]}
            if runs and not pair & used_by_themselves and all(self._continues(offset, position) for offset in offsets):
                runs[-1].append(position)
            else:
                runs.append([position])
        return runs

    def _continues(self, offset: tirx.Expr, position: int) -> bool:
        """Whether the last value of an axis is followed in memory by the first one after the next step of the axis
        before it.
        """
        steps = linear_strides(offset, self.variables[position - 1 : position + 1])
        return steps is not None and steps[0] == steps[1] * self.sizes[position]


def _without_loads(expr: tirx.Expr) -> tirx.Expr:
    return substituted(expr, {}, lambda source, _: tirx.const(0, str(source.dtype)))
