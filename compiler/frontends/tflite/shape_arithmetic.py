"""Computes small integer tensors that follow from dynamic dimensions, as exporters write shapes.

SHAPE(x) = [n, 3, h, w];  STRIDED_SLICE(…, 0:1) = [n];  PACK(n, 27) = [n, 27], the shape of a RESHAPE
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnefc.frontends.refusals import REFUSALS
from nnefc.frontends.tflite.lowering import Node, Value
from nnefc.frontends.tflite.slicing import python_index
from nnefc.operators.base import Array
from nnefc.symbolic.arrays import of_elements, reduced
from nnefc.symbolic.dims import greatest, is_known, minimum
from nnefc.symbolic.values import elementwise

__all__ = ["computed_sizes"]

_MAX_ELEMENTS = 64
_TYPES = ("int32", "int64")


def computed_sizes(node: Node) -> list[Value] | None:
    """The results of an operator on sizes; None if it has no operands of that kind, or is computed at run time."""
    if node.name == "SHAPE":
        shape = node.shape(0)
        return None if is_known(*shape) else [_value(of_elements(shape, (len(shape),)), node)]
    given = [value for value in node.inputs if value is not None]
    rule = _RULES.get(node.name)
    if rule is None or not any(value.sizes is not None for value in given):
        return None
    if any(value.dtype not in _TYPES for value in given) or node.outputs[0].dtype not in _TYPES:
        return None
    arrays = [value.sizes if value.sizes is not None else value.operand for value in given]
    if not all(isinstance(array, np.ndarray) and array.size <= _MAX_ELEMENTS for array in arrays):
        return None
    try:
        made = rule(node, arrays)
    except REFUSALS:  # the operator's own lowering says what is wrong
        return None
    if made is None:
        return None
    array = np.asarray(made, object)
    return None if array.size > _MAX_ELEMENTS else [_value(array, node)]


def _value(array: Array, node: Node) -> Value:
    """A known tensor where no size is left in it."""
    dtype = node.outputs[0].dtype
    if is_known(*array.reshape(-1)):
        return Value(array.astype(dtype), dtype)
    return Value(None, dtype, sizes=array)


_Rule = Callable[[Node, Sequence[Any]], Any]


def _each(function: Callable[..., Any]) -> _Rule:
    return lambda _, given: elementwise(function)(*(np.asarray(each, object) for each in given))


def _reduced(function: Callable[[Any, Any], Any]) -> _Rule:
    def rule(node: Node, given: Sequence[Any]) -> Any:
        axes = [int(axis) for axis in given[1].reshape(-1)]
        return reduced(function, np.asarray(given[0], object), axes, node.options.keep_dims)

    return rule


def _gather(node: Node, given: Sequence[Any]) -> Any:
    if node.options.batch_dims or given[1].dtype == object:
        return None
    return np.take(given[0], given[1], axis=node.options.axis)


def _slice(_: Node, given: Sequence[Any]) -> Any:
    begin, count = (given[k].reshape(-1).tolist() for k in (1, 2))
    return given[0][tuple(slice(a, None if n == -1 else a + n) for a, n in zip(begin, count, strict=True))]


def _strided_slice(node: Node, given: Sequence[Any]) -> Any:
    if any(each.dtype == object for each in given[1:]):
        return None
    return given[0][python_index(node.options, given[1], given[2], given[3], given[0].ndim)]


_RULES: dict[str, _Rule] = {
    "ADD": _each(op.add),
    "SUB": _each(op.sub),
    "MUL": _each(op.mul),
    "FLOOR_DIV": _each(op.floordiv),
    "DIV": _each(op.floordiv),
    "FLOOR_MOD": _each(op.mod),
    "MAXIMUM": _each(greatest),
    "MINIMUM": _each(minimum),
    "REDUCE_PROD": _reduced(op.mul),
    "SUM": _reduced(op.add),
    "REDUCE_MAX": _reduced(greatest),
    "REDUCE_MIN": _reduced(minimum),
    "CAST": lambda _, given: given[0],
    "PACK": lambda node, given: np.stack([np.asarray(each, object) for each in given], node.options.axis),
    "CONCATENATION": lambda node, given: np.concatenate([np.asarray(e, object) for e in given], node.options.axis),
    "RESHAPE": lambda _, given: given[0].reshape([int(size) for size in given[1].reshape(-1)]),
    "SQUEEZE": lambda _, given: given[0].reshape(()) if given[0].size == 1 else given[0],
    "EXPAND_DIMS": lambda _, given: np.expand_dims(given[0], int(given[1].reshape(-1)[0])),
    "GATHER": _gather,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
}
