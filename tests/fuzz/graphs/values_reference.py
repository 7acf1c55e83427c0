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
Items = Sequence[Array]


def _inserted(_: Attributes, items: Items, item: Array, place: Array | None = None) -> Items:
    at = len(items) if place is None else _place(place, len(items), len(items))
    return [*items[:at], item, *items[at:]]


def _erased(_: Attributes, items: Items, place: Array | None = None) -> Items:
    at = len(items) - 1 if place is None else _place(place, len(items))
    return [*items[:at], *items[at + 1 :]]


def _place(place: Array, count: int, most: int | None = None) -> int:
    number = int(place)
    if not -count <= number <= (count - 1 if most is None else most):
        raise ValueError("no such position")
    return number % count if number < 0 else number


def _split(given: Attributes, x: Array, sizes: Array | None = None) -> Items:
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


def _concatenated(given: Attributes, items: Items) -> Array:
    return (np.stack if given.get("new_axis") else np.concatenate)(list(items), given["axis"])


OF_VALUES: Mapping[str, Callable[..., Any]] = {
    "ConcatFromSequence": _concatenated,
    "Identity": lambda _, value: value,
    "Optional": lambda _, value: value,
    "OptionalGetElement": lambda _, value: value,
    "OptionalHasElement": lambda _, __: np.array(True),
    "SequenceAt": lambda _, items, place: items[_place(place, len(items))],
    "SequenceConstruct": lambda _, *items: list(items),
    "SequenceEmpty": lambda _: [],
    "SequenceErase": _erased,
    "SequenceInsert": _inserted,
    "SequenceLength": lambda _, items: np.array(len(items), np.int64),
    "SplitToSequence": _split,
}
"""What takes or gives them, by its name."""
