"""Lowers operators that move elements of complex tensors: real and imaginary parts each, then joined.

A complex tensor of shape S is a tensor of reals of shape `[*S, 2]` in the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnefc.frontends.tflite.lowering import COMPLEX, Declaration, Lowering, Node, Operand, Value
from nnefc.operators.base import rank_of, shape_of
from nnefc.operators.tensor.concatenation import Stack
from nnefc.operators.tensor.shape import Reshape, Slice

__all__ = ["MOVEMENTS", "lower_parts", "moves_complex", "part_of"]

MOVEMENTS = frozenset({
    *("BATCH_TO_SPACE_ND", "BROADCAST_TO", "CONCATENATION", "EXPAND_DIMS", "GATHER", "GATHER_ND", "PACK", "RESHAPE"),
    *("REVERSE_V2", "SLICE", "SPACE_TO_BATCH_ND", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE"),
    "UNPACK",
})  # fmt: skip
"""Operators that only move elements, so that they take those of any type: parts of complex numbers, and strings."""


def part_of(ctx: Lowering, x: Operand, part: int) -> Operand:
    """Returns the real part (0) or the imaginary part (1) of a complex tensor, `[*S, 2]` → S."""
    shape = shape_of(x)
    made: Operand = ctx.apply(Slice({len(shape) - 1: (part, 1, 1)}), x)
    return ctx.apply(Reshape(tuple(shape[:-1])), made)


def moves_complex(node: Node) -> bool:
    """Returns whether an operator moves elements of a complex tensor."""
    return node.name in MOVEMENTS and any(value is not None and value.dtype == COMPLEX for value in node.inputs)


def lower_parts(declared: Declaration, ctx: Lowering, node: Node) -> list[Value]:
    """Lowers an operator of the parts of its complex inputs, and joins the results."""
    parts = [_lowered_part(declared, ctx, node, part) for part in range(2)]
    pairs = zip(*parts, strict=True)
    return [Value(ctx.apply(Stack(rank_of(real)), real, imaginary), COMPLEX) for real, imaginary in pairs]


def _lowered_part(declared: Declaration, ctx: Lowering, node: Node, part: int) -> Sequence[Operand]:
    inputs = tuple(
        Value(ctx.bound(part_of(ctx, ctx.tensor(value), part)), "float32")
        if value and value.dtype == COMPLEX
        else value
        for value in node.inputs
    )
    outputs = tuple(replace(each, dtype="float32") for each in node.outputs)
    made = declared.lower(ctx, replace(node, inputs=inputs, outputs=outputs))
    return [ctx.bound(each) for each in (made if isinstance(made, list | tuple) else [made])]
