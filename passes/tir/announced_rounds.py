"""The runtime told how many rounds a parallel loop has, so that it can cut the loop into pieces that threads share.

    for i in parallel(n):     →     nnefc_rounds(n)
        …                           for i in parallel(n):
                                        …

TVM makes a function of the loop, which gets the number of a task and the number of all tasks; what they are tasks of,
the runtime does not see.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

__all__ = ["with_announced_rounds"]


def with_announced_rounds(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A lowered kernel that says this before each of its parallel loops."""
    body = tvm_ffi.structural_map(func.body, (tirx.For, _announced))
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _announced(loop: tirx.For) -> tirx.Stmt:
    if loop.kind != tirx.ForKind.PARALLEL:
        return loop
    rounds = tirx.call_extern("int32", "nnefc_rounds", tirx.Cast("int64", loop.extent))
    return tirx.SeqStmt([tirx.Evaluate(rounds), loop])
