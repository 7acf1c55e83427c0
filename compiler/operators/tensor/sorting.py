"""Top-k: the largest or smallest elements along a dimension, with their indices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.dtypes import is_float, numpy_dtype
from nnefc.operators.statements import T, each, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, bounds, expression, known_less, size_hint
from nnefc.symbolic.unification import covers

__all__ = ["TopK"]


@dataclass(frozen=True)
class TopK(Operator):
    """The `k` largest elements along a dimension in descending order, and their positions in int64.

    Of equal elements the first comes first. NaN is larger than all others, as in NumPy and PyTorch.

    Attributes:
        axis: the dimension.
        k: how many.
        largest: whether they are the largest, else the smallest in ascending order.
    """

    axis: int
    k: Dimension
    largest: bool = True

    def shape(self, x: Shape) -> tuple[Shape, Shape]:
        """Return the shape with the size `k` along the axis, twice."""
        if known_less(self.k, 0) or not covers(x[self.axis], self.k):
            raise CompileError(f"there are no {self.k} elements along a dimension of {x[self.axis]}")
        result = (*x[: self.axis], self.k, *x[self.axis + 1 :])
        return result, result

    def lower(self, ctx: Emitter, x: Operand) -> tuple[Operand, ...]:
        shape, dtype, k = shape_of(x), dtype_of(x), self.k
        result, _ = self.shape(shape)
        if is_empty(result):
            return zeros(result, numpy_dtype(dtype)), zeros(result, np.int64)
        size, stride = shape[self.axis], math.prod(shape[self.axis + 1 :])
        lines = math.prod(shape) // size

        def write(x: Any, values: Any, indices: Any) -> None:
            """A heap of k elements, whose root comes last of them, takes elements that come before its root; then it is
            emptied from its root on, into the positions behind it."""
            with each(lines, lines * size * max(1, size_hint(k).bit_length())) as line:
                base = T.bind(tirx.floordiv(line, stride) * (size * stride) + tirx.floormod(line, stride))
                first = T.bind(tirx.floordiv(line, stride) * (k * stride) + tirx.floormod(line, stride))
                heap = _Heap(values, indices, first, stride, k, self.largest)
                count = expression(k)
                with T.serial(0, count) as i:
                    heap.store(i, x[base + i * stride], i)
                if bounds(k)[1] > 1:
                    with T.serial(0, tirx.floordiv(count, 2)) as i:
                        node = T.bind(tirx.floordiv(count, 2) - 1 - i)
                        heap.sink(node, count, *heap.item(node))
                tail = expression(size - k)
                if bounds(k)[0] < 1:  # a heap of no elements has no root
                    tail = tirx.Select(count > 0, tail, _int64(0))
                with T.serial(0, tail) as i:
                    element = T.bind(x[base + (count + i) * stride])
                    goes_in = T.bind(heap.ahead(element, heap.item(_int64(0))[0]))
                    with T.If(goes_in), T.Then():
                        heap.sink(_int64(0), count, element, count + i)
                if bounds(k)[1] > 1:
                    with T.serial(0, tirx.max(count - 1, _int64(0))) as i:
                        last = T.bind(count - 1 - i)
                        element, position = heap.item(last)
                        heap.store(last, *heap.item(_int64(0)))
                        heap.sink(_int64(0), last, element, position)

        return looped(ctx, write, [x], [(result, dtype), (result, "int64")], "top_k")


def _int64(value: int) -> tirx.Expr:
    return tirx.const(value, "int64")


@dataclass(frozen=True, eq=False)
class _Heap:
    """A binary heap of elements and their positions, at indices `first + node · stride` of two buffers.

    The children of a node come before it.

    Attributes:
        values, indices: the buffers.
        first, stride: where the nodes are.
        maximum: max number of nodes.
        largest: whether larger elements come before others.
    """

    values: Any
    indices: Any
    first: Any
    stride: Dimension
    maximum: Dimension
    largest: bool

    def ahead(self, a: Any, b: Any) -> Any:
        """Returns whether an element comes before another because it is larger, or smaller."""
        first, second = (a, b) if self.largest else (b, a)
        if not is_float(str(a.ty)):
            return first > second
        return tirx.any(first > second, tirx.all(tirx.isnan(first), tirx.Not(tirx.isnan(second))))

    def item(self, node: Any) -> tuple[Any, Any]:
        """The element and the position of a node, as they are now."""
        index = self.first + node * self.stride
        return T.bind(self.values[index]), T.bind(self.indices[index])

    def store(self, node: Any, element: Any, position: Any) -> None:
        """Let a node have an element and its position."""
        index = self.first + node * self.stride
        self.values[index] = element
        self.indices[index] = position

    def _behind(self, one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
        """Returns whether an element comes after another."""
        earlier = tirx.all(tirx.Not(self.ahead(one[0], other[0])), one[1] > other[1])
        return tirx.any(self.ahead(other[0], one[0]), earlier)

    def sink(self, node: Any, count: Any, element: Any, position: Any) -> None:
        """Put an element into the heap of `count` nodes, at a node or below it; children that come after it move up."""
        here = T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))
        here[0] = node
        depth = bounds(self.maximum)[1].bit_length()
        if depth > 1:  # what breaks a loop of one iteration would break the one around
            with T.serial(0, depth):
                child = T.bind(here[0] * 2 + 1)
                with T.If(child >= count), T.Then():
                    T.evaluate(tirx.break_loop())
                second = T.bind(tirx.min(child + 1, count - 1))
                one, other = self.item(child), self.item(second)
                is_second = T.bind(self._behind(other, one))
                moved = tuple(T.bind(tirx.Select(is_second, b, a)) for a, b in zip(one, other, strict=True))
                stays = T.bind(tirx.Not(self._behind(moved, (element, position))))
                with T.If(stays), T.Then():
                    T.evaluate(tirx.break_loop())
                self.store(here[0], *moved)
                here[0] = tirx.Select(is_second, second, child)
        self.store(here[0], element, position)
