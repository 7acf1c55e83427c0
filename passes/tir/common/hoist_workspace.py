"""Makes the buffers that a scheduled kernel allocates for the time of a whole call parameters of the kernel.

    kernel(A, C):                              kernel(A, C, B):
        B = alloc_buffer                  →        B[…] = …
        B[…] = …                                   C[…] = f(B)
        C[…] = f(B)

The memory plan provides what they need, the kernel's workspace. Allocations are in the block that uses them already.
"""

from __future__ import annotations

from tvm import s_tir, tirx

__all__ = ["hoist_workspace"]


def hoist_workspace(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, list[tirx.Var]]:
    """Returns the kernel with the buffers that live as long as a call as its last parameters, and these buffers."""
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
