"""Converts the inputs of a run as onnxruntime does, and says what is wrong with those that do not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnefc.loader import DeviceArray, RunError

from .declared import Declared
from .errors import Fail, InvalidArgument, as_kind, refusal
from .tensors.element_types import element_of, onnx_name
from .tensors.gpu_memory import GpuAddress
from .tensors.raw_values import RawOrtValue
from .tensors.sparse import RawSparseTensor, SparseTensor
from .tensors.values import OrtValue

__all__ = ["Feed", "check_names", "converted", "described", "run_error"]

Feed = dict[str, Any]
"""Arrays, lists of arrays for sequences, and None for absent values, by the names of inputs."""


def described(inputs: Sequence[Declared]) -> str:
    """Formats inputs or outputs with their types in one line."""
    return ", ".join(map(_described, inputs)) or "none"


def _described(declared: Declared) -> str:
    shape = "" if declared.shape is None else f"[{', '.join('?' if s is None else str(s) for s in declared.shape)}]"
    return f"{declared.name}: {declared.type}{shape}"


def check_names(given: Mapping[str, Any], required: Sequence[Declared], overridable: Sequence[Declared]) -> None:
    """Checks the names of inputs.

    Raises:
        ValueError: an input is missing.
        TypeError: a name is no text.
        InvalidArgument: the model has no input of a name.
    """
    missing = [each.name for each in required if each.name not in given and not each.is_optional]
    if missing:
        names = " and ".join(f'"{name}"' for name in missing)
        verb = "is" if len(missing) == 1 else "are"
        kind = "input" if len(missing) == 1 else "inputs"
        raise refusal(
            ValueError, f"{kind} {names} {verb} missing from {list(given)}; the inputs are {described(required)}"
        )
    known = {each.name for each in (*required, *overridable)}
    for name in given:
        if not isinstance(name, str):
            raise refusal(TypeError, f"the name of an input is a text, not {name!r}")
        if name not in known:
            raise refusal(InvalidArgument, f'the model has no input "{name}"; its inputs are {described(required)}')


def converted(declared: Declared, value: Any) -> Any:
    """Returns an input as an array, or as a list of arrays for a sequence; None for one that is absent.

    Arrays of the wanted type are returned as they are, lists become arrays of this type, and what has `__dlpack__` or
    `__array__` is left to the loader.

    Raises:
        InvalidArgument: the elements are of another type, or a sequence is given as a tensor.
        RuntimeError: the value is nothing that can be an input, such as a number or a text.
        Fail: None for an input that is not optional.
    """
    if isinstance(value, OrtValue):
        value = value._get_c_value()
    if isinstance(value, RawOrtValue):
        return _of_value(declared, value)
    if value is None:
        if declared.is_optional:
            return None
        raise refusal(Fail, f'input "{declared.name}" is None: wanted {_described(declared)}')
    if declared.is_sequence:
        return _sequence(declared, value)
    return _tensor(declared, value)


def _of_value(declared: Declared, value: RawOrtValue) -> Any:
    content = value.content
    if isinstance(content, RawSparseTensor) or (isinstance(content, list) != declared.is_sequence):
        raise _of_other_type(declared, value.data_type())
    if content is None or isinstance(content, list):
        return converted(declared, content)
    if value.element_type() != declared.element:
        raise _of_other_type(declared, value.data_type())
    return content


def _sequence(declared: Declared, value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        raise _of_other_type(declared, f"tensor({_name_of(value)})")
    if not isinstance(value, list | tuple):
        raise _unreadable(declared, value)
    element = Declared(declared.name, f"tensor({onnx_name(declared.element)})", declared.element)
    return [_tensor(element, each) for each in value]


def _tensor(declared: Declared, value: Any) -> Any:
    element = element_of(declared.element)
    if isinstance(value, np.ndarray):
        if value.dtype != element.dtype and not _is_alike(value, element.dtype, element.number):
            raise _of_other_type(declared, f"tensor({_name_of(value)})")
        if declared.element == _STRING and value.dtype == object:
            value = _as_texts(value)
        if not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        return value.reshape(()) if declared.shape == () and value.size == 1 and value.ndim else value
    if isinstance(value, list):
        return _listed(declared, value, element.dtype)
    if isinstance(value, DeviceArray | GpuAddress):
        return value
    if isinstance(value, SparseTensor | np.generic) or not hasattr(value, "__dlpack__"):
        if isinstance(value, np.generic | SparseTensor) or not hasattr(value, "__array__"):
            raise _unreadable(declared, value)
        return _tensor(declared, np.asarray(value))
    return value


def _listed(declared: Declared, value: list[Any], dtype: np.dtype[Any]) -> np.ndarray:
    try:
        array = np.array(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise refusal(
            RuntimeError, f'input "{declared.name}" is a list that is no array: wanted {_described(declared)} ({error})'
        ) from error
    return array.reshape(()) if declared.shape == () and array.size == 1 else array


def _is_alike(array: np.ndarray, wanted: np.dtype[Any], number: int) -> bool:
    """Returns whether an array of another type of NumPy's has elements of the wanted type of ONNX's."""
    if number == _STRING:
        return array.dtype.kind in "SUTO"
    return array.dtype.newbyteorder("=") == wanted or (number == _BFLOAT and array.dtype.name == "bfloat16")


_STRING, _BFLOAT = 8, 16


def _as_texts(array: np.ndarray) -> np.ndarray:
    """Returns an array of texts: objects that are none, such as None and numbers, become `str(value)`."""
    if all(isinstance(each, str | bytes) for each in array.flat):
        return array
    texts = [each if isinstance(each, str | bytes) else str(each) for each in array.flat]
    return np.array(texts, object).reshape(array.shape)


def _name_of(array: np.ndarray) -> str:
    try:
        return element_of(array.dtype).name
    except RuntimeError:
        return str(array.dtype)


def _of_other_type(declared: Declared, given: str) -> Exception:
    message = f'input "{declared.name}" is {given}: wanted {_described(declared)}'
    element = element_of(declared.element) if declared.element else None
    if element is not None and given.startswith("tensor(") and declared.type.startswith("tensor("):
        message += f"; convert it with .astype(np.{element.dtype.name})" if element.is_numpy else ""
    return refusal(InvalidArgument, message)


def _unreadable(declared: Declared, value: Any) -> Exception:
    kind = type(value).__name__
    way = ": pass an array, np.array(value)" if isinstance(value, int | float | bool | np.generic) else ""
    wanted = f"wanted {_described(declared)}"
    message = f'input "{declared.name}" is of the type {kind}, neither an array nor a list{way}; {wanted}'
    return refusal(RuntimeError, message)


def run_error(feed: Feed, inputs: Sequence[Declared], error: RunError) -> Exception:
    """Returns the error of a run as an InvalidArgument if a shape does not fit what is declared, or if onnxruntime's
    kernel would refuse the values of an input; else as a Fail.
    """
    if _REFUSED_VALUES.search(str(error)):
        return as_kind(InvalidArgument, error)
    for declared in inputs:
        value = feed.get(declared.name)
        if declared.shape is None or declared.is_sequence or value is None:
            continue
        shape = tuple(getattr(value, "shape", ()))
        fits = len(shape) == len(declared.shape) and all(
            not isinstance(wanted, int) or wanted == size for size, wanted in zip(shape, declared.shape, strict=True)
        )
        if not fits:
            return as_kind(InvalidArgument, error)
    return as_kind(Fail, error)


_REFUSED_VALUES = re.compile(
    r"the network's code failed: (?:(?:Gather|GatherND|ScatterElements|ScatterND): an index is out of range"
    r"|the data ask for a size '(?:expand|onehot|range|tile)\b)"
)
"""What libraries say of values for which onnxruntime's kernels return INVALID_ARGUMENT; its others return FAIL."""
