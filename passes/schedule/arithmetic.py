"""How much arithmetic a kernel does."""

from __future__ import annotations

import tvm
from tvm import tirx

from nnefc.passes.schedule.schedules import open_sizes_of

__all__ = ["arithmetic_of"]


def arithmetic_of(kernel: tirx.PrimFunc) -> int:
    """Additions, multiplications and other operations of one call, of a kernel without a schedule; 0 where they depend
    on sizes known at run time, and of kernels written in vectors, which move data only."""
    if open_sizes_of(kernel):
        return 0
    try:
        return int(tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": kernel})))
    except (tvm.error.InternalError, ValueError, TypeError, OverflowError):
        return 0
