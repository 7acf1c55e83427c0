"""Element-wise functions, activations and choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnefc.frontends.nnef.operations.elementwise import FUNCTIONS_SAID
from nnefc.frontends.nnef.writing.document import Document, Unsayable, content_of
from nnefc.frontends.nnef.writing.rules import aligned, says
from nnefc.operators.activation import Elu, Gelu, LeakyRelu, ParametricRelu, Relu, Silu, Softmax, Softplus
from nnefc.operators.base import dtype_of
from nnefc.operators.casting import Cast
from nnefc.operators.elementwise import Clip, Elementwise, Where
from nnefc.operators.shape import Copy

_PARAMETERS = {1: ("x",), 2: ("x", "y")}

_GELU_TANH = (0.7978845608028654, 0.044715)


@says(Elementwise)
def _elementwise(document: Document, operator: Elementwise, *operands: Any) -> Any:
    made, *others = operands
    if not others:
        return _function(document, operator.function, made)
    for other in others:
        made = _function(document, operator.function, made, other)
    return made


def _function(document: Document, function: str, *operands: Any) -> Any:
    composed = _COMPOSED.get(function)
    if composed is not None:
        return composed(document, *operands)
    name = FUNCTIONS_SAID.get(function)
    if name is None:
        raise Unsayable(f"NNEF has no operation for the function '{function}'")
    return document.call(name, **dict(zip(_PARAMETERS[len(operands)], aligned(document, operands), strict=True)))


def _cube(document: Document, x: Any) -> Any:
    return document.call("mul", x=document.call("sqr", x=x), y=x)


def _round_to_even(document: Document, x: Any) -> Any:
    """NNEF rounds halves away from zero: of a half, twice its rounded half is even."""
    below = document.call("sub", x=x, y=document.call("floor", x=x))
    is_half = document.call("eq", x=below, y=0.5)
    even = document.call("mul", x=document.call("round", x=document.call("mul", x=x, y=0.5)), y=2.0)
    return document.call("select", condition=is_half, true_value=even, false_value=document.call("round", x=x))


def _trunc(document: Document, x: Any) -> Any:
    towards = document.call("floor", x=document.call("abs", x=x))
    return document.call("mul", x=document.call("sign", x=x), y=towards)


def _isnan(document: Document, x: Any) -> Any:
    return document.call("ne", x=x, y=x)


def _xor(document: Document, x: Any, y: Any) -> Any:
    x, y = aligned(document, (x, y))
    only_x = document.call("and", x=x, y=document.call("not", x=y))
    only_y = document.call("and", x=document.call("not", x=x), y=y)
    return document.call("or", x=only_x, y=only_y)


def _sum_or_either(document: Document, x: Any, y: Any) -> Any:
    return document.call("or" if _is_logical(x) else "add", **dict(zip("xy", aligned(document, (x, y)), strict=True)))


def _product_or_both(document: Document, x: Any, y: Any) -> Any:
    return document.call("and" if _is_logical(x) else "mul", **dict(zip("xy", aligned(document, (x, y)), strict=True)))


def _is_logical(x: Any) -> bool:
    return getattr(x, "content", None) == "logical" or (not hasattr(x, "content") and dtype_of(x) == "bool")


def _differs(document: Document, x: Any, y: Any) -> Any:
    if _is_logical(x):
        return _xor(document, x, y)
    return document.call("ne", **dict(zip("xy", aligned(document, (x, y)), strict=True)))


def _equals(document: Document, x: Any, y: Any) -> Any:
    if _is_logical(x):
        return document.call("not", x=_xor(document, x, y))
    return document.call("eq", **dict(zip("xy", aligned(document, (x, y)), strict=True)))


_COMPOSED: dict[str, Callable[..., Any]] = {
    "cube": _cube,
    "round": _round_to_even,
    "trunc": _trunc,
    "isnan": _isnan,
    "logical_xor": _xor,
    "add": _sum_or_either,
    "multiply": _product_or_both,
    "equal": _equals,
    "not_equal": _differs,
    "sign": lambda document, x: document.call("sign", x=x),  # of what is not a number NNEF says nothing
}
"""Functions that NNEF says by others, or in different ways for reals and truth values."""


@says(Clip)
def _clip(document: Document, operator: Clip, x: Any, low: Any = None, high: Any = None) -> Any:
    bounds = [bound for bound in (low, high) if isinstance(bound, np.ndarray) and bound.size == 1]
    ordered = len(bounds) == 2 and bounds[0].reshape(()) <= bounds[1].reshape(())
    if low is not None and high is not None and (operator.low_last or ordered):
        x, low, high = aligned(document, (x, low, high))
        if all(_finite(bound) for bound in (low, high)):
            return document.call("clamp", x=x, a=low, b=high)
    steps = [("max", low), ("min", high)]
    for name, bound in reversed(steps) if operator.low_last else steps:
        if bound is not None and not _changes_nothing(name, bound):
            one, other = aligned(document, (x, bound))
            x = document.call(name, x=one, y=other)
    return document.value(x)


def _finite(bound: Any) -> bool:
    return not isinstance(bound, np.ndarray) or bool(np.isfinite(bound).all())


def _changes_nothing(name: str, bound: Any) -> bool:
    """Whether a bound is the infinity that all numbers are within."""
    if not isinstance(bound, np.ndarray):
        return False
    return bool((bound == (-np.inf if name == "max" else np.inf)).all())


@says(Where)
def _where(document: Document, operator: Where, condition: Any, x: Any, y: Any) -> Any:
    condition, x, y = aligned(document, (condition, x, y))
    return document.call("select", condition=condition, true_value=x, false_value=y)


@says(Cast)
def _cast(document: Document, operator: Cast, x: Any) -> Any:
    """Between contents; integers have no width of their own."""
    source, content = operator.source or dtype_of(x), content_of(operator.dtype)
    own = content_of(source)
    if own == content:
        return document.value(x)
    if content == "integer" and operator.dtype not in ("int32", "int64"):
        raise Unsayable(f"NNEF has no tensors of {operator.dtype}, whose numbers are cut to their width")
    return document.call("cast", content=content, input=x)


@says(Copy)
def _copy(document: Document, operator: Copy, x: Any) -> Any:
    return document.call("copy", x=document.tensor(x))


@says(Relu)
def _relu(document: Document, operator: Relu, x: Any) -> Any:
    return document.call("relu", x=x)


@says(LeakyRelu)
def _leaky_relu(document: Document, operator: LeakyRelu, x: Any) -> Any:
    return document.call("leaky_relu", x=x, alpha=float(operator.slope))


@says(ParametricRelu)
def _parametric_relu(document: Document, operator: ParametricRelu, x: Any, slope: Any) -> Any:
    x, slope = aligned(document, (x, slope))
    return document.call("prelu", x=x, alpha=slope)


@says(Elu)
def _elu(document: Document, operator: Elu, x: Any) -> Any:
    if operator.scale == 1:
        return document.call("elu", x=x, alpha=float(operator.alpha))
    return document.call("selu", x=x, alpha=float(operator.alpha), **{"lambda": float(operator.scale)})


@says(Silu)
def _silu(document: Document, operator: Silu, x: Any) -> Any:
    if operator.scale == 1:
        return document.call("silu", x=x)
    if operator.scale == 1.702:
        return document.call("gelu", x=x)
    inner = document.call("mul", x=x, y=float(operator.scale))
    return document.call("mul", x=x, y=document.call("sigmoid", x=inner))


@says(Gelu)
def _gelu(document: Document, operator: Gelu, x: Any) -> Any:
    """By tanh; NNEF has no error function, and what it calls gelu is another approximation."""
    if not operator.approximate:
        raise Unsayable("NNEF has no error function, which the exact GELU needs")
    scale, cubic = _GELU_TANH
    bent = document.call("mul", x=_cube(document, x), y=cubic)
    inner = document.call("mul", x=document.call("add", x=x, y=bent), y=scale)
    share = document.call("add", x=document.call("tanh", x=inner), y=1.0)
    return document.call("mul", x=document.call("mul", x=x, y=0.5), y=share)


@says(Softplus)
def _softplus(document: Document, operator: Softplus, x: Any) -> Any:
    """Above a threshold of 20 or more the formula gives the number itself."""
    if operator.threshold is not None and operator.threshold < 20:
        raise Unsayable(f"NNEF's softplus has no threshold, here it is {operator.threshold}")
    if operator.sharpness == 1:
        return document.call("softplus", x=x)
    scaled = document.call("mul", x=x, y=float(operator.sharpness))
    return document.call("div", x=document.call("softplus", x=scaled), y=float(operator.sharpness))


@says(Softmax)
def _softmax(document: Document, operator: Softmax, x: Any) -> Any:
    axes = list(operator.axes)
    if not axes:
        raise Unsayable("a softmax over no dimension")
    if not operator.logarithm:
        return document.call("softmax", x=x, axes=axes)
    largest = document.call("max_reduce", input=x, axes=axes)
    less = document.call("sub", x=x, y=largest)
    total = document.call("sum_reduce", input=document.call("exp", x=less), axes=axes)
    return document.call("sub", x=less, y=document.call("log", x=total))
