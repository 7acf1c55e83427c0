"""Element-wise arithmetic, comparisons and logic, with both kinds of broadcasting of the standard."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import converted
from nnefc.frontends.onnx.operators.tensors import (
    dtype_of,
    fail,
    input_at,
    known,
    optional_input,
    shape_of,
    spell,
)
from nnefc.operators.dtypes import STORAGE, is_float
from nnefc.operators.math.elementwise import Clip, Elementwise, Where
from nnefc.operators.tensor.creation import Full
from nnefc.operators.tensor.shape import Reshape

__all__ = ["binary", "unary"]

_UNARY: dict[str, tuple[str, tuple[int, ...]]] = {
    "Abs": ("abs", (1, 6, 13)),
    "Neg": ("negative", (1, 6, 13)),
    "Sign": ("sign", (9, 13)),
    "Ceil": ("ceil", (1, 6, 13)),
    "Floor": ("floor", (1, 6, 13)),
    "Round": ("round", (11, 22)),
    "Sqrt": ("sqrt", (1, 6, 13)),
    "Exp": ("exp", (1, 6, 13)),
    "Log": ("log", (1, 6, 13)),
    "Sin": ("sin", (7, 22)),
    "Cos": ("cos", (7, 22)),
    "Tan": ("tan", (7, 22)),
    "Asin": ("asin", (7, 22)),
    "Acos": ("acos", (7, 22)),
    "Atan": ("atan", (7, 22)),
    "Sinh": ("sinh", (9, 22)),
    "Cosh": ("cosh", (9, 22)),
    "Asinh": ("asinh", (9, 22)),
    "Acosh": ("acosh", (9, 22)),
    "Atanh": ("atanh", (9, 22)),
    "Tanh": ("tanh", (1, 6, 13)),
    "Sigmoid": ("sigmoid", (1, 6, 13)),
    "Erf": ("erf", (9, 13)),
    "Reciprocal": ("reciprocal", (1, 6, 13)),
    "BitwiseNot": ("bitwise_not", (18,)),
    "Not": ("logical_not", (1,)),
}
_BINARY: dict[str, tuple[str, tuple[int, ...]]] = {
    "Add": ("add", (1, 6, 7, 13, 14)),
    "Sub": ("subtract", (1, 6, 7, 13, 14)),
    "Mul": ("multiply", (1, 6, 7, 13, 14)),
    "Div": ("divide", (1, 6, 7, 13, 14)),
    "Pow": ("power", (1, 7, 12, 13, 15)),
    "And": ("logical_and", (1, 7)),
    "Or": ("logical_or", (1, 7)),
    "Xor": ("logical_xor", (1, 7)),
    "BitwiseAnd": ("bitwise_and", (18,)),
    "BitwiseOr": ("bitwise_or", (18,)),
    "BitwiseXor": ("bitwise_xor", (18,)),
    "Equal": ("equal", (1, 7, 11, 13, 19)),
    "Less": ("less", (1, 7, 9, 13)),
    "Greater": ("greater", (1, 7, 9, 13)),
    "LessOrEqual": ("less_equal", (12, 16)),
    "GreaterOrEqual": ("greater_equal", (12, 16)),
}
_CHAINED: dict[str, tuple[str, tuple[int, ...]]] = {
    "Max": ("maximum", (1, 6, 8, 12, 13)),
    "Min": ("minimum", (1, 6, 8, 12, 13)),
    "Sum": ("add", (1, 6, 8, 13)),
    "Mean": ("add", (1, 6, 8, 13)),
}
_NAMES = {op_type: name for op_type, (name, _) in (_UNARY | _BINARY | _CHAINED).items()}


def unary(ctx: Context, op_type: str, x: Value) -> Value:
    """The element-wise operator `op_type` of one operand."""
    made: Value = ctx.apply(Elementwise(_NAMES[op_type]), x)
    return made


def binary(ctx: Context, op_type: str, *operands: Value) -> Value:
    """The element-wise operator `op_type` of operands that broadcast as NumPy's do."""
    made: Value = ctx.apply(Elementwise(_NAMES[op_type]), *operands)
    return made


