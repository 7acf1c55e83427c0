"""Returns extents of loops, and shapes and element counts of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import tirx

from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import Dimension as Size
from nnefc.symbolic.dims import dimension as size_of

__all__ = ["Size", "elements_of", "size_of", "sizes_of", "strides_of", "tensor_bytes"]


def sizes_of(tensor: tirx.Var) -> tuple[Size, ...]:
    """Returns the shape of a tensor."""
    return tuple(map(size_of, tensor.shape[:]))


def elements_of(tensor: tirx.Var) -> Size:
    """Returns the number of elements of a tensor."""
    return math.prod(sizes_of(tensor))


def tensor_bytes(tensor: tirx.Var) -> Size:
    """Returns the size of a tensor in bytes."""
    return elements_of(tensor) * element_bytes(str(tensor.dtype))


def strides_of(sizes: Sequence[Size]) -> list[Size]:
    """Returns the row-major strides of a shape, in elements."""
    return [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
