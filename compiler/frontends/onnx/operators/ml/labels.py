"""Operators of ai.onnx.ml that map elements to others: LabelEncoder, CategoryMapper."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import Array, fail, input_at
from nnefc.operators.ml.lookup import Positions
from nnefc.operators.tensor.indexing import Gather

__all__ = ["encoded", "positions"]

_ML = "ai.onnx.ml"

_KINDS = {"strings": object, "int64s": np.int64, "floats": np.float32}


def positions(ctx: Context, x: Value, keys: Array) -> Value:
    """Returns the indices of elements among keys of their type, int64; the number of keys for an element that is no
    key.
    """
    made: Value = ctx.apply(Positions(keys), x)
    return made


def encoded(ctx: Context, x: Value, keys: Array, values: Array, default: Any) -> Value:
    """The value of each element's key, or the default for an element that is none of the keys."""
    table = np.empty(len(values) + 1, values.dtype)
    table[:-1], table[-1] = values, default
    made: Value = ctx.apply(Gather(outside="clip"), ctx.known(table), positions(ctx, x, keys))
    return made


def _listed(node: Node, role: str) -> Array | None:
    """The keys or the values of an encoder, in whichever attribute they are."""
    tensor = node.attributes.get(f"{role}_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    for kind, dtype in _KINDS.items():
        given = node.attributes.get(f"{role}_{kind}")
        if given:
            return np.array(given, dtype)
    return None


def _default(node: Node, values: Array) -> Any:
    """Returns an encoder's default for elements that are no keys."""
    given = node.attributes
    tensor = given.get("default_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)[0]
    if values.dtype == object:
        return given.get("default_string", "_Unused")
    if values.dtype.kind == "f":
        return given.get("default_float", -0.0)
    return given.get("default_int64", -1)


@operator("LabelEncoder", since=(2, 4), domain=_ML)
def _label_encoder(ctx: Context, node: Node) -> Value:
    x, keys, values = input_at(node, 0), _listed(node, "keys"), _listed(node, "values")
    if keys is None or values is None or len(keys) != len(values):
        counts = [0 if part is None else len(part) for part in (keys, values)]
        raise fail(node, f"it has {counts[0]} keys and {counts[1]} values")
    if (keys.dtype == object) != (x.dtype == "string"):
        raise fail(node, f"its keys do not fit a tensor of {x.dtype}")
    if keys.dtype != object and str(keys.dtype) != x.dtype:
        keys = keys.astype(x.dtype)
    return encoded(ctx, x, keys, values, _default(node, values))


@operator("LabelEncoder", since=(1,), domain=_ML)
def _first_label_encoder(ctx: Context, node: Node) -> Value:
    """Classes stand for their positions."""
    given = node.attributes.get("classes_strings")
    return _by_pairs(ctx, node, given, None if given is None else range(len(given)))


@operator("CategoryMapper", since=(1,), domain=_ML)
def _category_mapper(ctx: Context, node: Node) -> Value:
    return _by_pairs(ctx, node, node.attributes.get("cats_strings"), node.attributes.get("cats_int64s"))


def _by_pairs(ctx: Context, node: Node, strings: Any, integers: Any) -> Value:
    """Strings become integers, and integers strings."""
    x, given = input_at(node, 0), node.attributes
    if not strings or not integers or len(strings) != len(integers):
        raise fail(node, f"it has {len(strings or ())} strings and {len(integers or ())} integers")
    words, numbers = np.array(strings, object), np.array(integers, np.int64)
    if x.dtype == "string":
        return encoded(ctx, x, words, numbers, given["default_int64"])
    return encoded(ctx, x, numbers, words, given["default_string"])
