"""Loads every second element of a row as two contiguous vectors and a shuffle.

    x[ramp(i, 2, 8)]    →    shuffle(x[i : i + 8], x[i + 7 : i + 15], (0, 2, 4, 6, 9, 11, 13, 15))

TVM would load the lanes one by one. The second vector ends with the last lane, so that nothing beyond it is read.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

__all__ = ["shuffle_strided_loads"]


def shuffle_strided_loads(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function whose loops are vectorized, with such loads."""
    return tvm_ffi.structural_map(func, (TensorLoad, _shuffled))


def _shuffled(load: TensorLoad) -> tirx.Expr:
    (index,) = load.indices
    if not isinstance(index, tirx.Ramp) or str(load.source.dtype) == "bool":
        return load
    if not isinstance(index.stride, tirx.IntImm) or int(index.stride) != 2:
        return load
    lanes = int(index.lanes)
    if lanes % 2:
        return load
    dtype = str(index.base.expr_ty().dtype)

    def vector(offset: int) -> tirx.Expr:
        first = index.base + tirx.IntImm(dtype, offset)
        return tirx.BufferLoad(load.source, [tirx.Ramp(first, tirx.IntImm(dtype, 1), lanes)])

    order = [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)]
    return tirx.Shuffle([vector(0), vector(lanes - 1)], order)
