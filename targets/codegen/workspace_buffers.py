"""The buffers that a function of TIR allocates for the time of a whole call, as parameters of it."""

from __future__ import annotations

import math

import tvm
from tvm import s_tir, tirx

__all__ = ["buffer_bytes", "lift_own_buffers"]


def lift_own_buffers(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, list[int]]:
    """Turn the buffers that live as long as the call into parameters; returns their sizes too."""
    root = func.body
    own = list(root.block.alloc_buffers)
    if not own:
        return func, []
    block = root.block
    emptied = s_tir.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, block.body, block.init, [], block.match_buffers,
        block.annotations,
    )  # fmt: skip
    body = s_tir.SBlockRealize(root.iter_values, root.predicate, emptied)
    lifted = tirx.PrimFunc([*func.params, *own], body, func.ret_type, func.attrs)
    return lifted, [buffer_bytes(buffer) for buffer in own]


def buffer_bytes(buffer: tirx.Var) -> int:
    """Size of a buffer; booleans and narrow integers take a byte each."""
    item = max(1, int(tvm.DataType(str(buffer.dtype)).bits) // 8)
    return math.prod(int(extent) for extent in buffer.shape) * item
