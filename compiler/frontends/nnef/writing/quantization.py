"""Writes quantization and dequantization as arithmetic where `graph.quant` cannot express it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.rules import says, shape_of
from nnefc.operators.base import Shape, dtype_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.nn.quantization import RANGES, Dequantization, Quantization

__all__: list[str] = []


def _along(operator: Dequantization | Quantization, x: Shape, parameter: Any) -> Any:
    """A scale or a zero point in a shape that broadcasts to the tensor."""
    if operator.block:
        raise Unsayable("NNEF has no scales for blocks of a tensor")
    if not isinstance(parameter, np.ndarray):
        if operator.axis is None:
            return parameter
        raise Unsayable("the scales along a dimension are computed")
    if operator.axis is None:
        return parameter.reshape(())
    return parameter.reshape([-1 if axis == operator.axis else 1 for axis in range(len(x))])


@says(Dequantization)
def _dequantization(document: Document, operator: Dequantization, x: Any, scale: Any, zero: Any = None) -> Any:
    """Integers of up to 24 bits are 32-bit floats."""
    if operator.dtype != "float32" or dtype_of(scale) != "float32" or dtype_of(x) == "int32":
        raise Unsayable(f"NNEF has no operation that makes {operator.dtype} of {dtype_of(x)}")
    shape = shape_of(x)
    made = document.say(Cast("float32"), document.tensor(x))
    if zero is not None and dtype_of(x) != "float32" and not (isinstance(zero, np.ndarray) and not zero.any()):
        own = _along(operator, shape, zero)
        real = own.astype(np.float32) if isinstance(own, np.ndarray) else document.say(Cast("float32"), own)
        made = document.say(Elementwise("subtract"), made, real)
    return document.say(Elementwise("multiply"), made, _along(operator, shape, scale))


@says(Quantization)
def _quantization(document: Document, operator: Quantization, x: Any, scale: Any, zero: Any = None) -> Any:
    """Divided, rounded to even, moved, cut to the range, and cast."""
    if operator.work != "float32" or dtype_of(x) != "float32":
        raise Unsayable(f"NNEF has no operation that makes {operator.dtype} of {dtype_of(x)}")
    shape = shape_of(x)
    made = document.say(Elementwise("divide"), x, _along(operator, shape, scale))
    made = document.say(Elementwise("round"), made)
    if zero is not None and not (isinstance(zero, np.ndarray) and not zero.any()):
        own = _along(operator, shape, zero)
        real = own.astype(np.float32) if isinstance(own, np.ndarray) else document.say(Cast("float32"), own)
        made = document.say(Elementwise("add"), made, real)
    low, high = RANGES[operator.dtype]
    made = document.call("clamp", x=made, a=float(low), b=float(high))
    made = document.say(Cast("int32"), made)
    return document.say(Cast(operator.dtype), made) if document.has_widths else made