def _lower_unary(ctx: Context, node: Node) -> Value:
    return unary(ctx, node.op_type, input_at(node, 0))


def _lower_binary(ctx: Context, node: Node) -> Value:
    """Early versions say by `axis` where the second operand belongs."""
    x, y = input_at(node, 0), input_at(node, 1)
    axis, rank = node.attributes.get("axis"), len(shape_of(x))
    if axis is not None and node.attributes.get("broadcast"):
        start = axis + rank if axis < 0 else axis
        after = rank - start - len(shape_of(y))
        if not 0 <= start <= rank or after < 0:
            raise fail(node, f"axis {axis} puts the second operand {spell(shape_of(y))} beyond {spell(shape_of(x))}")
        y = ctx.apply(Reshape((*shape_of(y), *[1] * after)), y)
    return binary(ctx, node.op_type, x, y)


def _lower_equal(ctx: Context, node: Node) -> Any:
    """Lower `Equal`, also of strings."""
    if input_at(node, 0).dtype == "string":
        from nnefc.operators.text.strings import TextEqual  # few networks have strings

        return ctx.apply(TextEqual(), input_at(node, 0), input_at(node, 1))
    return _lower_binary(ctx, node)


def _lower_chain(ctx: Context, node: Node) -> Value:
    values = [input_at(node, i) for i in range(len(node.inputs))]
    total = values[0] if len(values) == 1 else binary(ctx, node.op_type, *values)
    if node.op_type != "Mean":
        return total
    return binary(ctx, "Mul", total, known(ctx, np.array(1 / len(values)).astype(dtype_of(total))))


for _table, _lower in ((_UNARY, _lower_unary), (_BINARY, _lower_binary), (_CHAINED, _lower_chain)):
    for _name, (_, _since) in _table.items():
        operator(_name, since=_since)(_lower_equal if _name == "Equal" else _lower)


def _comparable(ctx: Context, x: Value) -> Value:
    """Narrow floats, which programs keep as codes, as numbers."""
    return converted(ctx, x, "float32") if is_float(x.dtype) and x.dtype in STORAGE else x


@operator("IsNaN", since=(9, 13, 20))
def _is_nan(ctx: Context, node: Node) -> Any:
    return ctx.apply(Elementwise("isnan"), _comparable(ctx, input_at(node, 0)))


@operator("IsInf", since=(10, 20))
def _is_inf(ctx: Context, node: Node) -> Value:
    x = _comparable(ctx, input_at(node, 0))
    match bool(node.attributes["detect_negative"]), bool(node.attributes["detect_positive"]):
        case False, False:
            nowhere: Value = ctx.apply(Full(shape_of(x), 0, "bool"))
            return nowhere
        case negative, positive:
            name = "isinf" if negative and positive else "isneginf" if negative else "isposinf"
            made: Value = ctx.apply(Elementwise(name), x)
            return made


@operator("Mod", since=(10, 13, 28))
def _mod(ctx: Context, node: Node) -> Any:
    name = "fmod" if node.attributes["fmod"] else "remainder"
    return ctx.apply(Elementwise(name), input_at(node, 0), input_at(node, 1))


@operator("BitShift", since=(11, 28))
def _bit_shift(ctx: Context, node: Node) -> Any:
    direction = node.attributes["direction"]
    if direction not in ("LEFT", "RIGHT"):
        raise fail(node, f"the direction '{direction}' is neither LEFT nor RIGHT")
    return ctx.apply(Elementwise(f"{direction.lower()}_shift"), input_at(node, 0), input_at(node, 1))


@operator("Where", since=(9, 16))
def _where(ctx: Context, node: Node) -> Any:
    condition, x, y = (input_at(node, i) for i in range(3))
    return ctx.apply(Where(), condition, x, y, dtype=dtype_of(x))


@operator("Clip", since=(1, 6, 11, 12, 13))
def _clip(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    if node.version >= 11:
        return ctx.apply(Clip(), x, optional_input(node, 1), optional_input(node, 2))
    bounds = (node.attributes.get(name) for name in ("min", "max"))
    given = (None if bound is None else known(ctx, np.array(bound).astype(dtype_of(x))) for bound in bounds)
    return ctx.apply(Clip(), x, *given)
