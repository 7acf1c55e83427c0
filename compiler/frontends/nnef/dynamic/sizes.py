"""Evaluates operations on small tensors whose elements follow from input sizes, at compile time.

    s = tract_core_shape_of(x);                          [n, 64, t]
    d = squeeze(slice(s, axes=[0], begin=[2], end=[3]), axes=[0]);
    y = reshape(x, shape = [1, div(d, 2), -1]);          t // 2 is known as an expression of t

An operation of this table is computed at compile time if its operands are known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnefc.frontends.nnef.dynamic.values import Sizes, Value, integer, integers
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.arrays import ELEMENTWISE, Array, converted, is_dynamic, reduced
from nnefc.symbolic.values import Quotient, elementwise

__all__ = ["SIZE_FUNCTIONS", "cast_sizes", "simplified"]


def _slice(args: Mapping[str, Value]) -> Sizes:
    x, slices = args["input"], [slice(None)] * np.ndim(args["input"])
    axes = integers(args["axes"])
    strides = integers(args.get("stride") or []) or [1] * len(axes)
    for axis, begin, end, stride in zip(axes, integers(args["begin"]), integers(args["end"]), strides, strict=True):
        # An end of 0 is the end of the dimension, unless it is the beginning, too.
        slices[axis] = slice(begin, None if end == 0 and begin != 0 else end, stride)
    made: Sizes = x[tuple(slices)]
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
    return lambda args: reduced(function, np.asarray(args["input"], object), integers(args["axes"]))


_ELEMENTWISE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ["add", "sub", "mul", "div", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or"], ("x", "y")
    ),
    **dict.fromkeys(("neg", "floor", "ceil", "not"), ("x",)),
    "select": ("condition", "true_value", "false_value"),
}
"""Parameters of operations of elements."""

SIZE_FUNCTIONS: dict[str, Callable[[Mapping[str, Value]], Any]] = {
    **{name: _of(elementwise(ELEMENTWISE[name]), *names) for name, names in _ELEMENTWISE.items()},
    "tract_core_round_even": _of(elementwise(ELEMENTWISE["round"]), "x"),
    "copy": _of(np.copy, "x"),
    "slice": _slice,
    "reshape": _reshape,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "concat": lambda args: np.concatenate(args["values"], integer(args["axis"])),
    "stack": lambda args: np.stack(args["values"], integer(args["axis"])),
    "unstack": lambda args: [np.asarray(part, object) for part in np.moveaxis(args["value"], integer(args["axis"]), 0)],
    "sum_reduce": _reduced(operator.add),
    "tract_core_product_reduce": _reduced(operator.mul),
    "tract_core_gather": _gather,
}
"""Operations by name, on arguments whose tensors are arrays of Python objects."""


def cast_sizes(x: Sizes, dtype: str) -> Sizes:
    """A tensor of sizes in another element type: of reals, or without what is behind the point.

    Raises:
        CompileError: sizes cannot be of that type.
    """
    if dtype not in ("bool", "tdim") and not dtype.startswith(("float", "int", "uint")):
        raise CompileError(f"sizes cannot be converted to {dtype}")
    return converted(x, dtype)


def simplified(x: Sizes) -> Array:
    """The array of numbers, where all elements are; else the tensor of sizes."""
    if is_dynamic(x):
        return x
    numbers = [float(element) if isinstance(element, Quotient) else element for element in x.reshape(-1)]
    return np.array(numbers).reshape(x.shape)
