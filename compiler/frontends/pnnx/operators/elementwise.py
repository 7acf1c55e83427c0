"""Element-wise operators: the functions of expressions as operators (`torch.add` and others), and similar ones."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.pnnx.expression import ExpressionLocation, Node, NodeKind, Tree
from nnefc.frontends.pnnx.functions import FUNCTIONS, TypeRule
from nnefc.frontends.pnnx.lowering import Lowering, Tensor, dtype_of
from nnefc.frontends.pnnx.lowering_expression import lower
from nnefc.frontends.pnnx.operators.declaration import Number, Result, operator
from nnefc.frontends.pnnx.promotion import category
from nnefc.operators.math.elementwise import Clip, Elementwise

__all__ = ["apply"]


def apply(ctx: Lowering, name: str, *operands: Any) -> Any:
    """The function `name` of expressions on tensors and numbers."""
    count = len(operands)
    nodes = (
        Node(NodeKind.CALL, name, 0, tuple(range(1, count + 1))),
        *(Node(NodeKind.OPERAND, i, 0) for i in range(count)),
    )
    return lower(_Unplaced(nodes, _NOWHERE), operands, ctx)


class _Unplaced(Tree):
    """A tree without a location in a file: errors name the operator's location."""


_NOWHERE = ExpressionLocation("", 0, 0, "")

# Names that PyTorch has next to those of the functions.
_ALIASES = {
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_not": "not",
    "bitwise_left_shift": "lshift",
    "bitwise_right_shift": "rshift",
    "arctan2": "atan2",
    "absolute": "abs",
    "negative": "neg",
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
}
_OWN = frozenset({"add", "sub", "rsub", "div", "min", "max", "size", "int", "float", "bool", "and", "or", "xor", "not"})
_NAMES = {
    name: name
    for name, function in FUNCTIONS.items()
    if name not in _OWN and function.rule not in (TypeRule.CONVERSION, TypeRule.SIZE)
}


def _declare(name: str, function: str) -> None:
    if FUNCTIONS[function].maximum == 1:

        @operator(f"torch.{name}", function=function)
        def _unary(ctx: Lowering, input: Tensor, function: str) -> Result:
            return apply(ctx, function, input)

    else:

        @operator(f"torch.{name}", function=function)
        def _binary(ctx: Lowering, input: Tensor | Number, other: Tensor | Number, function: str) -> Result:
            return apply(ctx, function, input, other)


for _name, _function in {**_NAMES, **_ALIASES}.items():
    if _name not in ("pow", "relu", "subtract", "divide", "true_divide"):
        _declare(_name, _function)


@operator("torch.relu", "Tensor.relu")
def _relu(ctx: Lowering, input: Tensor) -> Result:
    return apply(ctx, "relu", input)


@operator("torch.pow", "Tensor.pow")
def _pow(ctx: Lowering, input: Tensor | Number, exponent: Tensor | Number) -> Result:
    return apply(ctx, "pow", input, exponent)


def _with_alpha(ctx: Lowering, name: str, left: Any, right: Any, alpha: Number) -> Any:
    return apply(ctx, name, left, right if alpha == 1 else apply(ctx, "mul", right, alpha))


for _name in ("add", "sub", "rsub"):

    @operator(f"torch.{_name}", name=_name)
    def _sum(
        ctx: Lowering, input: Tensor | Number, other: Tensor | Number, name: str, alpha: int | float = 1
    ) -> Result:
        # rsub scales its first operand, which it takes away
        if name == "rsub":
            return _with_alpha(ctx, "sub", other, input, alpha)
        return _with_alpha(ctx, name, input, other, alpha)


@operator("torch.div", "torch.divide")
def _div(ctx: Lowering, input: Tensor | Number, other: Tensor | Number, rounding_mode: str | None = None) -> Result:
    match rounding_mode:
        case "floor":
            return apply(ctx, "floor_divide", input, other)
        case "trunc":
            if _is_real(input) or _is_real(other):
                return apply(ctx, "trunc", apply(ctx, "div", input, other))
            whole = apply(ctx, "sub", input, apply(ctx, "fmod", input, other))
            return apply(ctx, "floor_divide", whole, other)
    return apply(ctx, "div", input, other)


def _is_real(value: Tensor | Number) -> bool:
    return isinstance(value, float) if isinstance(value, bool | int | float) else category(dtype_of(value)) == 2


@operator("torch.clamp", "torch.clip", "Tensor.clamp")
def _clamp(
    ctx: Lowering, input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None
) -> Result:
    bounds = [ctx.number(bound, input) for bound in (min, max) if isinstance(bound, int | float)]
    if dtype_of(input) in ("float32", "float64") and len(bounds) == 2:
        return Clip().lower(ctx, input, *bounds)
    made: Tensor = input
    if min is not None:
        made = apply(ctx, "max", made, min)
    return made if max is None else apply(ctx, "min", made, max)


@operator("torch.clamp_min", "Tensor.clamp_min")
def _clamp_min(ctx: Lowering, input: Tensor, min: Number) -> Result:
    return apply(ctx, "max", input, min)


@operator("torch.clamp_max", "Tensor.clamp_max")
def _clamp_max(ctx: Lowering, input: Tensor, max: Number) -> Result:
    return apply(ctx, "min", input, max)


@operator("torch.lerp")
def _lerp(ctx: Lowering, input: Tensor, end: Tensor, weight: Tensor | float) -> Result:
    return apply(ctx, "add", input, apply(ctx, "mul", weight, apply(ctx, "sub", end, input)))


@operator("torch.addcmul")
def _addcmul(ctx: Lowering, input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Result:
    return _with_alpha(ctx, "add", input, apply(ctx, "mul", tensor1, tensor2), value)


@operator("torch.addcdiv")
def _addcdiv(ctx: Lowering, input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Result:
    return _with_alpha(ctx, "add", input, apply(ctx, "div", tensor1, tensor2), value)


@operator("torch.frac")
def _frac(ctx: Lowering, input: Tensor) -> Result:
    return apply(ctx, "sub", input, apply(ctx, "trunc", input))


for _name in ("isnan", "isinf", "isfinite"):

    @operator(f"torch.{_name}", name=_name)
    def _kind(ctx: Lowering, input: Tensor, name: str) -> Result:
        return Elementwise(name).lower(ctx, input)
