"""Evaluates operations on small tensors whose elements follow from input sizes, at compile time.

    s = tract_core_shape_of(x);                          [n, 64, t]
    d = squeeze(slice(s, axes=[0], begin=[2], end=[3]), axes=[0]);
    y = reshape(x, shape = [1, div(d, 2), -1]);          t // 2 is known as an expression of t

An operation of this table is computed at compile time if its operands are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnefc.frontends.nnef.dynamic.values import Array, Sizes, Value, integer, integers
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import greatest, minimum
from nnefc.symbolic.values import (
    Condition,
    Quotient,
    both,
    chosen,
    either,
    elementwise,
    equal,
    less,
    less_or_equal,
    negated,
    quotient,
    rounded,
    truncated,
    whole_quotient,
)

__all__ = ["SIZE_FUNCTIONS", "cast_sizes", "simplified"]


def _real(*elements: Any) -> bool:
    return any(isinstance(element, Quotient) for element in elements)


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., Sizes]:
    """A function of two numbers, of quotients if one of them is a quotient."""

    def element(one: Any, other: Any) -> Any:
        return function(quotient(one), quotient(other)) if _real(one, other) else function(one, other)

    return elementwise(element)


def _quotient(one: Any, other: Any) -> Any:
    if _real(one, other):
        return quotient(one) / quotient(other)
    return whole_quotient(one, other)


def _extreme(function: Callable[[Any, Any], Any], first: Callable[[Any, Any], Any]) -> Callable[..., Sizes]:
    def element(one: Any, other: Any) -> Any:
        return chosen(first(one, other), one, other) if _real(one, other) else function(one, other)

    return elementwise(element)


def _floor(element: Any) -> Any:
    return Quotient(element.floor, 1) if isinstance(element, Quotient) else element


def _ceiling(element: Any) -> Any:
    return Quotient(-(-element).floor, 1) if isinstance(element, Quotient) else element


def _even(element: Any) -> Any:
    return Quotient(rounded(element), 1) if isinstance(element, Quotient) else element


def _slice(args: Mapping[str, Value]) -> Sizes:
    x, locations = args["input"], [slice(None)] * np.ndim(args["input"])
    axes = integers(args["axes"])
    strides = integers(args.get("stride") or []) or [1] * len(axes)
    for axis, begin, end, stride in zip(axes, integers(args["begin"]), integers(args["end"]), strides, strict=True):
        # An end of 0 is the end of the dimension, unless it is the beginning, too.
        locations[axis] = slice(begin, None if end == 0 and begin != 0 else end, stride)
    made: Sizes = x[tuple(locations)]
    return made


def _reshape(args: Mapping[str, Value]) -> Sizes:
    wanted = [np.shape(args["input"])[i] if size == 0 else size for i, size in enumerate(integers(args["shape"]))]
    made: Sizes = np.reshape(args["input"], wanted)
    return made


def _unsqueeze(args: Mapping[str, Value]) -> Sizes:
    made: Sizes = np.expand_dims(args["input"], tuple(integers(args["axes"])))
    return made


def _squeeze(args: Mapping[str, Value]) -> Sizes:
    made: Sizes = np.squeeze(args["input"], tuple(integers(args["axes"])))
    return np.asarray(made, object)


def _of(function: Callable[..., Any], *names: str) -> Callable[[Mapping[str, Value]], Sizes]:
    return lambda args: function(*(args[name] for name in names))


def _gather(args: Mapping[str, Value]) -> Sizes:
    positions = np.asarray(args["indices"]).astype(np.int64)
    return np.asarray(np.take(args["input"], positions, axis=integer(args.get("axis", 0))), object)


def _reduced(function: Callable[[Any, Any], Any]) -> Callable[[Mapping[str, Value]], Sizes]:
    def whole(args: Mapping[str, Value]) -> Sizes:
        x = np.asarray(args["input"], object)
        for axis in integers(args["axes"]):
            x = np.asarray(np.frompyfunc(function, 2, 1).reduce(x, axis=axis, keepdims=True), object)
        return x

    return whole


_X, _XY = ("x",), ("x", "y")

SIZE_FUNCTIONS: dict[str, Callable[[Mapping[str, Value]], Any]] = {
    "add": _of(_arithmetic(lambda one, other: one + other), *_XY),
    "sub": _of(_arithmetic(lambda one, other: one - other), *_XY),
    "mul": _of(_arithmetic(lambda one, other: one * other), *_XY),
    "div": _of(elementwise(_quotient), *_XY),
    "min": _of(_extreme(minimum, less), *_XY),
    "max": _of(_extreme(greatest, lambda one, other: less(other, one)), *_XY),
    "neg": _of(elementwise(lambda element: -element), *_X),
    "copy": _of(np.copy, *_X),
    "floor": _of(elementwise(_floor), *_X),
    "ceil": _of(elementwise(_ceiling), *_X),
    "tract_core_round_even": _of(elementwise(_even), *_X),
    "eq": _of(elementwise(equal), *_XY),
    "ne": _of(elementwise(lambda one, other: negated(equal(one, other))), *_XY),
    "lt": _of(elementwise(less), *_XY),
    "le": _of(elementwise(less_or_equal), *_XY),
    "gt": _of(elementwise(lambda one, other: less(other, one)), *_XY),
    "ge": _of(elementwise(lambda one, other: less_or_equal(other, one)), *_XY),
    "and": _of(elementwise(both), *_XY),
    "or": _of(elementwise(either), *_XY),
    "not": _of(elementwise(negated), *_X),
    "select": _of(elementwise(chosen), "condition", "true_value", "false_value"),
    "slice": _slice,
    "reshape": _reshape,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "concat": lambda args: np.concatenate(args["values"], integer(args["axis"])),
    "stack": lambda args: np.stack(args["values"], integer(args["axis"])),
    "unstack": lambda args: [np.asarray(part, object) for part in np.moveaxis(args["value"], integer(args["axis"]), 0)],
    "sum_reduce": _reduced(lambda one, other: one + other),
    "tract_core_product_reduce": _reduced(lambda one, other: one * other),
    "tract_core_gather": _gather,
}
"""By the names of operations: what each makes of its arguments, of which tensors are arrays of objects."""


def cast_sizes(x: Sizes, dtype: str) -> Sizes:
    """A tensor of sizes in another element type: of reals, or without what is behind the point.

    Raises:
        CompileError: sizes cannot be of that type.
    """
    if dtype.startswith("float"):
        return np.asarray(elementwise(lambda i: i if isinstance(i, Quotient) else quotient(_whole(i)))(x), object)
    if dtype == "bool":
        return np.asarray(elementwise(lambda i: i if isinstance(i, bool | Condition) else negated(equal(i, 0)))(x))
    if dtype == "tdim" or dtype.startswith(("int", "uint")):
        return np.asarray(elementwise(_whole)(x), object)
    raise CompileError(f"sizes cannot be converted to {dtype}")


def _whole(element: Any) -> Any:
    if isinstance(element, Quotient):
        return truncated(element)
    return element.size if isinstance(element, Condition) else element


def simplified(x: Sizes) -> Array:
    """The array of numbers, where all elements are; else the tensor of sizes."""
    elements = list(x.reshape(-1))
    if all(
        isinstance(element, bool | int | np.generic) or (_real(element) and element.is_known) for element in elements
    ):
        numbers = [float(element) if _real(element) else element for element in elements]
        return np.array(numbers).reshape(x.shape)
    return x
