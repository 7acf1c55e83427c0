"""Sizes that are known at run time, as the items of a tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from nnefc.operators.base import Emitter, Operator, Shape
from nnefc.sizes import dimension, expression, substituted, variables

__all__ = ["SizeValues"]


@dataclass(frozen=True, eq=False)
class SizeValues(Operator):
    """A tensor whose items are numbers and sizes, written by a kernel that has the sizes as arguments.

    Attributes:
        items: an array of objects: numbers and `Size`s.
        dtype: the integer type of the tensor.
    """

    items: npt.NDArray[np.object_]
    dtype: str

    def shape(self) -> Shape:
        """That of the array."""
        return self.items.shape

    def lower(self, at: Emitter) -> relax.Expr:
        """A computation without operands."""
        items = list(map(expression, self.items.reshape(-1).tolist()))
        used = list(dict.fromkeys(var for item in items for var in variables(item)))

        def compute(*given: tirx.Var) -> te.Tensor:
            here = {var: dimension(own) for var, own in zip(used, given, strict=True)}
            own = [expression(substituted(dimension(item), here)) for item in items]
            return te.compute(self.shape(), lambda *index: self._item(own, index), name="sizes")

        return at.builder.call_te(compute, *used, primfunc_name_hint="sizes")

    def _item(self, items: list[tirx.Expr], index: tuple[tirx.Var, ...]) -> tirx.Expr:
        """The one at a position: the first whose number is that of the position."""
        number: tirx.Expr = tirx.IntImm("int64", 0)
        for axis, place in enumerate(index):
            number += place * math.prod(self.shape()[axis + 1 :])
        chosen = items[-1]
        for other in reversed(range(len(items) - 1)):
            chosen = tirx.Select(number == other, items[other], chosen)
        return chosen.astype(self.dtype)
