"""Writes activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.rules import aligned, says, shape_of
from nnefc.operators.base import dtype_of
from nnefc.operators.math.matrix import Triangle
from nnefc.operators.nn.activation import (
    Celu,
    Elu,
    Gelu,
    LeakyRelu,
    Mish,
    ParametricRelu,
    Relu,
    Shrink,
    Silu,
    Softmax,
    Softplus,
    ThresholdedRelu,
)

_GELU_TANH = (0.7978845608028654, 0.044715)


@says(Relu)
def _relu(document: Document, operator: Relu, x: Any) -> Any:
    return document.call("relu", x=x)


@says(LeakyRelu)
def _leaky_relu(document: Document, operator: LeakyRelu, x: Any) -> Any:
    return document.call("leaky_relu", x=x, alpha=float(operator.slope))


@says(ParametricRelu)
def _parametric_relu(document: Document, operator: ParametricRelu, x: Any, slope: Any) -> Any:
    x, slope = aligned(document, (x, slope))
    return document.call("prelu", x=x, alpha=slope)


@says(Elu)
def _elu(document: Document, operator: Elu, x: Any) -> Any:
    if operator.scale == 1:
        return document.call("elu", x=x, alpha=float(operator.alpha))
    return document.call("selu", x=x, alpha=float(operator.alpha), **{"lambda": float(operator.scale)})


@says(Silu)
def _silu(document: Document, operator: Silu, x: Any) -> Any:
    if operator.scale == 1:
        return document.call("silu", x=x)
    if operator.scale == 1.702:
        return document.call("gelu", x=x)
    inner = document.call("mul", x=x, y=float(operator.scale))
    return document.call("mul", x=x, y=document.call("sigmoid", x=inner))


@says(Gelu)
def _gelu(document: Document, operator: Gelu, x: Any) -> Any:
    """Write GELU by tanh: NNEF has no error function, and its `gelu` is another approximation."""
    if not operator.approximate:
        raise Unsayable("NNEF has no error function, which the exact GELU needs")
    scale, cubic = _GELU_TANH
    bent = document.call("mul", x=document.call("mul", x=x, y=cubic), y=x)
    scaled = document.call("mul", x=x, y=scale)
    inner = document.call("mul", x=scaled, y=document.call("add", x=bent, y=1.0))  # in the order of the operator itself
    share = document.call("add", x=document.call("tanh", x=inner), y=1.0)
    return document.call("mul", x=document.call("mul", x=x, y=0.5), y=share)


@says(Softplus)
def _softplus(document: Document, operator: Softplus, x: Any) -> Any:
    """Above a threshold of 20 or more the formula gives the number itself."""
    if operator.threshold is not None and operator.threshold < 20:
        raise Unsayable(f"NNEF's softplus has no threshold, here it is {operator.threshold}")
    if operator.sharpness == 1:
        return document.call("softplus", x=x)
    scaled = document.call("mul", x=x, y=float(operator.sharpness))
    return document.call("div", x=document.call("softplus", x=scaled), y=float(operator.sharpness))


@says(Softmax)
def _softmax(document: Document, operator: Softmax, x: Any) -> Any:
    axes = list(operator.axes)
    if not axes:
        raise Unsayable("a softmax over no dimension")
    if not operator.logarithm:
        return document.call("softmax", x=x, axes=axes)
    largest = document.call("max_reduce", input=x, axes=axes)
    less = document.call("sub", x=x, y=largest)
    total = document.call("sum_reduce", input=document.call("exp", x=less), axes=axes)
    return document.call("sub", x=less, y=document.call("log", x=total))


@says(Celu)
def _celu(document: Document, operator: Celu, x: Any) -> Any:
    alpha = float(operator.alpha)
    if alpha == 1:
        return document.call("elu", x=x)
    below = document.call("elu", x=document.call("min", x=document.call("div", x=x, y=alpha), y=0.0))
    return document.call("add", x=document.call("relu", x=x), y=document.call("mul", x=below, y=alpha))


@says(Mish)
def _mish(document: Document, operator: Mish, x: Any) -> Any:
    return document.call("mul", x=x, y=document.call("tanh", x=document.call("softplus", x=x)))


@says(ThresholdedRelu)
def _thresholded_relu(document: Document, operator: ThresholdedRelu, x: Any) -> Any:
    threshold, value = float(operator.threshold), float(operator.value)
    if operator.keeps_nan:
        below = document.call("le", x=x, y=threshold)
        return document.call("select", condition=below, true_value=value, false_value=x)
    above = document.call("gt", x=x, y=threshold)
    return document.call("select", condition=above, true_value=x, false_value=value)


@says(Shrink)
def _shrink(document: Document, operator: Shrink, x: Any) -> Any:
    bias, limit = float(operator.bias), float(operator.limit)
    below = document.call("lt", x=x, y=-limit)
    less, more = document.call("sub", x=x, y=bias), document.call("add", x=x, y=bias)
    if operator.keeps_nan:
        outside = document.call("select", condition=below, true_value=more, false_value=less)
        inside = document.call("and", x=document.call("ge", x=x, y=-limit), y=document.call("le", x=x, y=limit))
        return document.call("select", condition=inside, true_value=0.0, false_value=outside)
    above = document.call("gt", x=x, y=limit)
    nearer = document.call("select", condition=above, true_value=less, false_value=0.0)
    return document.call("select", condition=below, true_value=more, false_value=nearer)


@says(Triangle)
def _triangle(document: Document, operator: Triangle, x: Any, diagonal: Any = None) -> Any:
    """Chosen by a constant."""
    shape = shape_of(x)
    if diagonal is not None:
        raise Unsayable("NNEF has no operation for triangles whose diagonal is computed")
    if not all(isinstance(size, int) for size in shape[-2:]):
        raise Unsayable("NNEF has no operation for triangles of matrices whose sizes are open")
    mask = (np.triu if operator.upper else np.tril)(np.ones(shape[-2:], bool), operator.diagonal)
    given = document.tensor(x)
    zero = np.zeros((), dtype_of(x))
    condition = mask.reshape((1,) * (len(shape) - 2) + mask.shape)
    return document.call("select", condition=condition, true_value=given, false_value=zero)
