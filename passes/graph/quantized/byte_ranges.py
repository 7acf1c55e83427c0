"""Derives the range of bytes from the operators that round and clamp them.

    q = astype(round(clip(x, 0, 127)), "int8")       q is in 0 … 127

What ReLU or a quantizer of 7 bits leaves out is proved so, whatever numbers come in: products with fewer bits are
faster on some processors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from nnefc.passes.graph.rewriter import array_of, is_call, is_constant

__all__ = ["byte_range"]

Range = tuple[float, float]

_STEPS = ("add", "astype", "clip", "maximum", "minimum", "nn.relu", "round")
_MOVES = ("expand_dims", "permute_dims", "reshape", "squeeze", "strided_slice")
_TYPES = ("float32", "int32", "int8", "uint8")
_LONGEST = 16
"""The largest number of operators that are followed back."""


def byte_range(expr: relax.Expr, definition: Callable[[relax.Expr], relax.Expr | None]) -> tuple[int, int]:
    """Returns bounds of the elements of a tensor of bytes.

    Args:
        definition: what a variable is bound to.
    """
    calls: list[tuple[relax.Call, str]] = []
    for _ in range(_LONGEST):
        call = definition(expr)
        if not is_call(call, *_STEPS, *_MOVES) or str(call.args[0].ty.dtype) not in _TYPES:
            break
        calls.append((call, str(expr.ty.dtype)))
        expr = call.args[0]
    found = _range_of_type(str(expr.ty.dtype))
    for call, dtype in reversed(calls):
        found = _range_after(call, dtype, found)
    return math.ceil(found[0]), math.floor(found[1])


def _range_of_type(dtype: str) -> Range:
    if dtype == "float32":
        return -math.inf, math.inf
    return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)


def _range_after(call: relax.Call, dtype: str, before: Range) -> Range:
    """Returns the range of the result of an operator whose operand is in a range."""
    if is_call(call, *_MOVES):
        return before
    if is_call(call, "round"):
        return float(np.rint(before[0])), float(np.rint(before[1]))
    if is_call(call, "astype"):
        return _within(dtype, before) if dtype != "float32" else before
    bounds = _bounds_of(call)
    if bounds is None:
        return _range_of_type(dtype)
    if is_call(call, "add"):
        low, high = (float(np.float32(a) + np.float32(b)) for a, b in zip(before, bounds, strict=True))
        return (low, high) if dtype == "float32" else _within(dtype, (low, high))
    minimum, maximum = before
    if is_call(call, "clip", "maximum", "nn.relu"):
        minimum = max(minimum, bounds[0])
        maximum = max(maximum, bounds[0] if is_call(call, "clip") else bounds[1])
    if is_call(call, "clip", "minimum"):
        minimum = min(minimum, bounds[1] if is_call(call, "clip") else bounds[0])
        maximum = min(maximum, bounds[1])
    return minimum, maximum


def _within(dtype: str, bounds: Range) -> Range:
    """Returns the bounds of whole numbers, or of floats without their fractions, if a type holds them; else its own,
    for other numbers wrap around."""
    whole = _range_of_type(dtype)
    return bounds if whole[0] <= bounds[0] and bounds[1] <= whole[1] else whole


def _bounds_of(call: relax.Call) -> Range | None:
    """Returns the smallest and the largest constant that an operator adds, or clamps to; None if it is unknown."""
    if is_call(call, "nn.relu"):
        return 0.0, 0.0
    if is_call(call, "clip"):
        low, high = (float(np.float32(bound.value)) for bound in call.args[1:])
        return low, high
    if not is_constant(call.args[1]):
        return None
    values = array_of(call.args[1]).astype(np.float32)
    if not values.size or not np.isfinite(values).all():
        return None
    return float(values.min()), float(values.max())
