"""Operators of ai.onnx.ml: steps before and after models of classical machine learning."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import input_at
from nnefc.operators.activation import Binarizer

__all__: list[str] = []

_ML = "ai.onnx.ml"


@operator("ArrayFeatureExtractor", since=(1,), domain=_ML)
def _array_feature_extractor(ctx: Context, node: Node) -> list[Any]:
    """Items along the last axis; those of a vector are a matrix with one row."""
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
