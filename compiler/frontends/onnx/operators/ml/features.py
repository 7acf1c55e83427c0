"""Feature operators of ai.onnx.ml: preprocessing of classical models, and ZipMap after them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.ml.labels import positions
from nnefc.frontends.onnx.operators.tensors import fail, input_at
from nnefc.frontends.onnx.values import Map
from nnefc.operators.ml.features import FeatureVectors, Imputed, Normalized, OneHotCategories, Scaled
from nnefc.operators.nn.activation import Binarizer

__all__: list[str] = []

_ML = "ai.onnx.ml"


@operator("ArrayFeatureExtractor", since=(1,), domain=_ML)
def _array_feature_extractor(ctx: Context, node: Node) -> list[Any]:
    """Elements along the last axis; those of a vector are a matrix with one row."""
    data, indices = input_at(node, 0), input_at(node, 1)
    if data.rank == 1:
        data = _as(ctx, data, (1, *data.shape))
    flat = _as(ctx, indices, (-1,))
    return ctx.call("Gather", data, flat, axis=data.rank - 1)


def _as(ctx: Context, value: Value, shape: tuple[int, ...]) -> Value:
    (made,) = ctx.call("Reshape", value, ctx.known(np.array(shape, np.int64)))
    assert isinstance(made, Value)
    return made


@operator("Binarizer", since=(1,), domain=_ML)
def _binarizer(ctx: Context, node: Node) -> Any:
    return ctx.apply(Binarizer(node.attributes["threshold"]), input_at(node, 0))


@operator("Scaler", since=(1,), domain=_ML)
def _scaler(ctx: Context, node: Node) -> Any:
    offset, scale = (np.array(node.attributes.get(name) or [default]) for name, default in _SCALER)
    return ctx.apply(Scaled(offset, scale), input_at(node, 0))


_SCALER = (("offset", 0.0), ("scale", 1.0))


@operator("Normalizer", since=(1,), domain=_ML)
def _normalizer(ctx: Context, node: Node) -> Any:
    return ctx.apply(Normalized(node.attributes["norm"]), input_at(node, 0))


@operator("Imputer", since=(1,), domain=_ML)
def _imputer(ctx: Context, node: Node) -> Any:
    x, given = input_at(node, 0), node.attributes
    kind = "float" if x.dtype.startswith("float") else "int64"
    values = given.get(f"imputed_value_{kind}s")
    if not values:
        raise fail(node, f"it has no 'imputed_value_{kind}s' for elements of {x.dtype}")
    return ctx.apply(Imputed(given[f"replaced_value_{kind}"], np.array(values)), x)


@operator("OneHotEncoder", since=(1,), domain=_ML)
def _one_hot_encoder(ctx: Context, node: Node) -> Any:
    """Lower `OneHotEncoder`; strings are looked up among the categories first."""
    x, given = input_at(node, 0), node.attributes
    is_text = x.dtype == "string"
    categories = given.get("cats_strings" if is_text else "cats_int64s")
    if not categories:
        raise fail(node, f"it has no categories for a tensor of {x.dtype}")
    if is_text:
        x, categories = positions(ctx, x, np.array(categories, object)), range(len(categories))
    return ctx.apply(OneHotCategories(np.array(categories, np.int64), bool(given["zeros"])), x)


@operator("FeatureVectorizer", since=(1,), domain=_ML)
def _feature_vectorizer(ctx: Context, node: Node) -> Any:
    parts = [input_at(node, index) for index in range(len(node.inputs))]
    widths = node.attributes.get("inputdimensions") or [part.shape[-1] if part.rank == 2 else 1 for part in parts]
    return ctx.apply(FeatureVectors(tuple(widths)), *parts)


@operator("DictVectorizer", since=(1,), domain=_ML)
def _dict_vectorizer(ctx: Context, node: Node) -> Any:
    """Lower `DictVectorizer` of a map whose keys are known at compile time."""
    given, source = node.attributes, node.operands[0]
    words = given.get("int64_vocabulary") or given.get("string_vocabulary")
    if not isinstance(source, Map) or not words:
        raise fail(node, "its input must be a map that is known at compile time, and it needs a vocabulary")
    kind = type(next(iter(source.elements.values()), np.float32(0)))
    return ctx.known(np.array([[source.elements.get(word, kind()) for word in words]]))


_CASTS: dict[str, Any] = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}


@operator("CastMap", since=(1,), domain=_ML)
def _cast_map(ctx: Context, node: Node) -> Any:
    """A row of the values of a map that is known when the model is compiled: by ascending keys, or at their
    positions."""
    given, source = node.attributes, node.operands[0]
    kind = _CASTS.get(given["cast_to"])
    if not isinstance(source, Map) or kind is None or given["map_form"] not in ("DENSE", "SPARSE"):
        raise fail(
            node, "its input must be a map that is known at compile time, its result floats, integers or strings"
        )
    elements, width = source.elements, len(source.elements)
    positions = {key: position for position, key in enumerate(sorted(elements))}
    if given["map_form"] == "SPARSE":
        positions, width = {key: int(key) for key in elements}, int(given["max_map"])
    if not 0 < width <= _MAX_COLUMNS or any(not 0 <= position < width for position in positions.values()):
        raise fail(node, f"the keys of the map are no positions in a row of {width}")
    row = np.full((1, width), "" if kind is object else 0, kind)
    for key, position in positions.items():
        row[0, position] = str(elements[key]) if kind is object else kind(elements[key])
    return ctx.known(row)


_MAX_COLUMNS = 1 << 24


@operator("ZipMap", since=(1,), domain=_ML)
def _zip_map(ctx: Context, node: Node) -> Any:
    """The values themselves, a column for each label; what the labels are, the library's description says."""
    x, given = input_at(node, 0), node.attributes
    labels = tuple(given.get("classlabels_int64s") or given.get("classlabels_strings") or ())
    if x.rank not in (1, 2) or x.shape[-1] != len(labels):
        raise fail(node, f"there are {len(labels)} labels for the values {list(x.shape)}")
    ctx.labels[node.outputs[0]] = labels
    return x
