"""Command streams for Arm's Ethos-U, which Vela puts in the file in place of the operators that the unit computes.

Its inputs are the commands, weights, two blocks of memory, then the tensors. Where these lie in the first block is
metadata of the file.
"""

from __future__ import annotations

import math

from nnefc.frontends.tflite.lowering import Lowering, Node, Result, operator
from nnefc.operators.nn.ethos_u import EthosUCommands
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _size(node: Node, index: int) -> int:
    """The bytes of a block of memory; none where it is left out."""
    tensor = node.sources[index]
    if tensor is None:
        return 0
    if tensor.dtype not in ("uint8", "int8") or None in tensor.shape:
        raise CompileError(f"input {index} is no block of bytes")
    return math.prod(size or 0 for size in tensor.shape)


@operator("ethos-u", types=("uint8", "int8"))
def _ethos_u(ctx: Lowering, node: Node) -> Result:
    if len(node.inputs) < 5:
        raise CompileError(f"it has {len(node.inputs)} inputs: commands, weights, two blocks of memory and tensors")
    tensors = [*node.sources[4:], *node.outputs]
    offsets = [None if each is None else ctx.offsets.get(each.index) for each in tensors]
    if None in offsets or any(None in each.shape for each in node.outputs):
        raise CompileError("the file does not say where its tensors lie (OfflineMemoryAllocation)")
    known = tuple(int(offset or 0) for offset in offsets)
    count = len(node.inputs) - 4
    arena, cache = node.sources[2:4]
    shared = arena is not None and cache is not None and arena.index == cache.index
    layer = EthosUCommands(
        node.constant(0, "the command stream").reshape(-1),
        node.constant(1, "the weights").reshape(-1),
        _size(node, 2),
        0 if shared else _size(node, 3),
        tuple((tuple(size or 0 for size in each.shape), each.dtype) for each in node.outputs),
        known[:count],
        known[count:],
    )
    return list(layer.lower(ctx, *(node.operand(4 + k) for k in range(count))))
