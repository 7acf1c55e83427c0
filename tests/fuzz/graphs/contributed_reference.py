"""Steps of onnxruntime's own operators in NumPy, that :mod:`simpler` makes of these.

Source: onnxruntime's text of its operators, `docs/ContribOperators.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OF_ONNXRUNTIME"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]


def _products(given: Attributes, a: Array, b: Array) -> Array:
    a = a.swapaxes(-1, -2) if given.get("transA") else a
    b = b.swapaxes(-1, -2) if given.get("transB") else b
    return np.asarray(given.get("alpha", 1.0) * np.matmul(a, b))


def _with_bias(given: Attributes, x: Array, bias: Array, *operands: Array) -> Array:
    """One of several operands with its part of a bias for all of them."""
    starts = np.cumsum([0, *(operand.shape[-1] for operand in operands)])
    place = given["place"]
    return np.asarray(x + bias[starts[place] : starts[place + 1]])


def _real(x: Array, scale: Array, zero: Array | None) -> Array:
    return (x.astype(np.float64) - (0.0 if zero is None else zero.astype(np.float64))) * scale


def _sum(_given: Attributes, a: Array, a_scale: Array, a_zero: Array, *rest: Array) -> Array:
    b, b_scale, b_zero, scale = rest
    return np.asarray((_real(a, a_scale, a_zero) + _real(b, b_scale, b_zero)) / scale)


def _product(_given: Attributes, a: Array, a_scale: Array, a_zero: Array, *rest: Array) -> Array:
    b, b_scale, b_zero, scale = rest
    return np.asarray(_real(a, a_scale, a_zero) * _real(b, b_scale, b_zero) / scale)


def _sigmoid(_given: Attributes, x: Array, x_scale: Array, x_zero: Array, scale: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-_real(x, x_scale, x_zero))) / scale)


def _leaky_relu(given: Attributes, x: Array, x_scale: Array, x_zero: Array, scale: Array) -> Array:
    real = _real(x, x_scale, x_zero)
    return np.asarray(np.where(real < 0, given.get("alpha", float(np.float32(0.01))) * real, real) / scale)


def _mean(_given: Attributes, x: Array, x_scale: Array, x_zero: Array, scale: Array) -> Array:
    return np.asarray(_real(x, x_scale, x_zero).mean(tuple(range(2, x.ndim)), keepdims=True) / scale)


def _softmax(given: Attributes, x: Array, x_scale: Array, x_zero: Array, scale: Array) -> Array:
    real = _real(x, x_scale, x_zero)
    powers = np.exp(real - real.max(given["axis"], keepdims=True))
    return np.asarray(powers / powers.sum(given["axis"], keepdims=True) / scale)


def _choice(_given: Attributes, condition: Array, *rest: Array) -> Array:
    *parts, scale = rest
    return np.asarray(np.where(condition, _real(*parts[:3]), _real(*parts[3:])) / scale)


def _concatenation(given: Attributes, *inputs: Array) -> Array:
    *parts, scale = inputs
    return np.concatenate([_real(*parts[k : k + 3]) for k in range(0, len(parts), 3)], given["axis"]) / scale


def _linear_gemm(given: Attributes, *inputs: Array) -> Array:
    a, a_scale, a_zero, b, b_scale, b_zero, bias, scale = inputs
    product = _products({**given, "alpha": 1.0}, _real(a, a_scale, a_zero), _real(b, b_scale, b_zero))
    whole = product if bias is None else product + bias * (a_scale * b_scale)
    return np.asarray(given.get("alpha", 1.0) * whole / (1 if scale is None else scale))


def _complex(x: Array) -> Array:
    return np.asarray(x[..., 0] + 1j * x[..., 1])


def _complex_product(_given: Attributes, a: Array, b: Array) -> Array:
    product = _complex(a) * _complex(b)
    return np.stack([product.real, product.imag], -1)


def _conjugate_product(given: Attributes, a: Array, b: Array) -> Array:
    return _complex_product(given, a, b * [1, -1])


def _squared_distances(_given: Attributes, a: Array, b: Array) -> Array:
    return np.asarray(np.square(a[:, None] - b[None]).sum(-1))


def _integer_products(
    _given: Attributes, a: Array, b: Array, a_scale: Array, b_scale: Array, a_zero: Array | None, b_zero: Array | None
) -> Array:
    return np.asarray(np.matmul(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero)))


OF_ONNXRUNTIME: Mapping[str, Callable[..., Array]] = {
    "ComplexMul": _complex_product,
    "ComplexMulConj": _conjugate_product,
    "FusedProducts": _products,
    "IntegerProducts": _integer_products,
    "RealQGemm": _linear_gemm,
    "RealQLinearAdd": _sum,
    "RealQLinearConcat": _concatenation,
    "RealQLinearGlobalAveragePool": _mean,
    "RealQLinearLeakyRelu": _leaky_relu,
    "RealQLinearMul": _product,
    "RealQLinearSigmoid": _sigmoid,
    "RealQLinearSoftmax": _softmax,
    "RealQLinearWhere": _choice,
    "Root": lambda _, x: np.sqrt(np.maximum(x, 0)),
    "SquaredDistances": _squared_distances,
    "WithBias": _with_bias,
}
"""By the names that :mod:`simpler` gives them."""
