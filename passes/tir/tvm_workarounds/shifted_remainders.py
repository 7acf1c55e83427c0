"""Hides two shifted remainders in one access, which TVM miscompiles for GPUs.

    C[i, j] = A[(i + 2) % 6, (j + 4) % 9]      becomes, with i and j fused into k, A[(k + 18) % 54]

Behaviour of TVM 0.27: `FlattenBuffer` simplifies the flat index by what it knows of the fused loop, and loses the
second shift. It knows nothing of operands that are converted to another type. They are converted instead of made opaque
so that GPUs compute indices in 32 bits: TVM's `NarrowDataType` does not narrow what a `reinterpret` hides.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.passes.tir.common.expressions import inside
from nnefc.symbolic.dims import is_size

__all__ = ["split_shifted_modulo"]

_PARTS = (tirx.FloorDiv, tirx.FloorMod)


def split_shifted_modulo(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel in which accesses with two remainders or quotients of shifted sums have converted
    operands.
    """
    return tvm_ffi.structural_map(func, (TensorLoad, _with_safe_indices))


def _with_safe_indices(load: TensorLoad) -> TensorLoad:
    if sum(map(_is_of_shifted, (part for index in load.indices for part in inside(index)))) < 2:
        return load
    return tirx.BufferLoad(load.source, [tvm_ffi.structural_map(index, (_PARTS, _hidden)) for index in load.indices])


def _hidden(index: tirx.FloorDiv | tirx.FloorMod) -> tirx.Expr:
    if not _is_of_shifted(index):
        return index
    dtype = str(index.a.expr_ty().dtype)
    other = "int32" if dtype == "int64" else "int64"
    return tirx.Cast(dtype, type(index)(tirx.Cast(other, index.a), tirx.Cast(other, index.b)))


def _is_of_shifted(expr: tirx.Expr) -> bool:
    """Whether an expression is a remainder or a quotient of a shifted sum; dynamic sizes do not matter."""
    return isinstance(expr, _PARTS) and _is_shifted(expr.a) and not is_size(expr)


def _is_shifted(expr: tirx.Expr) -> bool:
    """Whether an expression is a sum with a constant among its terms."""
    match expr:
        case tirx.Add() | tirx.Sub():
            return any(isinstance(side, tirx.IntImm) or _is_shifted(side) for side in (expr.a, expr.b))
    return False
