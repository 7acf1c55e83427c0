"""Computes indices in 32 bits in kernels with dynamic dimensions, where TVM can prove that they fit.

    for i in range(n): B[i] = A[i]      →      for i: int32 in range(int32(n)): B[i] = A[i]

GPUs take several instructions for a 64-bit addition, and many for a division. Libraries for them refuse sizes for which
a tensor would have more elements than indices of 32 bits can count: see `MAX_ELEMENTS`.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields

__all__ = ["MAX_ELEMENTS", "narrow_index_types"]

MAX_ELEMENTS = 1 << 30
"""The maximum number of elements of a tensor; it leaves room in 32 bits for the indices of tiles beyond its end."""

_WIDE = ("int64", "uint64")
_NARROW = tirx.transform.ForceNarrowIndexToInt32()


def narrow_index_types(func: tirx.PrimFunc, sizes: Sequence[tirx.Var] = ()) -> tirx.PrimFunc:
    """Returns a kernel with 32-bit indices.

    A kernel that computes with int64 numbers beyond 32 bits, such as the smallest one, is unchanged, as is one with
    dynamic dimensions and tensors of wider integers.

    Args:
        func: its parameters are tensors.
        sizes: what it is written with that is known at run time, which stays int64 and is converted where it is used.
    """
    if _has_wide_numbers(func):  # TVM's pass refuses them, in values of elements too
        return func
    if not sizes:
        return _NARROW(tvm.IRModule({"main": func}))["main"]
    if any(str(tensor.dtype) in _WIDE for tensor in (*func.params, *func.body.block.alloc_buffers)):
        return func
    given = with_fields(func, params=[*func.params, *sizes])
    narrow = _NARROW(tvm.IRModule({"main": given}))["main"]
    own = narrow.params[len(func.params) :]
    return narrow.specialize({var: tirx.Cast("int32", size) for var, size in zip(own, sizes, strict=True)})


def _has_wide_numbers(func: tirx.PrimFunc) -> bool:
    found: list[tirx.IntImm] = []
    tvm_ffi.structural_walk(func.body, (tirx.IntImm, found.append))
    return any(str(number.ty.dtype) == "int64" and not -(1 << 31) <= int(number) < 1 << 31 for number in found)
