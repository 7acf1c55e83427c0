"""Lets the last of several blocks go on with what all of them have written: no launch follows for it.

    for block in blockIdx.x:
        parts[block] = …
        arrived[tile] += 1
        if all blocks of the tile have arrived:             # the last one sees what the others have written
            result = f(parts)

The counter is 0 before and after each launch: the session has memory for it. Results must not depend on which block
is the last, so that they are the same in every run.
"""

from __future__ import annotations

from tvm import tirx

from nnefc.ir.gpu_operators import is_last
from nnefc.passes.schedule.gpu.nest import Nest, load, sequence, store
from nnefc.passes.tir.common.expressions import number

__all__ = ["if_last"]


def if_last(nest: Nest, arrived: tirx.Var, tile: tirx.Expr, blocks: int, body: tirx.Stmt) -> tirx.Stmt:
    """Returns what the threads of a block do when it has written its part: the last one of a tile runs `body`.

    Args:
        arrived: for each tile, how many blocks have come here.
        blocks: of each tile.
    """
    is_last_block = nest.buffer("is_last", 1, "int32", "local")
    counter = tirx.address_of(load(arrived, tile))
    condition = tirx.NE(load(is_last_block, number(0)), number(0))
    return sequence(store(is_last_block, is_last(counter, blocks), number(0)), tirx.IfThenElse(condition, body, None))
