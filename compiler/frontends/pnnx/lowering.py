"""Emitter of PNNX lowerings: operands, constants and one Relax dataflow block."""

from __future__ import annotations

from typing import Any, TypeAlias

from tvm import relax

from nnefc.operators.base import Array, Emitter, Operand, Shape, dtype_of, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.support.diagnostics import CompileError

__all__ = [
    "MAX_LIST_ELEMENTS",
    "Array",
    "Lowering",
    "Shape",
    "Tensor",
    "check_list",
    "dtype_of",
    "rank_of",
    "shape_of",
]

MAX_LIST_ELEMENTS = 4096
"""Elements of a list or tuple, including those of the lists in it: each may be a tensor, and a kernel."""

_MAX_NESTED = 16
"""Lists inside each other."""

Tensor: TypeAlias = Operand
"""A tensor while lowering: an array if its value stands in the file, else a Relax expression."""


def check_list(value: Any) -> None:
    """Check that a list is not too large or too deep; a list may hold one that it is made of many times over.

    Raises:
        CompileError: it is.
    """
    waiting, count = [(value, 0)], 0
    while waiting:
        element, depth = waiting.pop()
        count += 1
        if count > 1 + MAX_LIST_ELEMENTS:
            raise CompileError(f"a list has more than {MAX_LIST_ELEMENTS} elements, including those of the lists in it")
        if depth > _MAX_NESTED:
            raise CompileError(f"lists are nested deeper than {_MAX_NESTED}")
        if isinstance(element, tuple):
            waiting += [(inner, depth + 1) for inner in element[: 1 + MAX_LIST_ELEMENTS]]


class Lowering(Emitter):
    """The state while a network becomes one Relax function; `hint` is the operator's name.

    Attributes:
        results: how many results the operator at hand has in the file.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        super().__init__(builder)
        self.results = 1

    def convert(self, tensor: Tensor, dtype: str) -> Operand:
        """The tensor in another element type, reals cut off towards zero where they become integers."""
        return self.expr(Cast(dtype).lower(self, self.expr(tensor)))
