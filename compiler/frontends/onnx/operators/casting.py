"""Element type conversions: Cast, CastLike, BitCast."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import onnx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import dtype_of, fail, input_at, known
from nnefc.frontends.onnx.values import Array
from nnefc.operators.dtypes import dtype_name, is_float, numpy_dtype
from nnefc.operators.math.casting import BitCast, Cast, cast_array
from nnefc.support.diagnostics import CompileError
from nnefc.support.element_types import integer_range

__all__ = ["converted", "element_type"]


def element_type(node: Node, number: int) -> str:
    """The name of an element type by its number in the standard.

    Raises:
        CompileError: there is no such type.
    """
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(number)
    except (KeyError, TypeError, ValueError):
        raise fail(node, f"there is no element type {number}") from None
    return dtype_name(dtype)


def converted(ctx: Context, x: Value, dtype: str, saturate: bool = True, rounding: str = "up") -> Value:
    """The elements in another element type, by the rules of Cast."""
    if x.dtype == dtype:
        return x
    if dtype.startswith("complex"):
        raise CompileError(f"tensors of {dtype} are not supported")
    if dtype == "string":
        return _spelled(ctx, x)
    if x.dtype == "string":
        number = _COMPUTED.get(dtype, "float32" if is_float(dtype) else "int64")
        return converted(ctx, _read(ctx, x, number), dtype, saturate, rounding)
    if x.array is not None:
        return known(ctx, cast_array(x.array, dtype, saturate, rounding))
    made: Value = ctx.apply(Cast(dtype, x.dtype, saturate, rounding), x, dtype=dtype)
    return made


_COMPUTED = {
    name: name for name in ("float64", "bool", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)))
}
"""Element types that strings are read as; those of others are converted."""


def _spelled(ctx: Context, x: Value) -> Value:
    """Numbers as strings."""
    if x.array is not None:
        elements = [_text(element) for element in x.array.reshape(-1).tolist()]
        array = np.empty(len(elements), object)
        array[:] = elements
        return known(ctx, array.reshape(x.shape))
    if x.dtype not in ("float32", "float64"):
        x = converted(ctx, x, "float32" if is_float(x.dtype) else x.dtype if x.dtype == "uint64" else "int64")
    from nnefc.operators.text.strings import FromNumbers  # few networks have strings

    made: Value = ctx.apply(FromNumbers(), x, dtype="string")
    return made


def _text(number: float) -> str:
    """A number as `targets/runtime/text/numbers.c` writes it."""
    if isinstance(number, bool | int):
        return str(int(number))
    if math.isfinite(number):
        return f"{number:.8g}"
    return "NaN" if math.isnan(number) else "INF" if number > 0 else "-INF"


def _read(ctx: Context, x: Value, dtype: str) -> Value:
    """Strings as numbers of a type of `_COMPUTED`, or float32."""
    if x.array is not None:
        return known(ctx, _parsed(x.array, dtype))
    from nnefc.operators.text.strings import ToNumbers  # few networks have strings

    made: Value = ctx.apply(ToNumbers(dtype), x)
    return made


_NUMBER = re.compile(r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)
_WHOLE = re.compile(r"[-+]?[0-9]+")
_WHITE = " \t\n\v\f\r"
_MAX_LETTERS = 400


def _parsed(array: Array, dtype: str) -> Array:
    """Returns strings as numbers, by the rules of `targets/runtime/text/numbers.c`.

    Raises:
        CompileError: a string is not a numeral, or its value is out of the type's range.
    """
    texts = (element.decode(errors="replace") if isinstance(element, bytes) else str(element) for element in array.flat)
    with np.errstate(over="ignore"):
        # One array for each: NumPy makes reals of lists of integers of which some are beyond int64.
        numbers = [np.array(_number(text, dtype), numpy_dtype(dtype)) for text in texts]
    return np.array(numbers, numpy_dtype(dtype)).reshape(array.shape)


def _number(text: str, dtype: str) -> float:
    word = text.strip(_WHITE)
    if len(word) >= _MAX_LETTERS or not _NUMBER.fullmatch(word):
        raise CompileError(f"'{text[:40]}' is not a number of type {dtype}")
    if is_float(dtype):
        return float(word)
    real = float(word)
    whole = int(word) if _WHOLE.fullmatch(word) else int(real) if math.isfinite(real) else None
    minimum, maximum = integer_range(dtype)
    if whole is None or not minimum <= whole <= maximum:
        raise CompileError(f"'{text[:40]}' is out of the range of {dtype}")
    return whole


def _cast_to(ctx: Context, node: Node, dtype: str) -> Value:
    saturate, rounding = node.attributes.get("saturate", 1), node.attributes.get("round_mode", "up")
    return converted(ctx, input_at(node, 0), dtype, bool(saturate), str(rounding))


@operator("Cast", since=(1, 6, 9, 13, 19, 21, 23, 24, 25, 28))
def _cast(ctx: Context, node: Node) -> Value:
    to = node.attributes["to"]
    if isinstance(to, str):  # version 1 names the type
        number = getattr(onnx.TensorProto, to.upper(), None)
        if number is None:
            raise fail(node, f"there is no element type '{to}'")
        to = number
    return _cast_to(ctx, node, element_type(node, to))


@operator("CastLike", since=(15, 19, 21, 23, 24, 25))
def _cast_like(ctx: Context, node: Node) -> Value:
    return _cast_to(ctx, node, dtype_of(input_at(node, 1)))


@operator("BitCast", since=(26,))
def _bit_cast(ctx: Context, node: Node) -> Any:
    return ctx.apply(BitCast(element_type(node, node.attributes["to"])), input_at(node, 0))
