"""Makes the buffers that a scheduled kernel allocates for the time of a whole call parameters of the kernel.

    kernel(A, C):                              kernel(A, C, B):
        B = alloc_buffer                  →        B[…] = …
        B[…] = …                                   C[…] = f(B)
        C[…] = f(B)

The memory plan provides what they need, the kernel's workspace. Allocations are in the block that uses them already.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from nnefc.ir.rebuild import with_fields

__all__ = ["hoist_workspace"]


def hoist_workspace(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, list[tirx.Var]]:
    """Returns the kernel with the buffers that live as long as a call as its last parameters, and these buffers."""
    root = func.body
    block = root.block
    buffers = list(block.alloc_buffers)
    if not buffers:
        return func, []
    emptied = with_fields(block, alloc_buffers=[])
    body = s_tir.SBlockRealize(root.iter_values, root.predicate, emptied)
    return with_fields(func, params=[*func.params, *buffers], body=body), buffers
