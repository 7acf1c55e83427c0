"""Makes parallel loops serial for single-threaded targets.

    for i in parallel(n): …     →     for i in range(n): …

This avoids the launch: packing the operands of the loop into memory, and calling a function.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields

__all__ = ["serialize_parallel_loops"]


def serialize_parallel_loops(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel without parallel loops."""

    def serial(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        return with_fields(loop, kind=tirx.ForKind.SERIAL)

    body = tvm_ffi.structural_map(func.body, (tirx.For, serial))
    return with_fields(func, body=body)
