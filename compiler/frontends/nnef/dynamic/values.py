"""Values of a document without static types, and their coercion to operator arguments.

1.0, 3, 'f32', true       literals
[1, S, 40]                arrays of values: a shape, or a tensor of rank 1
a tensor                  an array whose value is known, or an expression of Relax
a tensor of sizes         an array of objects: integers, `Size`s and what follows from them (tract's TDim)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax

from nnefc.frontends.nnef.language.types import ArrayType, GenericType, PrimitiveType, TensorType, TupleType, Type
from nnefc.operators.base import Operand, dtype_of, shape_of
from nnefc.operators.dtypes import numpy_dtype
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.arrays import of_elements
from nnefc.symbolic.dims import Dimension, Size, bounds
from nnefc.symbolic.values import Condition, Quotient, truncated

__all__ = [
    "CONTENTS",
    "DATUM_TYPES",
    "Sizes",
    "Value",
    "coerced",
    "common_type",
    "content_of",
    "dtype_named",
    "integer",
    "integers",
    "is_sizes",
    "is_tensor",
    "number",
    "spelled",
    "truth",
]

Sizes: TypeAlias = npt.NDArray[np.object_]
"""A tensor of sizes."""
Value: TypeAlias = Any
"""int | float | bool | str | Size | list[Value] | tuple[Value, ...] | Array | relax.Expr"""

DATUM_TYPES = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "bool": "bool",
    "tdim": "tdim",
}
"""Element types by tract's names; sizes are `tdim`."""

CONTENTS = {"f": "scalar", "i": "integer", "u": "integer", "b": "logical", "O": "integer"}
"""NNEF's contents of tensors by NumPy's kinds of element types."""


def dtype_named(name: str) -> str:
    """The element type of one of tract's names, in any case.

    Raises:
        CompileError: there is none.
    """
    found = DATUM_TYPES.get(name.lower())
    if found is None:
        raise CompileError(f"the element type '{name}' is not supported", hint=f"known are {', '.join(DATUM_TYPES)}")
    return found


def is_tensor(value: Value) -> bool:
    """Returns whether a value is a tensor."""
    return isinstance(value, np.ndarray | relax.Expr)


def is_sizes(value: Value) -> bool:
    """Returns whether a value is a tensor of sizes, or a size."""
    return isinstance(value, Size) or (isinstance(value, np.ndarray) and value.dtype == object)


def content_of(operand: Operand) -> str:
    """Returns NNEF's name for the element type of a tensor."""
    return CONTENTS[numpy_dtype(dtype_of(operand)).kind if dtype_of(operand) != "bfloat16" else "f"]


def common_type(types: Sequence[str]) -> str:
    """The element type that holds values of all of these, as tract promotes: a float before integers.

    Raises:
        CompileError: booleans and numbers have none.
    """
    first, *others = dict.fromkeys(types)
    for other in others:
        kinds = {numpy_dtype(first).kind, numpy_dtype(other).kind}
        if "b" in kinds and len(kinds) > 1:
            raise CompileError(f"tensors of {first} and of {other} do not fit each other")
        if "f" in kinds and len(kinds) > 1:
            first = first if numpy_dtype(first).kind == "f" else other
        else:
            first = str(np.promote_types(numpy_dtype(first), numpy_dtype(other)))
    return first


def _element(value: Value) -> Any:
    """The one element of a tensor that is known; other values as they are."""
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise CompileError(f"one number is needed, a tensor of shape {list(value.shape)} is given")
        return value.reshape(())[()]
    if isinstance(value, list) and len(value) == 1:
        return _element(value[0])
    if isinstance(value, relax.Expr):
        raise CompileError("a number is needed that is known when the model is compiled, a tensor is given")
    return value


def integer(value: Value) -> Dimension:
    """An integer or a size.

    Raises:
        CompileError: the value is none, or not known at compile time.
    """
    element = _element(value)
    if isinstance(element, Quotient):
        return truncated(element)
    if isinstance(element, Condition):
        return element.size
    if isinstance(element, Size):
        return element
    if isinstance(element, float | np.floating) and not float(element).is_integer():
        raise CompileError(f"an integer is needed, {float(element)} is given")
    if isinstance(element, bool | int | float | np.generic):
        return int(element)
    raise CompileError(f"an integer is needed, {spelled(value)} is given")


def integers(value: Value) -> list[Dimension]:
    """A list of integers and sizes; one alone is a list of one, and lists in it are joined."""
    if isinstance(value, np.ndarray):
        return [integer(element) for element in of_elements(list(value.reshape(-1)), (-1,))]
    if isinstance(value, list | tuple):
        return [number for element in value for number in integers(element)]
    return [integer(value)]


def truth(value: Value) -> bool:
    """Returns whether a condition holds.

    Raises:
        CompileError: the value is none, or only a run knows it.
    """
    held = integer(value)
    minimum, maximum = bounds(held)
    if minimum <= 0 <= maximum and minimum != maximum:
        raise CompileError(
            f"whether {spelled(value)} holds is known when the network runs, but is needed when it is compiled",
            hint="say what the sizes are: --shape NAME=…",
        )
    return bool(minimum)


def number(value: Value) -> float:
    """A real number.

    Raises:
        CompileError: the value is none, or not known at compile time.
    """
    element = _element(value)
    if isinstance(element, Quotient) and element.is_known:
        return float(element)
    if isinstance(element, bool | int | float | np.generic):
        return float(element)
    raise CompileError(f"a number is needed that is known when the model is compiled, {spelled(value)} is given")


def spelled(value: Value) -> str:
    """A value as messages show it."""
    if is_tensor(value):
        return f"a tensor of {dtype_of(value)}{list(shape_of(value))}"
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}…"


def coerced(value: Value, type_: Type) -> Value:
    """An attribute as its parameter's type says; tensors stay as they are.

    Raises:
        CompileError: it cannot be one.
    """
    match type_:
        case TensorType():
            return value
        case ArrayType(TensorType()):
            return value if isinstance(value, list) else [value]
        case ArrayType(TupleType(elements)) if isinstance(value, list | tuple):
            return [_pair(element, elements) for element in value]
        case ArrayType(PrimitiveType("integer")):
            return integers(value)
        case ArrayType(element) if isinstance(value, list | tuple):
            assert element is not None
            return [coerced(each, element) for each in value]
        case ArrayType(element):
            assert element is not None
            return [coerced(value, element)]
        case PrimitiveType("integer"):
            return integer(value)
        case PrimitiveType("scalar"):
            return number(value)
        case PrimitiveType("logical"):
            return truth(value)
        case PrimitiveType("string") if not isinstance(value, str):
            raise CompileError(f"a string is needed, {spelled(value)} is given")
        case TupleType(elements):
            return _pair(value, elements)
        case GenericType() | PrimitiveType() | _:
            return value


def _pair(value: Value, types: tuple[Type, ...]) -> tuple[Value, ...]:
    if not isinstance(value, list | tuple) or len(value) != len(types):
        raise CompileError(f"a tuple of {len(types)} is needed, {spelled(value)} is given")
    return tuple(coerced(element, type_) for element, type_ in zip(value, types, strict=True))
