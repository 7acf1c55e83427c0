"""Linear models and support vector machines: LinearClassifier, LinearRegressor, SVMClassifier, SVMRegressor."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import Array, fail, input_at
from nnefc.operators.ml.linear_models import LinearClassifier, LinearRegressor
from nnefc.operators.ml.support_vectors import (
    KERNELS,
    SimilarityKernel,
    SupportVectorClassifier,
    SupportVectorRegressor,
)
from nnefc.operators.tensor.indexing import Gather

__all__ = ["class_labels", "labelled"]

_ML = "ai.onnx.ml"


def class_labels(node: Node, integers: str, strings: str) -> Array:
    """Returns the labels of a classifier's classes: integers or strings.

    Raises:
        CompileError: there are none.
    """
    labels, words = node.attributes.get(integers), node.attributes.get(strings)
    if not labels and not words:
        raise fail(node, f"it has neither '{integers}' nor '{strings}'")
    return np.array(labels, np.int64) if labels else np.array(words, object)


def labelled(ctx: Context, made: list[Value], labels: Array) -> list[Value]:
    """Replaces class numbers in a classifier's results by labels `[classes]`."""
    numbers, scores = made
    if labels.dtype != object and np.array_equal(labels, np.arange(len(labels))):
        return made
    return [ctx.apply(Gather(outside="clip"), ctx.known(labels), numbers), scores]


def _weights(node: Node, rows: int) -> Array:
    """The coefficients, in so many rows."""
    flat = np.array(node.attributes.get("coefficients") or (), np.float32)
    if rows < 1 or not len(flat) or len(flat) % rows:
        raise fail(node, f"{len(flat)} coefficients do not make {rows} rows")
    return flat.reshape(rows, -1)


def _reals(node: Node, name: str) -> Array | None:
    given = node.attributes.get(name)
    return np.array(given, np.float32) if given else None


@operator("LinearRegressor", since=(1,), domain=_ML)
def _linear_regressor(ctx: Context, node: Node) -> Any:
    weights = _weights(node, node.attributes["targets"])
    model = LinearRegressor(weights, _reals(node, "intercepts"), node.attributes["post_transform"])
    return ctx.apply(model, input_at(node, 0))


@operator("LinearClassifier", since=(1,), domain=_ML)
def _linear_classifier(ctx: Context, node: Node) -> list[Value]:
    x, labels = input_at(node, 0), class_labels(node, "classlabels_ints", "classlabels_strings")
    bias, features = _reals(node, "intercepts"), x.shape[-1] if x.rank else 1
    flat = _weights(node, 1).reshape(-1)
    one = len(labels) <= 2 and len(flat) == features  # the scores of two classes may be those of one
    weights = _weights(node, 1 if one else len(labels))
    model = LinearClassifier(weights, bias, node.attributes["post_transform"], len(labels))
    made = ctx.apply(model, x)
    if len(labels) == 1:
        labels = np.array(["" if labels.dtype == object else 0, labels[0]], labels.dtype)
    return labelled(ctx, made, labels)


def _kernel(node: Node, count: int) -> SimilarityKernel | None:
    """The kernel of so many support vectors; None if there are none.

    Raises:
        CompileError: attributes that do not fit each other.
    """
    if count == 0:
        return None
    given = node.attributes
    flat = np.array(given.get("support_vectors") or (), np.float32)
    if count < 0 or not len(flat) or len(flat) % count:
        raise fail(node, f"{len(flat)} numbers do not make {count} support vectors")
    parameters = given.get("kernel_params") or (0.0, 0.0, 0.0)
    if given["kernel_type"] not in KERNELS or len(parameters) != 3:
        raise fail(node, f"the kernel '{given['kernel_type']}' with {len(parameters)} parameters is unknown")
    gamma, offset, degree = parameters
    return SimilarityKernel(given["kernel_type"], gamma, offset, float(int(degree)), flat.reshape(count, -1))


def _rho(node: Node) -> Array:
    rho = _reals(node, "rho")
    if rho is None:
        raise fail(node, "it has no 'rho'")
    return rho


@operator("SVMRegressor", since=(1,), domain=_ML)
def _svm_regressor(ctx: Context, node: Node) -> Any:
    given = node.attributes
    kernel, weights = _kernel(node, given["n_supports"]), _weights(node, 1).reshape(-1)
    one_class = bool(given["one_class"])
    model = SupportVectorRegressor(kernel, weights, float(_rho(node)[0]), one_class, given["post_transform"])
    return ctx.apply(model, input_at(node, 0))


@operator("SVMClassifier", since=(1,), domain=_ML)
def _svm_classifier(ctx: Context, node: Node) -> list[Value]:
    given, labels = node.attributes, class_labels(node, "classlabels_ints", "classlabels_strings")
    counts, rho = tuple(given.get("vectors_per_class") or ()), _rho(node)
    if any(count < 0 for count in counts):
        raise fail(node, "a class has a negative number of support vectors")
    kernel, classes = _kernel(node, sum(counts)), len(labels)
    pairs = classes * (classes - 1) // 2
    a, b = _reals(node, "prob_a"), _reals(node, "prob_b")
    if kernel is not None:
        sizes = {len(part) for part in (rho, a, b) if part is not None}
        if len(counts) != classes or classes < 2 or sizes != {pairs} or (a is None) != (b is None):
            raise fail(node, f"its attributes do not fit {classes} classes, which make {pairs} pairs")
    weights = _weights(node, classes if kernel is None else classes - 1)
    if kernel is not None and weights.shape[1] != sum(counts):
        raise fail(node, f"{weights.size} coefficients do not fit {sum(counts)} support vectors of {classes} classes")
    platt = None if kernel is None or a is None or b is None else np.stack([a, b])
    model = SupportVectorClassifier(kernel, counts, weights, rho, platt, given["post_transform"])
    return labelled(ctx, ctx.apply(model, input_at(node, 0)), labels)
