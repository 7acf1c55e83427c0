"""Computes 16-bit floats in float32, since few processors have fp16 or bf16 arithmetic.

    h = Conv(x, W)    float16           h = conv2d(astype(x, float32), float32 W)     float32
    y = Relu(h)       float16     →     y = relu(h)                                   float32
    return y                            return astype(y, float16)

An operator's results are not rounded to the 16-bit float's type: they are more precise than the model asks for, and no
conversion stands between two operators. They are rounded where the program must have the type itself: in outputs,
states, and what goes in and out of bodies. A `Cast` to a 16-bit float is what the model itself asks for: it rounds, and
gives infinity where a number is too large. What only moves numbers that are stored as 16-bit floats leaves them so.

Large weights of convolutions and matrix products stay as the file has them. The program converts them, and the compiler
packs them from the file: their float32 is never in memory as a whole.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import TensorProto
from onnx.defs import OpSchema

from nnefc.frontends.onnx.operator import AnyValue, Context, Lowering, Node, Value
from nnefc.frontends.onnx.values import FLOAT16_TYPES, Array, numpy_dtype

__all__ = ["bound_types", "lower_in_single"]

_OF_TYPES = frozenset(
    {
        "Bernoulli",
        "BitCast",
        "CastLike",
        "ConcatFromSequence",
        "EyeLike",
        "Gradient",
        "Identity",
        "If",
        "Loop",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "RandomNormalLike",
        "RandomUniformLike",
        "Scan",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "SplitToSequence",
    }
)
"""Operators that need the types of their operands as they are: results have them in other ways than schemas say."""

_MOVES = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators whose results are some of their operands' elements."""


_MULTIPLIES_WEIGHTS = frozenset(
    {"Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation", "Gemm", "MatMul"}
)
"""Operators that multiply by constants and do not look at their values."""

_KEEPS_STORED = _MULTIPLIES_WEIGHTS | {"Cast", "Identity", "Transpose"}
"""Operators that read stored 16-bit floats as float32 without a copy of them."""


def lower_in_single(ctx: Context, node: Node, schema: OpSchema, lowering: Lowering) -> list[AnyValue]:
    """Lower a node, given float32 for its 16-bit floats; the results have the types that the schema says."""
    if node.op_type not in _KEEPS_STORED and any(_stored(operand) is not None for operand in node.operands):
        node = replace(node, operands=tuple(_as_array(ctx, operand) for operand in node.operands))
    fp16_operands = [
        operand for operand in node.operands if isinstance(operand, Value) and operand.dtype in FLOAT16_TYPES
    ]
    as_it_is = node.op_type in _OF_TYPES or (node.op_type in _MOVES and not any(half.wide for half in fp16_operands))
    if not fp16_operands or as_it_is:
        return _listed(lowering(ctx, node))
    known = all(operand.array is not None for operand in node.operands if isinstance(operand, Value))
    late = _is_late_cast(node) or (node.op_type in _MULTIPLIES_WEIGHTS and not known)
    wide = [ctx.unrounded(operand, late) if operand in fp16_operands else operand for operand in node.operands]
    types = bound_types(node, schema)
    formals = schema.outputs
    made = _listed(lowering(ctx, replace(node, operands=tuple(wide))))
    return [
        _labelled(result, types.get(formals[min(index, len(formals) - 1)].type_str))
        for index, result in enumerate(made)
    ]


def _stored(operand: AnyValue | None) -> Array | None:
    return operand.stored if isinstance(operand, Value) else None


def _as_array(ctx: Context, operand: AnyValue | None) -> AnyValue | None:
    """Returns an operand, an array if it converts a constant."""
    stored = _stored(operand)
    return operand if stored is None else ctx.unrounded(Value.known(stored))


def _is_late_cast(node: Node) -> bool:
    return node.op_type == "Cast" and node.attributes["to"] in (TensorProto.FLOAT, "FLOAT")


def _listed(made: AnyValue | list[AnyValue] | list[Value]) -> list[AnyValue]:
    return list(made) if isinstance(made, list | tuple) else [made]


def bound_types(node: Node, schema: OpSchema) -> dict[str, str]:
    """The element types that stand for the schema's type variables, by the variables."""
    formals = schema.inputs
    types = {
        formals[min(index, len(formals) - 1)].type_str: operand.dtype
        for index, operand in enumerate(node.operands)
        if isinstance(operand, Value)
    }
    if schema.name == "DequantizeLinear" and not schema.domain and not node.attributes.get("output_dtype"):
        types["T3"] = types["T2"]  # from version 23 on, the scale's
    if schema.name == "GroupQueryAttention":
        types.setdefault("K", types["F"])  # of a first step: keys and values are kept as they came
    return types


def _labelled(result: AnyValue, dtype: str | None) -> AnyValue:
    """A result as what the model takes it for."""
    if dtype not in FLOAT16_TYPES or not isinstance(result, Value) or result.dtype != "float32":
        return result
    if result.array is None:
        return replace(result, dtype=dtype, wide=True)
    with np.errstate(over="ignore", invalid="ignore"):
        return Value.known(result.array.astype(numpy_dtype(dtype)))
