"""Resolves the axis names of tract's documents."""

from __future__ import annotations

from collections.abc import Iterable

from nnefc.operators.base import Operand, rank_of
from nnefc.support.diagnostics import CompileError

__all__ = ["axes_of", "axis_of"]


def axis_of(axis: int, rank: int) -> int:
    """An axis, from the front; negative ones are from the end.

    Raises:
        CompileError: the tensor has no such axis.
    """
    if not -rank <= axis < rank:
        raise CompileError(f"there is no axis {axis}: the tensor has {rank} dimensions")
    return axis % rank


def axes_of(axes: Iterable[int], operand: Operand) -> tuple[int, ...]:
    """Axes of an operand in their order, from the front.

    Raises:
        CompileError: it has no such axis.
    """
    return tuple(sorted(axis_of(axis, rank_of(operand)) for axis in axes))
