"""The largest or smallest items."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.agreement import covers
from nnefc.diagnostics import CompileError
from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.dtypes import numpy_dtype
from nnefc.operators.statements import T, each, looped
from nnefc.sizes import Dimension, bounds, expression, is_known, known_less, typical

__all__ = ["TopK"]


@dataclass(frozen=True)
class TopK(Operator):
    """The `k` largest items along a dimension in descending order, and their positions in int64.

    Of equal items the first comes first.

    Attributes:
        axis: the dimension.
        k: how many.
        largest: whether they are the largest, else the smallest in ascending order.
    """

    axis: int
    k: Dimension
    largest: bool = True

    def shape(self, x: Shape) -> tuple[Shape, Shape]:
        """With `k` positions along the dimension."""
        if known_less(self.k, 0) or not covers(x[self.axis], self.k):
            raise CompileError(f"there are no {self.k} items along a dimension of {x[self.axis]}")
        result = (*x[: self.axis], self.k, *x[self.axis + 1 :])
        return result, result

    def lower(self, at: Emitter, x: Operand) -> tuple[Operand, ...]:
        shape, dtype, k = shape_of(x), dtype_of(x), self.k
        result, _ = self.shape(shape)
        if is_empty(result):
            return zeros(result, numpy_dtype(dtype)), zeros(result, np.int64)
        size, stride = shape[self.axis], math.prod(shape[self.axis + 1 :])
        lines = math.prod(shape) // size

        def ahead(a: Any, b: Any) -> Any:
            return a > b if self.largest else a < b

        def write(x: Any, values: Any, indices: Any) -> None:
            """Insertion into a sorted list of k items, of which the last falls out."""
            with each(lines, lines * size * max(1, typical(k).bit_length())) as line:
                base = tirx.floordiv(line, stride) * (size * stride) + tirx.floormod(line, stride)
                sink = tirx.floordiv(line, stride) * (k * stride) + tirx.floormod(line, stride)
                items = expression(size)
                if bounds(k)[0] < 1:  # a list of no items has no last one
                    items = tirx.Select(expression(k) > 0, items, tirx.const(0, "int64"))
                with T.serial(0, items) as i:
                    item = x[base + i * stride]
                    last = sink + (k - 1) * stride
                    with T.If(tirx.any(i < k, ahead(item, values[last]))), T.Then():
                        _insert(values, indices, item, i, sink, stride, k, ahead)

        return looped(at, write, [x], [(result, dtype), (result, "int64")], "top_k")


def _insert(
    values: Any, indices: Any, item: Any, i: Any, sink: Any, stride: int, k: Dimension, ahead: Callable[[Any, Any], Any]
) -> None:
    """Move up from the end of the list past all items that come after this one."""
    filled = tirx.min(i, expression(k - 1))
    with T.serial(0, expression(k)) as step:
        at = filled - step
        before = sink + tirx.max(at - 1, tirx.const(0, "int64")) * stride
        moves = tirx.all(at > 0, ahead(item, values[before]))
        here = sink + tirx.max(at, tirx.const(0, "int64")) * stride
        with T.If(tirx.all(at >= 0, moves)):
            with T.Then():
                values[here] = values[before]
                indices[here] = indices[before]
            with T.Else(), T.If(at >= 0), T.Then():
                values[here] = item
                indices[here] = i.astype("int64")
                # a loop of one iteration is none after simplification: this would leave the one around
                if not is_known(k) or k > 1:
                    T.evaluate(tirx.break_loop())
