"""Determines which operators take strings, and which of their results are strings."""

from __future__ import annotations

from dataclasses import replace

from onnx.defs import OpSchema

from nnefc.frontends.onnx.fp16 import bound_types
from nnefc.frontends.onnx.operator import AnyValue, Node, Value
from nnefc.frontends.onnx.values import STORAGE
from nnefc.support.diagnostics import CompileError

__all__ = ["check_strings", "with_strings"]

_MOVES = frozenset(
    {
        *(
            "ArrayFeatureExtractor",
            "CenterCropPad",
            "Compress",
            "Concat",
            "ConcatFromSequence",
            "DepthToSpace",
            "Expand",
            "Flatten",
            "Gather",
        ),
        *("GatherElements", "GatherND", "Identity", "If", "Loop", "NonZero", "OneHot", "Optional"),
        *("OptionalGetElement", "OptionalHasElement", "Pad", "Reshape", "ReverseSequence", "Scan", "Scatter"),
        *("ScatterElements", "ScatterND", "SequenceAt", "SequenceConstruct", "SequenceErase", "SequenceInsert"),
        *("SequenceLength", "SequenceMap", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "SplitToSequence"),
        *("Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unique", "Unsqueeze", "Where"),
    }
)
"""Operators that move elements whatever they are; an empty string is what zeros are for numbers."""

_READ = frozenset(
    {
        *("Cast", "CastLike", "CategoryMapper", "Equal", "LabelEncoder", "MurmurHash3", "OneHotEncoder"),
        *("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "Tokenizer"),
    }
)
"""Operators that look into strings. Others that schemas let take them would compute with handles."""


def check_strings(node: Node) -> None:
    """Check that an operator can compute with strings, if it is given any that are not known at compile time.

    Raises:
        CompileError: it cannot.
    """
    if node.op_type in _MOVES or node.op_type in _READ:
        return
    for index, operand in enumerate(node.operands):
        if isinstance(operand, Value) and operand.dtype == "string" and operand.array is None:
            raise CompileError(
                f"{node.description}: input {index} is a tensor of strings, for which the operator is not supported",
                hint="strings that are known at compile time may be: give the input by --value",
            )


def with_strings(node: Node, schema: OpSchema, results: list[AnyValue]) -> list[AnyValue]:
    """The results of an operator; those that the schema says to be strings, as an operand is, have this type."""
    if not any(isinstance(operand, Value) and operand.dtype == "string" for operand in node.operands):
        return results
    types, formals = bound_types(node, schema), schema.outputs
    for index, result in enumerate(results):
        formal = formals[min(index, len(formals) - 1)]
        is_text = types.get(formal.type_str) == "string" and formal.is_homogeneous
        if is_text and isinstance(result, Value) and result.dtype == STORAGE["string"]:
            results[index] = replace(result, dtype="string")
    return results
