"""Element-wise arithmetic, rounding, and the compounds that the standard builds on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnefc.frontends.nnef.declarations import Arguments, Dialect, operation
from nnefc.frontends.nnef.operations.broadcasting import align, broadcast_rule, same_as
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand
from nnefc.operators.math.elementwise import Clip, Elementwise
from nnefc.operators.math.functions import FUNCTIONS

__all__ = ["FUNCTION_RULES", "declare"]

_NAMES = {
    "rcp": "reciprocal",
    "neg": "negative",
    "sqr": "square",
    "sign": "sign_or_zero",
    "round": "round_half_away",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "pow": "power",
    "min": "minimum",
    "max": "maximum",
    "lt": "less",
    "gt": "greater",
    "le": "less_equal",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
    "and": "logical_and",
    "or": "logical_or",
    "not": "logical_not",
}
"""NNEF's name → the library's name, where they differ."""

FUNCTION_RULES: dict[str, str] = {}
"""The operation that says a function of the library, by the function's name."""


def declare(name: str, *parameters: str, operand: str = "scalar", result: str = "scalar", **options: Any) -> None:
    """Declare an operation that is a function of the library.

    Args:
        parameters: all that it has; they broadcast.
        operand, result: the content of the tensors.
        options: of `operation`.
    """
    function = _NAMES.get(name, name)
    FUNCTION_RULES[function] = name
    to = "y" if len(parameters) == 1 else "z"
    declared = ", ".join(f"{parameter}: tensor<{operand}>" for parameter in parameters)
    operation(
        f"fragment {name}({declared}) -> ({to}: tensor<{result}>)",
        shape=broadcast_rule(*parameters),
        **{"target": _target(function), **options},
    )(_lowered(function, parameters))


def _target(function: str) -> str:
    """Return the Relax operator of a function, for the documentation."""
    if function in ("reciprocal", "square"):
        return "R.divide" if function == "reciprocal" else "R.multiply"
    build = FUNCTIONS[function].relax
    return "TE" if build is None else f"R.{build.__name__}"


def _lowered(function: str, parameters: tuple[str, ...]) -> Callable[[Lowering, Arguments], Operand]:
    def lower(lowering: Lowering, args: Arguments) -> Operand:
        operands = lowering.operands(args[parameter] for parameter in parameters)
        return Elementwise(function).lower(lowering, *align(lowering, operands))

    return lower


for _name in ("add", "sub", "mul", "div"):
    declare(_name, "x", "y")

for _name in ("exp", "log", "abs", "sign", "rcp", "neg", "floor", "ceil"):
    declare(_name, "x")

for _name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh"):
    declare(_name, "x", dialects={Dialect.FINAL})

# The provisional dialect defines these by exponentials; the library functions compute the same without overflow.
declare("sinh", "x", dialects={Dialect.PROVISIONAL}, definition="y = 0.5 * (exp(x) - exp(-x));")
declare("cosh", "x", dialects={Dialect.PROVISIONAL}, definition="y = 0.5 * (exp(x) + exp(-x));")
declare("tanh", "x", dialects={Dialect.PROVISIONAL}, definition="y = sinh(x) / cosh(x);")

declare("sqr", "x", definition="y = x ^ 2.0;")
declare("sqrt", "x", definition="y = x ^ 0.5;")
declare("rsqrt", "x", definition="y = x ^ -0.5;")
declare("log2", "x", definition="y = log(x) / log(2.0);")
declare("round", "x", limits="halves away from zero")
declare("pow", "x", "y", target="TE, constant exponents as R.multiply, R.sqrt, …")

declare("min", "x", "y", definition="z = select(x < y, x, y);")
declare("max", "x", "y", definition="z = select(x > y, x, y);")


@operation(
    "fragment copy<?>(x: tensor<?>) -> (y: tensor<?>)",
    shape=same_as("x"),
    dialects={Dialect.FINAL},
    target="nothing: the tensor itself",
)
def _copy(lowering: Lowering, args: Arguments) -> Operand:
    """Values never change, so a copy is the value itself."""
    return lowering.operand(args.x)


@operation(
    "fragment rsqr(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    definition="y = x ^ -2.0;",
    target="R.multiply, R.divide",
)
def _rsqr(lowering: Lowering, args: Arguments) -> Operand:
    squared = lowering.bound(Elementwise("square").lower(lowering, lowering.operand(args.x)))
    return Elementwise("reciprocal").lower(lowering, squared)


@operation(
    "fragment clamp(x: tensor<scalar>, a: tensor<scalar>, b: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=broadcast_rule("x", "a", "b"),
    definition="y = max(min(x, b), a);",
    target="R.clip between known numbers, else R.minimum, R.maximum",
)
def _clamp(lowering: Lowering, args: Arguments) -> Operand:
    operands = align(lowering, lowering.operands((args.x, args.a, args.b)))
    return Clip(low_last=True).lower(lowering, *operands)
