"""Tensors of sizes that are known at run time: what models compute from shapes, at compile time.

    shape = Shape(x)                      [n, 3, h, w]
    half = Div(Gather(shape, [2, 3]), 2)  [h // 2, w // 2]
    Resize(x, sizes = Concat(…, half))    a tensor of the shape [n, 3, h // 2, w // 2]

Such a tensor is an array of objects: numbers, and `Size`s. NumPy computes with it as with others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnefc.sizes import Size, bounds

__all__ = ["INTEGERS", "computed", "is_open", "sizes_array"]

Array: TypeAlias = npt.NDArray[Any]
_Operands: TypeAlias = Sequence[Array | None]
_Attributes: TypeAlias = Mapping[str, Any]

INTEGERS = {6: "int32", 7: "int64"}
"""Element types that sizes may have, by their numbers in ONNX."""
_MOST_ITEMS = 1 << 12


def sizes_array(items: Sequence[Any], shape: Sequence[int]) -> Array:
    """An array of numbers and sizes."""
    made = np.empty(len(items), object)
    made[:] = list(items)
    return made.reshape(tuple(shape))


def is_open(array: Array) -> bool:
    """Whether an array has sizes in it that are known at run time."""
    return array.dtype == object and any(isinstance(item, Size) for item in array.reshape(-1))


def computed(op_type: str, attributes: _Attributes, operands: _Operands) -> Array | None:
    """What an operator of ai.onnx makes of tensors of sizes; None if that is not known at compile time.

    Args:
        operands: arrays of objects, or of integers where all is known; None for one that is not given.
    """
    rule = _RULES.get(op_type)
    if rule is None or any(operand is not None and operand.size > _MOST_ITEMS for operand in operands):
        return None
    made = rule(attributes, operands)
    return None if made is None else np.asarray(made, object)


def _cast(attributes: _Attributes, operands: _Operands) -> Array | None:
    return operands[0] if attributes["to"] in INTEGERS else None


def _gather(attributes: _Attributes, operands: _Operands) -> Array | None:
    data, indices = operands[:2]
    if data is None or indices is None or indices.dtype == object:
        return None
    return np.take(data, indices, axis=attributes.get("axis", 0))


def _slice(attributes: _Attributes, operands: _Operands) -> Array | None:
    data = operands[0]
    if data is None or any(part is not None and part.dtype == object for part in operands[1:]):
        return None
    lists: list[list[int] | None] = [None if part is None else part.reshape(-1).tolist() for part in operands[1:]]
    starts, ends, axes, steps = lists + [None] * (4 - len(lists))
    starts, ends = starts or attributes.get("starts"), ends or attributes.get("ends")
    if starts is None or ends is None:
        return None
    axes = axes or attributes.get("axes") or list(range(len(starts)))
    parts = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        if step < 0 and end < -data.shape[axis]:
            end = None
        parts[axis] = slice(start, end, step)
    return data[tuple(parts)]


def _concat(attributes: _Attributes, operands: _Operands) -> Array | None:
    arrays = [operand for operand in operands if operand is not None]
    return np.concatenate([array.astype(object) for array in arrays], axis=attributes["axis"])


def _axes(attributes: _Attributes, operands: _Operands) -> list[int] | None:
    given = operands[1] if len(operands) > 1 else None
    if given is not None:
        return None if given.dtype == object else [int(axis) for axis in given.reshape(-1)]
    axes = attributes.get("axes")
    return None if axes is None else list(axes)


def _squeeze(attributes: _Attributes, operands: _Operands) -> Array | None:
    data, axes = operands[0], _axes(attributes, operands)
    return None if data is None else np.squeeze(data, None if axes is None else tuple(axes))


def _unsqueeze(attributes: _Attributes, operands: _Operands) -> Array | None:
    data, axes = operands[0], _axes(attributes, operands)
    return None if data is None or axes is None else np.expand_dims(data, tuple(axes))


def _reshape(_: _Attributes, operands: _Operands) -> Array | None:
    data, shape = operands[:2]
    if data is None or shape is None or shape.dtype == object:
        return None
    return data.reshape([data.shape[axis] if size == 0 else int(size) for axis, size in enumerate(shape)])


def _divide(_: _Attributes, operands: _Operands) -> Array | None:
    left, right = operands[:2]
    if left is None or right is None:
        return None
    # a quotient is rounded towards zero: as it is downwards where nothing is negative
    least = min((bounds(size)[0] for part in (left, right) for size in part.reshape(-1).tolist()), default=0)
    least_divisor = min((bounds(size)[0] for size in right.reshape(-1).tolist()), default=1)
    return left // right if least >= 0 and least_divisor > 0 else None


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[_Attributes, _Operands], Array | None]:
    def rule(_: _Attributes, operands: _Operands) -> Array | None:
        left, right = operands[:2]
        return None if left is None or right is None else function(left.astype(object), right.astype(object))

    return rule


def _reduce(function: Callable[..., Any]) -> Callable[[_Attributes, _Operands], Array | None]:
    def rule(attributes: _Attributes, operands: _Operands) -> Array | None:
        data, axes = operands[0], _axes(attributes, operands)
        if data is None:
            return None
        along = tuple(range(data.ndim)) if axes is None else tuple(axes)
        made: Array = function(data, axis=along, keepdims=bool(attributes.get("keepdims", 1)))
        return made

    return rule


_RULES: Mapping[str, Callable[[_Attributes, _Operands], Array | None]] = {
    "Identity": lambda _, operands: operands[0],
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Add": _binary(lambda a, b: a + b),
    "Sub": _binary(lambda a, b: a - b),
    "Mul": _binary(lambda a, b: a * b),
    "Div": _divide,
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
}
