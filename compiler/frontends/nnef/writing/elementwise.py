"""Writes element-wise functions and select."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnefc.frontends.nnef.operations.elementwise import FUNCTION_RULES
from nnefc.frontends.nnef.writing.document import Document, Unsayable, content_of
from nnefc.frontends.nnef.writing.rules import aligned, says
from nnefc.operators.base import dtype_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Clip, Elementwise, Where
from nnefc.operators.tensor.shape import Copy

__all__: list[str] = []

_PARAMETERS = {1: ("x",), 2: ("x", "y")}

_LARGEST = 3.4028234663852886e38
"""The largest 32-bit float."""

_EXACT = 1 << 24
"""Integers below are 32-bit floats."""


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
    name = FUNCTION_RULES.get(function)
    if name is None:
        raise Unsayable(f"NNEF has no operation for the function '{function}'")
    given = aligned(document, operands)
    if name in _COMPARISONS:
        given = _as_scalars(document, given)
    return document.call(name, **dict(zip(_PARAMETERS[len(operands)], given, strict=True)))


_COMPARISONS = ("lt", "gt", "le", "ge")


def _as_scalars(document: Document, operands: list[Any]) -> list[Any]:
    """Integers as reals for a comparison, which is the same where one side is a constant that is a real, too."""
    known = [x for x in operands if isinstance(x, np.ndarray) and x.dtype.kind in "iu"]
    if not known or len(known) == len(operands) or any(np.abs(x.astype(np.float64)).max() >= _EXACT for x in known):
        return operands
    return [x.astype(np.float32) if isinstance(x, np.ndarray) else document.say(Cast("float32"), x) for x in operands]


def _cube(document: Document, x: Any) -> Any:
    """`x * x * x`."""
    return document.call("mul", x=document.call("sqr", x=x), y=x)


def _round_to_even(document: Document, x: Any) -> Any:
    """NNEF rounds to nearest, halves away from zero: of a half, twice its rounded half is even."""
    below = document.call("sub", x=x, y=document.call("floor", x=x))
    is_float16 = document.call("eq", x=below, y=0.5)
    even = document.call("mul", x=document.call("round", x=document.call("mul", x=x, y=0.5)), y=2.0)
    return document.call("select", condition=is_float16, true_value=even, false_value=document.call("round", x=x))


def _trunc(document: Document, x: Any) -> Any:
    towards = document.call("floor", x=document.call("abs", x=x))
    return document.call("mul", x=document.call("sign", x=x), y=towards)


def _isnan(document: Document, x: Any) -> Any:
    return document.call("ne", x=x, y=x)


def _isinf(document: Document, x: Any) -> Any:
    return document.call("gt", x=document.call("abs", x=x), y=_LARGEST)


def _isfinite(document: Document, x: Any) -> Any:
    return document.call("le", x=document.call("abs", x=x), y=_LARGEST)


def _xor(document: Document, x: Any, y: Any) -> Any:
    x, y = aligned(document, (x, y))
    only_x = document.call("and", x=x, y=document.call("not", x=y))
    only_y = document.call("and", x=document.call("not", x=x), y=y)
    return document.call("or", x=only_x, y=only_y)


def _sum_or_either(document: Document, x: Any, y: Any) -> Any:
    return document.call(
        "or" if document.is_logical(x) else "add", **dict(zip("xy", aligned(document, (x, y)), strict=True))
    )


def _product_or_both(document: Document, x: Any, y: Any) -> Any:
    return document.call(
        "and" if document.is_logical(x) else "mul", **dict(zip("xy", aligned(document, (x, y)), strict=True))
    )


def _differs(document: Document, x: Any, y: Any) -> Any:
    if document.is_logical(x):
        return _xor(document, x, y)
    x, y = _as_scalars(document, aligned(document, (x, y)))
    return document.call("ne", x=x, y=y)


def _equals(document: Document, x: Any, y: Any) -> Any:
    if document.is_logical(x):
        return document.call("not", x=_xor(document, x, y))
    x, y = _as_scalars(document, aligned(document, (x, y)))
    return document.call("eq", x=x, y=y)


_COMPOSED: dict[str, Callable[..., Any]] = {
    "cube": _cube,
    "round": _round_to_even,
    "trunc": _trunc,
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
    "logical_xor": _xor,
    "add": _sum_or_either,
    "multiply": _product_or_both,
    "equal": _equals,
    "not_equal": _differs,
    "sign": lambda document, x: document.call("sign", x=x),  # of NaN NNEF says nothing
}
"""Functions that NNEF says by others, or in different ways for reals and booleans."""


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
    """Returns whether a bound is the infinity that all numbers are within."""
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
    if (constant := document.converted_constant(x, operator.dtype)) is not None:
        return constant
    value, content = document.tensor(x), content_of(operator.dtype)
    is_cut = content == "integer" and operator.dtype not in ("int32", "int64")
    if is_cut and value.content == content:
        own, made = np.iinfo(dtype_of(x)), np.iinfo(operator.dtype)
        is_cut = own.min < made.min or own.max > made.max
    if value.content == content and not is_cut:
        return value
    if is_cut:
        raise Unsayable(f"NNEF has no tensors of {operator.dtype}, whose numbers are cut to their width")
    return document.call("cast", content=content, input=value)


@says(Copy)
def _copy(document: Document, operator: Copy, x: Any) -> Any:
    return document.call("copy", x=document.tensor(x))
