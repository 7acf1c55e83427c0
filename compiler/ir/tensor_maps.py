"""Declares calls that represent tensor maps in kernels: the descriptors of tensors in device memory for bulk copies.

    nnefc_copy_box_3d(…, nnefc_tensor_map(3, &A[0], 768, 512, 1, 768, 393216, 64, 128, 1, 1, 1, 1, 8, 1), …)

A schedule writes such a call; the code generator replaces it by a parameter of the kernel, which the host encodes.
Sizes and strides may depend on dynamic dimensions. Copies of float32 round it to TF32 (to nearest, ties to even), which
tensor cores multiply; other elements are copied unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.ir.expr import Call

from nnefc.symbolic.dims import Dimension, dimension, expression

__all__ = ["TensorMap"]

_CALLED = "nnefc_tensor_map"


@dataclass(frozen=True)
class TensorMap:
    """A tensor of three to five dimensions, the contiguous one first, and the box that a copy fetches.

    Attributes:
        sizes: elements along each dimension.
        strides: along each dimension except for the first, in elements of the buffer.
        box: extents of the fetched box along each dimension, in elements, gaps of `steps` included.
        steps: from one fetched element to the next along each dimension, 1 to 8; 1 along the first.
        row_vectors: 16-byte vectors in a row of the box in shared memory, which are swizzled: 2, 4 or 8; 1: not
            swizzled, with rows of any length.
        joined: consecutive elements of the buffer that form one element of the tensor.
    """

    sizes: tuple[Dimension, ...]
    strides: tuple[Dimension, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    row_vectors: int
    joined: int = 1

    def call(self, first: tirx.Expr) -> tirx.Expr:
        """Return the call that represents the map of a tensor that begins at an element."""
        numbers = (*self.sizes, *self.strides, *self.box, *self.steps, self.row_vectors, self.joined)
        rank = tirx.const(len(self.sizes), "int32")
        return tirx.call_extern("handle", _CALLED, rank, tirx.address_of(first), *map(expression, numbers))

    @staticmethod
    def of(call: Call, size: Callable[[int | tirx.Expr], Dimension] = dimension) -> tuple[tirx.Expr, TensorMap] | None:
        """Return the first element and the map of such a call; None for other calls.

        Args:
            size: converts a size or a stride, and the other numbers.
        """
        if not call.op.same_as(tvm.ir.Op.get("tirx.call_extern")) or call.args[0].value != _CALLED:
            return None
        _, rank, address, *numbers = call.args
        fields = iter(map(size, numbers))
        sizes = tuple(next(fields) for _ in range(int(rank)))
        strides = tuple(next(fields) for _ in sizes[1:])
        box, steps = (tuple(int(next(fields)) for _ in sizes) for _ in range(2))
        return address.args[0], TensorMap(sizes, strides, box, steps, int(next(fields)), int(next(fields)))
