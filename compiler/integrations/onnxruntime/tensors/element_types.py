"""Element types of tensors: ONNX's numbers and names, NumPy's types and the loader's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ELEMENTS", "Element", "element_of", "element_of_array", "onnx_name"]


@dataclass(frozen=True)
class Element:
    """An element type.

    Attributes:
        number: ONNX's, of `TensorProto.DataType`.
        name: ONNX's in the spelling of types, such as `float`.
        dtype: NumPy's; the unsigned integer of its size where NumPy has none.
        is_numpy: whether NumPy has the type.
        loader_name: the loader's, such as `float32`.
    """

    number: int
    name: str
    dtype: np.dtype[Any]
    is_numpy: bool = True
    loader_name: str = ""


def _elements() -> tuple[Element, ...]:
    numpy = {
        1: "float32",
        2: "uint8",
        3: "int8",
        4: "uint16",
        5: "int16",
        6: "int32",
        7: "int64",
        9: "bool",
        10: "float16",
        11: "float64",
        12: "uint32",
        13: "uint64",
    }
    names = {"float32": "float", "float64": "double"}
    made = [Element(number, names.get(name, name), np.dtype(name), True, name) for number, name in numpy.items()]
    made += [Element(8, "string", np.dtype(object), True, "string")]
    made += [Element(16, "bfloat16", np.dtype(np.uint16), False, "bfloat16")]
    eight_bits = {17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz"}
    made += [Element(number, name, np.dtype(np.uint8), True, name) for number, name in eight_bits.items()]
    return tuple(sorted(made, key=lambda element: element.number))


ELEMENTS = _elements()

_BY_NUMBER = {element.number: element for element in ELEMENTS}
_BY_DTYPE = {element.dtype: element for element in reversed(ELEMENTS) if element.is_numpy and element.number < 17}
_BY_LOADER = {element.loader_name: element for element in ELEMENTS}
_MORE_NAMES = {14: "complex64", 15: "complex128", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0"}


def onnx_name(number: int) -> str:
    """Returns ONNX's name of an element type in the spelling of types."""
    known = _BY_NUMBER.get(number)
    return known.name if known is not None else _MORE_NAMES.get(number, "undefined")


def element_of(kind: Any) -> Element:
    """Returns the element type of one of ONNX's numbers, a name of the loader, or whatever NumPy takes for a dtype.

    Raises:
        RuntimeError: tensors cannot have it.
    """
    if isinstance(kind, str) and kind in _BY_LOADER:
        return _BY_LOADER[kind]
    if isinstance(kind, int | np.integer) and not isinstance(kind, bool):
        found = _BY_NUMBER.get(int(kind))
    else:
        dtype = np.dtype(kind)
        if dtype.name == "bfloat16":
            return _BY_NUMBER[16]
        found = _BY_NUMBER[8] if dtype.kind in "SUTO" else _BY_DTYPE.get(dtype.newbyteorder("="))
    if found is None:
        raise RuntimeError(f"a tensor cannot have elements of the type {kind}")
    return found


def element_of_array(array: np.ndarray) -> Element:
    """Returns the element type of an array, as :func:`element_of`."""
    found = _BY_DTYPE.get(array.dtype)
    return element_of(array.dtype) if found is None else found
