"""The buffers that a scheduled kernel allocates for the time of a whole call, as parameters of it.

    kernel(A, C):                              kernel(A, C, B):
        B = alloc_buffer                  →        B[…] = …
        B[…] = …                                   C[…] = f(B)
        C[…] = f(B)

The memory plan provides what they need, the kernel's workspace.
"""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

__all__ = ["with_workspace_parameters"]

_PLACE_BUFFERS = tvm.ir.transform.Sequential(
    [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
    ]
)


def with_workspace_parameters(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, list[tirx.Var]]:
    """The kernel with each buffer allocated where it is needed, and those that live as long as the call as parameters.

    Returns:
        The kernel, and the last ones of its parameters, which are these buffers.
    """
    func = _PLACE_BUFFERS(tvm.IRModule({"main": func}))["main"]
    root = func.body
    block = root.block
    buffers = list(block.alloc_buffers)
    if not buffers:
        return func, []
    emptied = s_tir.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, block.body, block.init, [], block.match_buffers,
        block.annotations,
    )  # fmt: skip
    body = s_tir.SBlockRealize(root.iter_values, root.predicate, emptied)
    return tirx.PrimFunc([*func.params, *buffers], body, func.ret_type, func.attrs), buffers
