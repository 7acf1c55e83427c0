"""Writes quantization at run time in tract's dialect, each step as an operation of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.nnef.writing.tract import TractDocument, tract_says
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Elementwise, Where
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.nn.quantization import DynamicQuantization, IntegerProduct

__all__: list[str] = []

_ZERO, _ONE, _MAX = (np.array(number, np.float32) for number in (0, 1, 255))


@tract_says(DynamicQuantization)
def _dynamic_quantization(document: TractDocument, operator: DynamicQuantization, x: Any) -> list[Any]:
    """The range of the elements, with zero in it, is mapped to 0 … 255; a tensor of zeros has the scale 1."""

    def of(function: str, *operands: Any) -> Any:
        return document.say(Elementwise(function), *operands)

    value = document.tensor(x)
    axes = list(range(len(value.shape)))
    low, high = (
        of(function, document.call(f"{name}_reduce", input=value, axes=axes), _ZERO)
        for name, function in (("min", "minimum"), ("max", "maximum"))
    )
    span = of("divide", of("subtract", high, low), _MAX)
    scale = document.say(Where(), of("equal", span, _ZERO), _ONE, span)
    point = document.call("clamp", x=of("round", of("subtract", _ZERO, of("divide", low, scale))), a=0.0, b=255.0)
    elements = of("add", of("round", of("divide", value, scale)), point)
    codes = document.say(Cast("uint8"), document.call("clamp", x=elements, a=0.0, b=255.0))
    parameters = [
        document.call("squeeze", input=each, axes=axes) for each in (scale, document.say(Cast("uint8"), point))
    ]
    return [codes, *parameters]


@tract_says(IntegerProduct)
def _integer_product(
    document: TractDocument, operator: IntegerProduct, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None
) -> Any:
    """The product of what is left of 32-bit integers without their zero points."""
    return document.say(MatMul(), _centred(document, a, a_zero), _centred(document, b, b_zero))


def _centred(document: TractDocument, x: Any, zero: Any) -> Any:
    def wide(operand: Any) -> Any:
        known = isinstance(operand, np.ndarray)
        return operand.astype(np.int32) if known else document.say(Cast("int32"), operand)

    if zero is None or (isinstance(zero, np.ndarray) and not zero.any()):
        return wide(x)
    if isinstance(x, np.ndarray) and isinstance(zero, np.ndarray):
        return wide(x) - wide(zero)
    return document.say(Elementwise("subtract"), wide(x), wide(zero))
