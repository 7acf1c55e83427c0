"""Evaluates tensors of symbolic sizes at compile time, which models compute from shapes.

    shape = Shape(x)                      [n, 3, h, w]
    half = Div(Gather(shape, [2, 3]), 2)  [h // 2, w // 2]
    Resize(x, sizes = Concat(…, half))    a tensor of the shape [n, 3, h // 2, w // 2]

Such a tensor is an array of objects: numbers and `Size`s, and `Quotient`s and `Condition`s between them. NumPy computes
with it as with others.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np

from nnefc.frontends.refusals import REFUSALS
from nnefc.operators.dtypes import dtype_name, is_float
from nnefc.symbolic.arrays import ELEMENTWISE, Array, converted, of_elements, reduced
from nnefc.symbolic.dims import Size, ceil_div
from nnefc.symbolic.values import Quotient, elementwise, quotient

__all__ = ["computed", "result_type"]

_Operands: TypeAlias = Sequence[Array | None]
_Attributes: TypeAlias = Mapping[str, Any]
_Rule: TypeAlias = Callable[[_Attributes, _Operands], "Array | list[Array] | None"]

_TYPES = {1: "float32", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64", 16: "bfloat16"}
"""Element types that tensors of sizes may have, by their numbers in ONNX."""
_COMPARISONS = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or"})
_MAX_ELEMENTS = 1 << 8
"""Elements of operands and results, at most; larger ones are computed by kernels."""
_UNLIMITED = float(np.finfo(np.float32).max)
"""The default bound of `Clip`, in versions that have its bounds as attributes."""


def result_type(op_type: str, attributes: _Attributes, operands: Sequence[str]) -> str:
    """The element type of what an operator makes of tensors of sizes, from those of its operands."""
    if op_type == "Cast":
        return _TYPES[attributes["to"]]
    if op_type in _COMPARISONS:
        return "bool"
    return operands[1 if op_type == "Where" else 0]


def computed(op_type: str, attributes: _Attributes, operands: _Operands) -> list[Array] | None:
    """Evaluates an ONNX operator on tensors of sizes; None if the result is not known at compile time.

    Args:
        attributes: with `num_outputs` of a `Split`, which older versions of it do not have.
        operands: arrays of objects, or of numbers where all is known; None for one that is not given.
    """
    rule = _RULES.get(op_type)
    if rule is None or any(operand is not None and operand.size > _MAX_ELEMENTS for operand in operands):
        return None
    try:
        made = rule(attributes, [None if operand is None else _exact(operand) for operand in operands])
    except REFUSALS:  # the operator's own lowering says what is wrong
        return None
    if made is None:
        return None
    results = [np.asarray(array, object) for array in (made if isinstance(made, list) else [made])]
    return results if all(array.size <= _MAX_ELEMENTS for array in results) else None


def _limited(count: int) -> None:
    """Raises an error before so many elements are made if they are too many."""
    if count > _MAX_ELEMENTS:
        raise ValueError(f"{count} elements of sizes are computed at run time")


def _itemwise(function: Callable[..., Any], *arrays: Array) -> Array:
    """The function on all elements of arrays, which broadcast."""
    _limited(math.prod(np.broadcast_shapes(*(array.shape for array in arrays))))
    made: Array = elementwise(function)(*arrays)
    return made


def _exact(array: Array) -> Array:
    """Reals as quotients; other arrays as they are."""
    return _itemwise(lambda element: quotient(element), array) if is_float(dtype_name(array.dtype)) else array


def _cast(attributes: _Attributes, operands: _Operands) -> Array | None:
    data, to = operands[0], _TYPES.get(attributes["to"])
    return None if data is None or to is None else converted(data, to)


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
        if step < 0:
            start, end = max(start, -data.shape[axis]), None if end < -data.shape[axis] else end
        parts[axis] = slice(start, end, step)
    return data[tuple(parts)]


def _concat(attributes: _Attributes, operands: _Operands) -> Array | None:
    arrays = [operand for operand in operands if operand is not None]
    return np.concatenate([array.astype(object) for array in arrays], axis=attributes.get("axis", 1))


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


def _clip(attributes: _Attributes, operands: _Operands) -> Array | None:
    data, low, high = [*operands, None, None][:3]
    if data is None:
        return None
    if attributes.get("min", -_UNLIMITED) > -_UNLIMITED:
        low = of_elements([quotient(attributes["min"])], ())
    if attributes.get("max", _UNLIMITED) < _UNLIMITED:
        high = of_elements([quotient(attributes["max"])], ())
    data = data if low is None else _itemwise(ELEMENTWISE["max"], data, low)
    return data if high is None else _itemwise(ELEMENTWISE["min"], data, high)


def _range(_: _Attributes, operands: _Operands) -> Array | None:
    """Return the elements of a `Range` whose number of elements is known."""
    start, limit, step = (operand.astype(object).reshape(-1)[0] for operand in operands if operand is not None)
    if any(isinstance(part, Quotient) for part in (start, limit, step)) or isinstance(step, Size):
        return None
    count = ceil_div(limit - start, step) if step > 0 else ceil_div(start - limit, -step)
    if isinstance(count, Size):
        return None
    _limited(count)
    return of_elements([start + step * index for index in range(count)], (max(count, 0),))


def _expand(_: _Attributes, operands: _Operands) -> Array | None:
    data, shape = operands[:2]
    if data is None or shape is None or shape.dtype == object:
        return None
    target = np.broadcast_shapes(data.shape, tuple(map(int, shape)))
    _limited(math.prod(target))
    return np.broadcast_to(data, target)


def _tile(_: _Attributes, operands: _Operands) -> Array | None:
    data, repeats = operands[:2]
    if data is None or repeats is None or repeats.dtype == object:
        return None
    _limited(data.size * math.prod(map(int, repeats)))
    return np.tile(data, repeats)


def _split(attributes: _Attributes, operands: _Operands) -> list[Array] | None:
    """Parts of given sizes, or as many equal ones as there are outputs, of which the last may be smaller."""
    data, axis = operands[0], attributes.get("axis", 0)
    given = operands[1] if len(operands) > 1 else attributes.get("split")
    if data is None:
        return None
    if given is None:
        count = attributes["num_outputs"]
        given = [-(-data.shape[axis] // count)] * count
    sizes = np.asarray(given)
    if sizes.dtype == object:
        return None
    return list(np.split(data, np.cumsum(sizes)[:-1], axis))


def _scatter(
    write: Callable[[Array, Array, Array, _Attributes], None],
) -> Callable[[_Attributes, _Operands], Array | None]:
    def rule(attributes: _Attributes, operands: _Operands) -> Array | None:
        data, indices, updates = operands[:3]
        if data is None or indices is None or updates is None or indices.dtype == object:
            return None
        if attributes.get("reduction", "none") != "none":
            return None
        made = data.astype(object)
        write(made, indices, updates.astype(object), attributes)
        return made

    return rule


def _gathered(data: Array, indices: Array, axis: int) -> Array:
    """Returns the coordinates of the data that indices along an axis select, one per index.

    NumPy broadcasts a single index; other shapes do not reach its functions.
    """
    if data.ndim != indices.ndim:
        raise ValueError("indices of elements have as many dimensions as the data")
    along = range(data.ndim)[axis]
    if any(each != along and indices.shape[each] > data.shape[each] for each in range(data.ndim)):
        raise ValueError("indices of elements are no more than the data")
    return data[tuple(slice(None if each == along else size) for each, size in enumerate(indices.shape))]


def _write_elements(made: Array, indices: Array, updates: Array, attributes: _Attributes) -> None:
    if updates.shape != indices.shape:
        raise ValueError("each index has one update")
    axis = attributes.get("axis", 0)
    np.put_along_axis(_gathered(made, indices, axis), indices, updates, axis)


def _write_values(made: Array, indices: Array, updates: Array, _: _Attributes) -> None:
    made[tuple(np.moveaxis(indices, -1, 0))] = updates


def _gather_elements(attributes: _Attributes, operands: _Operands) -> Array | None:
    data, indices = operands[:2]
    if data is None or indices is None or indices.dtype == object:
        return None
    axis = attributes.get("axis", 0)
    return np.take_along_axis(_gathered(data, indices, axis), indices, axis)


def _cumulated(attributes: _Attributes, operands: _Operands) -> Array | None:
    data, axis = operands[:2]
    if data is None or axis is None or axis.dtype == object or attributes.get("exclusive") or attributes.get("reverse"):
        return None
    return np.cumsum(data.astype(object), int(axis.reshape(-1)[0]))


def _elements(function: Callable[..., Any]) -> _Rule:
    """The rule of an operator of elements; one of two operands joins more from the left."""

    def rule(_: _Attributes, operands: _Operands) -> Array | None:
        arrays = [operand.astype(object) for operand in operands if operand is not None]
        if len(arrays) < len(operands):
            return None
        count = function.__code__.co_argcount
        return _itemwise(function, *arrays) if len(arrays) == count else reduce(partial(_itemwise, function), arrays)

    return rule


def _remainder(attributes: _Attributes, operands: _Operands) -> Array | list[Array] | None:
    return _elements(ELEMENTWISE["fmod" if attributes.get("fmod") else "mod"])(attributes, operands)


def _reduce(function: Callable[..., Any]) -> Callable[[_Attributes, _Operands], Array | None]:
    def rule(attributes: _Attributes, operands: _Operands) -> Array | None:
        data, axes = operands[0], _axes(attributes, operands)
        if data is None or (axes is None and len(operands) > 1 and operands[1] is not None):
            return None
        if not axes and attributes.get("noop_with_empty_axes"):
            return data
        along = tuple(axes or range(data.ndim))
        return reduced(function, data, along, bool(attributes.get("keepdims", 1)))

    return rule


_ELEMENTWISE = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Pow": "pow",
    "Neg": "neg",
    "Abs": "abs",
    "Max": "max",
    "Min": "min",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Not": "not",
    "And": "and",
    "Or": "or",
    "Where": "select",
}
"""Operators of elements, by the names of their functions."""

_RULES: Mapping[str, _Rule] = {
    "Identity": lambda _, operands: operands[0],
    "Cast": _cast,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Expand": _expand,
    "Tile": _tile,
    "Transpose": lambda attributes, operands: (
        None if operands[0] is None else operands[0].transpose(attributes.get("perm"))
    ),
    "Range": _range,
    "ScatterElements": _scatter(_write_elements),
    "ScatterND": _scatter(_write_values),
    "CumSum": _cumulated,
    "Mod": _remainder,
    "Clip": _clip,
    **{name: _elements(ELEMENTWISE[function]) for name, function in _ELEMENTWISE.items()},
    "ReduceProd": _reduce(operator.mul),
    "ReduceSum": _reduce(operator.add),
    "ReduceMax": _reduce(ELEMENTWISE["max"]),
    "ReduceMin": _reduce(ELEMENTWISE["min"]),
}
