"""Element type conversions: Cast, CastLike, BitCast."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import dtype_of, fail, input_at, known
from nnefc.frontends.onnx.values import Array
from nnefc.operators.dtypes import dtype_name, is_float, numpy_dtype
from nnefc.operators.math.casting import BitCast, Cast, cast_array
from nnefc.support.diagnostics import CompileError

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
    if x.array is not None:
        array = _parsed(x.array, dtype) if x.dtype == "string" else x.array
        return known(ctx, cast_array(array, dtype, saturate, rounding))
    if x.dtype == "string":
        from nnefc.operators.text.strings import ToNumbers  # few networks have strings

        number = _COMPUTED.get(dtype, "float32" if is_float(dtype) else "int64")
        return converted(ctx, ctx.apply(ToNumbers(number), x), dtype, saturate, rounding)
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


def _parsed(array: Array, dtype: str) -> Array:
    """Numbers written as text.

    Raises:
        CompileError: one is none.
    """
    numbers = []
    for element in array.reshape(-1):
        text = element.decode() if isinstance(element, bytes) else str(element)
        try:
            numbers.append(float(text) if is_float(dtype) else int(float(text)) if "." in text else int(text))
        except (ValueError, OverflowError):
            raise CompileError(f"'{text[:40]}' is not a number of type {dtype}") from None
    return np.array(numbers).reshape(array.shape).astype(numpy_dtype(dtype))


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
