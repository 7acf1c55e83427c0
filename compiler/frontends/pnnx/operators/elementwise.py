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


def apply(at: Lowering, name: str, *operands: Any) -> Any:
    """The function `name` of expressions on tensors and numbers."""
    count = len(operands)
    nodes = (
        Node(NodeKind.CALL, name, 0, tuple(range(1, count + 1))),
        *(Node(NodeKind.OPERAND, i, 0) for i in range(count)),
    )
    return lower(_Unplaced(nodes, _NOWHERE), operands, at)


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
        def _unary(at: Lowering, input: Tensor, function: str) -> Result:
            return apply(at, function, input)

    else:

        @operator(f"torch.{name}", function=function)
        def _binary(at: Lowering, input: Tensor | Number, other: Tensor | Number, function: str) -> Result:
            return apply(at, function, input, other)


for _name, _function in {**_NAMES, **_ALIASES}.items():
    if _name not in ("pow", "relu", "subtract", "divide", "true_divide"):
        _declare(_name, _function)


@operator("torch.relu", "Tensor.relu")
def _relu(at: Lowering, input: Tensor) -> Result:
    return apply(at, "relu", input)


@operator("torch.pow", "Tensor.pow")
def _pow(at: Lowering, input: Tensor | Number, exponent: Tensor | Number) -> Result:
    return apply(at, "pow", input, exponent)


def _with_alpha(at: Lowering, name: str, left: Any, right: Any, alpha: Number) -> Any:
    return apply(at, name, left, right if alpha == 1 else apply(at, "mul", right, alpha))


for _name in ("add", "sub", "rsub"):

    @operator(f"torch.{_name}", name=_name)
    def _sum(at: Lowering, input: Tensor | Number, other: Tensor | Number, name: str, alpha: int | float = 1) -> Result:
        # rsub scales its first operand, which it takes away
        if name == "rsub":
            return _with_alpha(at, "sub", other, input, alpha)
        return _with_alpha(at, name, input, other, alpha)


@operator("torch.div", "torch.divide")
def _div(at: Lowering, input: Tensor | Number, other: Tensor | Number, rounding_mode: str | None = None) -> Result:
    match rounding_mode:
        case "floor":
            return apply(at, "floor_divide", input, other)
        case "trunc":
            if _is_real(input) or _is_real(other):
                return apply(at, "trunc", apply(at, "div", input, other))
            whole = apply(at, "sub", input, apply(at, "fmod", input, other))
            return apply(at, "floor_divide", whole, other)
    return apply(at, "div", input, other)


def _is_real(value: Tensor | Number) -> bool:
    return isinstance(value, float) if isinstance(value, bool | int | float) else category(dtype_of(value)) == 2


@operator("torch.clamp", "torch.clip", "Tensor.clamp")
def _clamp(
    at: Lowering, input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None
) -> Result:
    bounds = [at.number(bound, input) for bound in (min, max) if isinstance(bound, int | float)]
    if dtype_of(input) in ("float32", "float64") and len(bounds) == 2:
        return Clip().lower(at, input, *bounds)
    made: Tensor = input
    if min is not None:
        made = apply(at, "max", made, min)
    return made if max is None else apply(at, "min", made, max)


@operator("torch.clamp_min", "Tensor.clamp_min")
def _clamp_min(at: Lowering, input: Tensor, min: Number) -> Result:
    return apply(at, "max", input, min)


@operator("torch.clamp_max", "Tensor.clamp_max")
def _clamp_max(at: Lowering, input: Tensor, max: Number) -> Result:
    return apply(at, "min", input, max)


@operator("torch.lerp")
def _lerp(at: Lowering, input: Tensor, end: Tensor, weight: Tensor | float) -> Result:
    return apply(at, "add", input, apply(at, "mul", weight, apply(at, "sub", end, input)))


@operator("torch.addcmul")
def _addcmul(at: Lowering, input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Result:
    return _with_alpha(at, "add", input, apply(at, "mul", tensor1, tensor2), value)


@operator("torch.addcdiv")
def _addcdiv(at: Lowering, input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number = 1) -> Result:
    return _with_alpha(at, "add", input, apply(at, "div", tensor1, tensor2), value)


@operator("torch.frac")
def _frac(at: Lowering, input: Tensor) -> Result:
    return apply(at, "sub", input, apply(at, "trunc", input))


for _name in ("isnan", "isinf", "isfinite"):

    @operator(f"torch.{_name}", name=_name)
    def _kind(at: Lowering, input: Tensor, name: str) -> Result:
        return Elementwise(name).lower(at, input)
