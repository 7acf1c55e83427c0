"""Operators of sequences and optional values, which ONNX's reference evaluates otherwise than the standard's text says.

Each function takes a node's attributes and its inputs, and gives its result. Sequences are lists of arrays; an optional
value is the value itself.

Source: ONNX's text of the operators, of operator set 21.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OF_VALUES"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]
Elements = Sequence[Array]


def _inserted(_: Attributes, elements: Elements, element: Array, position: Array | None = None) -> Elements:
    at = len(elements) if position is None else _position(position, len(elements), len(elements))
    return [*elements[:at], element, *elements[at:]]


def _erased(_: Attributes, elements: Elements, position: Array | None = None) -> Elements:
    at = len(elements) - 1 if position is None else _position(position, len(elements))
    return [*elements[:at], *elements[at + 1 :]]


def _position(position: Array, count: int, maximum: int | None = None) -> int:
    number = int(position)
    if not -count <= number <= (count - 1 if maximum is None else maximum):
        raise ValueError("no such position")
    return number % count if number < 0 else number


def _split(given: Attributes, x: Array, sizes: Array | None = None) -> Elements:
    axis = given.get("axis", 0)
    size = x.shape[axis]
    if sizes is None:
        parts = np.split(x, size, axis) if size else []
        return parts if given.get("keepdims", 1) else [part.squeeze(axis) for part in parts]
    if sizes.ndim:
        if sizes.sum() != size:
            raise ValueError("the parts have other sizes than the tensor")
        return np.split(x, np.cumsum(sizes)[:-1], axis)
    return np.split(x, range(int(sizes), size, int(sizes)), axis) if size else []


def _concatenated(given: Attributes, elements: Elements) -> Array:
    return (np.stack if given.get("new_axis") else np.concatenate)(list(elements), given["axis"])


OF_VALUES: Mapping[str, Callable[..., Any]] = {
    "ConcatFromSequence": _concatenated,
    "Identity": lambda _, value: value,
    "Optional": lambda _, value: value,
    "OptionalGetElement": lambda _, value: value,
    "OptionalHasElement": lambda _, __: np.array(True),
    "SequenceAt": lambda _, elements, location: elements[_position(location, len(elements))],
    "SequenceConstruct": lambda _, *elements: list(elements),
    "SequenceEmpty": lambda _: [],
    "SequenceErase": _erased,
    "SequenceInsert": _inserted,
    "SequenceLength": lambda _, elements: np.array(len(elements), np.int64),
    "SplitToSequence": _split,
}
"""What takes or gives them, by its name."""
