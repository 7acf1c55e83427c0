"""Fourier transforms, and parts of complex tensors."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tflite.complex_tensors import part_of
from nnefc.frontends.tflite.lowering import COMPLEX, FLOATS, Lowering, Node, Result, Value, operator
from nnefc.operators.base import rank_of, shape_of
from nnefc.operators.math.elementwise import Where, apply
from nnefc.operators.math.signal import FourierTransform
from nnefc.operators.tensor.shape import Unsqueeze

__all__: list[str] = []


@operator("RFFT2D", types=FLOATS)
def _rfft2d(at: Lowering, node: Node) -> Result:
    """Transforms the last two dimensions, cut to the lengths or followed by zeros; rows become their lower halves."""
    x = node.operand(0)
    height, width = node.sizes(1, "the length of a transform")
    rank = rank_of(x)
    made = at.apply(Unsqueeze((rank,)), x)
    made = at.apply(FourierTransform(rank - 1, width, onesided=True), made)
    if (height, shape_of(x)[rank - 2]) != (1, 1):
        made = at.apply(FourierTransform(rank - 2, height), made)
    return Value(made, COMPLEX)


@operator("REAL", types=(COMPLEX,))
def _real(at: Lowering, node: Node) -> Result:
    return part_of(at, node.operand(0), 0)


@operator("IMAG", types=(COMPLEX,))
def _imag(at: Lowering, node: Node) -> Result:
    return part_of(at, node.operand(0), 1)


@operator("COMPLEX_ABS", types=(COMPLEX,))
def _complex_abs(at: Lowering, node: Node) -> Result:
    """Scales by the larger part: squares of large numbers would not be finite."""
    x, y = (apply(at, "abs", part_of(at, node.operand(0), part)) for part in range(2))
    larger, smaller = at.bound(apply(at, "maximum", x, y)), apply(at, "minimum", x, y)
    tiny = at.number(float(np.finfo(np.float32).tiny), larger)
    quotient = at.bound(apply(at, "divide", smaller, apply(at, "maximum", larger, tiny)))
    root = apply(at, "sqrt", apply(at, "add", at.number(1, larger), apply(at, "multiply", quotient, quotient)))
    return Where().lower(at, apply(at, "isinf", larger), larger, apply(at, "multiply", larger, root))
