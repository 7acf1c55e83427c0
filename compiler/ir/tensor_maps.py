"""Declares calls that stand in kernels for tensor maps: what bulk copies know of a tensor in device memory.

    nnefc_copy_box(…, nnefc_tensor_map(&A[0], 768, 512, 1, 768, 393216, 64, 128, 1, 8), …)

A schedule writes such a call; the code generator replaces it by an argument of the kernel, which the host encodes.
Sizes and strides may depend on dynamic dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.ir.expr import Call

from nnefc.symbolic.dims import Dimension, dimension, expression

__all__ = ["TensorMap"]

_CALLED = "nnefc_tensor_map"


@dataclass(frozen=True)
class TensorMap:
    """A tensor of three dimensions, that whose elements are neighbours first, and the box that one copy fetches of it.

    Attributes:
        sizes: elements along each dimension.
        strides: elements from one to the next along the second and the third.
        box: elements along each dimension.
        row_vectors: vectors of 16 bytes in a row of the box in shared memory, which are swizzled: 2, 4 or 8.
    """

    sizes: tuple[Dimension, Dimension, Dimension]
    strides: tuple[Dimension, Dimension]
    box: tuple[int, int, int]
    row_vectors: int

    def call(self, first: tirx.Expr) -> tirx.Expr:
        """Returns what stands for the map of a tensor that begins at an element."""
        numbers = (*self.sizes, *self.strides, *self.box, self.row_vectors)
        return tirx.call_extern("handle", _CALLED, tirx.address_of(first), *map(expression, numbers))

    @staticmethod
    def of(call: Call) -> tuple[tirx.Expr, TensorMap] | None:
        """Returns the first element, and the map; None for other calls."""
        if not call.op.same_as(tvm.ir.Op.get("tirx.call_extern")) or call.args[0].value != _CALLED:
            return None
        _, address, *numbers = call.args
        x, y, z, by_y, by_z, *of_box = map(dimension, numbers)
        width, height, length, row_vectors = map(int, of_box)
        return address.args[0], TensorMap((x, y, z), (by_y, by_z), (width, height, length), row_vectors)
