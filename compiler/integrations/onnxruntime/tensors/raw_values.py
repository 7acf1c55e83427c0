"""Values as onnxruntime's module of C++ classes has them: tensors, sequences of tensors, sparse tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnefc.loader import DeviceArray
from nnefc.loader.arrays import address_of

from ..devices import OrtMemoryInfo, RawOrtDevice
from .element_types import Element, element_of, element_of_array, onnx_name
from .gpu_memory import on_gpu
from .sparse import RawSparseTensor

__all__ = ["HOST", "OrtValueVector", "RawOrtValue", "array_at", "value_of_array"]

HOST = 1
"""DLPack's number of the host's memory."""


class RawOrtValue:
    """A value: `OrtValue` of onnxruntime's module of C++ classes.

    Attributes:
        content: an array, one on a GPU, a list of arrays or mappings, a sparse tensor, or None for no value.
    """

    def __init__(self, content: Any, element: Element | None = None) -> None:
        self.content = content
        self._element = element if element is not None or not isinstance(content, np.ndarray) else _element(content)

    @staticmethod
    def ortvalue_from_numpy(array: np.ndarray, device: RawOrtDevice, /) -> RawOrtValue:
        """Returns a value that shares the array's memory, or a copy of it on a GPU."""
        return value_of_array(array, "cuda" if device.device_type() == RawOrtDevice.cuda() else "cpu", device)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(array: np.ndarray, number: int, /) -> RawOrtValue:
        """Returns a value whose elements are of the type with this number of ONNX.

        Raises:
            RuntimeError: the elements of that type have another size.
        """
        element = element_of(number)
        if array.dtype.itemsize != element.dtype.itemsize:
            raise RuntimeError(f"elements of {array.dtype} cannot be those of {element.name}: their sizes differ")
        return RawOrtValue(np.ascontiguousarray(array).view(element.dtype), element)

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], kind: Any, device: RawOrtDevice, /) -> RawOrtValue:
        """Returns a tensor of zeros."""
        element = element_of(kind)
        if element.dtype.hasobject:
            raise RuntimeError("values of strings are results of runs, and cannot be made")
        array = np.zeros(tuple(shape), element.dtype)
        if device.device_type() == RawOrtDevice.cuda():
            return RawOrtValue(on_gpu(array, device.device_id(), element.loader_name), element)
        return RawOrtValue(array, element)

    ortvalue_from_shape_and_onnx_type = ortvalue_from_shape_and_type

    @staticmethod
    def ortvalue_from_shape_and_type_for_memory_info(
        shape: Sequence[int], kind: Any, memory: OrtMemoryInfo, /
    ) -> RawOrtValue:
        """Returns a tensor of zeros in this memory."""
        device = RawOrtDevice(int(memory.name == "Cuda"), 0, 0, memory.device_id)
        return RawOrtValue.ortvalue_from_shape_and_type(shape, kind, device)

    ortvalue_from_shape_and_onnx_type_for_memory_info = ortvalue_from_shape_and_type_for_memory_info

    @staticmethod
    def ort_value_from_sparse_tensor(sparse_tensor: RawSparseTensor, /) -> RawOrtValue:
        """Returns a value that is a sparse tensor."""
        return RawOrtValue(sparse_tensor)

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False, /) -> RawOrtValue:
        """Returns a value that shares the memory of another library's array, or of a capsule of DLPack."""
        array = np.from_dlpack(data if hasattr(data, "__dlpack__") else _Capsule(data))
        return RawOrtValue(array.view(np.bool_) if is_bool_tensor and array.dtype == np.uint8 else array)

    def to_dlpack(self) -> Any:
        """Returns a capsule of DLPack that shares the memory."""
        return self.array("to_dlpack").__dlpack__()

    def __dlpack__(self, stream: int | None = None) -> Any:
        """Returns a capsule of DLPack, as other libraries' `from_dlpack` ask for; a stream has no effect."""
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns DLPack's kind and number of the device."""
        kind, number = self.array("__dlpack_device__").__dlpack_device__()
        return kind, number

    def as_sparse_tensor(self) -> RawSparseTensor:
        """Returns the sparse tensor.

        Raises:
            RuntimeError: the value is none.
        """
        if not isinstance(self.content, RawSparseTensor):
            raise RuntimeError(f"the value is no sparse tensor: its type is {self.data_type()}")
        return self.content

    def data_ptr(self) -> int:
        """Returns the address of the first element."""
        content = self.array("data_ptr")
        return content.address if isinstance(content, DeviceArray) else address_of(content)

    def device_name(self) -> str:
        """Returns "Cpu" or "Cuda"."""
        if isinstance(self.content, list):
            raise RuntimeError("a sequence is on no device: its tensors are")
        return "Cuda" if isinstance(self.content, DeviceArray) else "Cpu"

    def shape(self) -> list[int]:
        """Returns the sizes, those of the dense tensor for a sparse one.

        Raises:
            RuntimeError: the value is no tensor.
        """
        if isinstance(self.content, RawSparseTensor):
            return list(self.content.shape)
        return list(self.array("shape").shape)

    def data_type(self) -> str:
        """Returns ONNX's name of the type."""
        if isinstance(self.content, RawSparseTensor):
            return f"sparse_tensor({onnx_name(self.element_type())})"
        if isinstance(self.content, list):
            first = self.content[0] if self.content else None
            if isinstance(first, dict):
                key = "string" if first and isinstance(next(iter(first)), str) else "int64"
                return f"seq(map({key},tensor(float)))"
            return f"seq(tensor({onnx_name(self.element_type())}))"
        return f"tensor({onnx_name(self.element_type())})"

    def element_type(self) -> int:
        """Returns ONNX's number of the type of the elements."""
        if self._element is not None:
            return self._element.number
        if isinstance(self.content, RawSparseTensor):
            return element_of_array(self.content.values).number
        if isinstance(self.content, list) and self.content and isinstance(self.content[0], np.ndarray):
            return element_of_array(self.content[0]).number
        return 0

    def has_value(self) -> bool:
        """Returns False for an optional value that is absent."""
        return self.content is not None

    def is_tensor(self) -> bool:
        """Returns whether the value is a dense tensor."""
        return isinstance(self.content, np.ndarray | DeviceArray)

    def is_sparse_tensor(self) -> bool:
        """Returns whether the value is a sparse tensor."""
        return isinstance(self.content, RawSparseTensor)

    def is_tensor_sequence(self) -> bool:
        """Returns whether the value is a sequence of tensors."""
        return isinstance(self.content, list) and not any(isinstance(each, dict) for each in self.content)

    def tensor_size_in_bytes(self) -> int:
        """Returns the size of the elements."""
        return int(self.array("tensor_size_in_bytes").nbytes)

    def numpy(self) -> np.ndarray:
        """Returns an array that shares the memory, or a copy from a GPU.

        Raises:
            RuntimeError: the value is no tensor, or of a type that NumPy has not.
        """
        content = self.array("numpy")
        if self._element is not None and not self._element.is_numpy:
            raise RuntimeError(f"NumPy has no elements of the type {self._element.name}")
        return content.numpy() if isinstance(content, DeviceArray) else content

    def host_array(self) -> np.ndarray:
        """Returns an array of the elements, those of bfloat16 as their bits in uint16."""
        content = self.array("numpy")
        return content.numpy() if isinstance(content, DeviceArray) else content

    def update_inplace(self, data: Any, /) -> None:
        """Copies other elements into the memory, as many and of the same type.

        Raises:
            RuntimeError: there are others, or of another type.
        """
        source = data.host_array() if isinstance(data, RawOrtValue) else np.asarray(data)
        target = self.array("update_inplace")
        count = math.prod(target.shape)
        if source.dtype != target.dtype or source.size != count:
            raise RuntimeError(
                f"a value with {count} elements of {target.dtype} gets {source.size} elements of {source.dtype}"
            )
        source = np.ascontiguousarray(source)
        if isinstance(target, DeviceArray):
            target.store(source)
        else:
            target[...] = source.reshape(target.shape)

    def array(self, what: str) -> Any:
        """Returns the array, of the host or a GPU.

        Raises:
            RuntimeError: the value is no tensor.
        """
        if not isinstance(self.content, np.ndarray | DeviceArray):
            kind = "no value" if self.content is None else self.data_type()
            raise RuntimeError(f"{what} is for tensors, and the value is {kind}")
        return self.content


class OrtValueVector(list[RawOrtValue]):
    """A list of values: `OrtValueVector` of onnxruntime's module of C++ classes."""

    def push_back(self, value: Any, is_bool_tensor: bool = False, /) -> None:
        """Appends a value, or a capsule of DLPack."""
        self.append(value if isinstance(value, RawOrtValue) else RawOrtValue.from_dlpack(value, is_bool_tensor))

    def reserve(self, count: int, /) -> None:
        """Does nothing: a list grows by itself."""

    def shrink_to_fit(self) -> None:
        """Does nothing: a list shrinks by itself."""

    def element_type_at(self, idx: int) -> int:
        """Returns ONNX's number of the type of a value's elements."""
        return self[idx].element_type()

    def dlpack_at(self, index: int, /) -> Any:
        """Returns a capsule of DLPack that shares the memory of a value."""
        return self[index].to_dlpack()

    def to_dlpacks(self, to_tensor: Any, /) -> list[Any]:
        """Returns capsules of DLPack, or what `to_tensor` makes of them."""
        capsules = [value.to_dlpack() for value in self]
        return capsules if to_tensor is None else [to_tensor(capsule) for capsule in capsules]

    def push_back_batch(
        self, tensors: Sequence[Any], addresses: Sequence[int], types: Sequence[Any], shapes: Sequence[Any], _: Any, /
    ) -> None:
        """Appends tensors at these addresses of the host's memory; each of `tensors` keeps its own alive."""
        for owner, address, kind, shape in zip(tensors, addresses, types, shapes, strict=True):
            self.append(RawOrtValue(array_at(address, element_of(kind), shape, owner), element_of(kind)))


class _Capsule:
    """Shows a capsule of DLPack as an array of the host's memory."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST, 0


def _element(array: np.ndarray) -> Element:
    return element_of_array(array)


def value_of_array(array: Any, device_type: str, device: RawOrtDevice) -> RawOrtValue:
    if not isinstance(array, np.ndarray) or array.dtype.kind in "SUTO":
        kind = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise RuntimeError(f"a value is made of an array of numbers, and not of {kind}")
    element = element_of_array(array)
    dense = np.ascontiguousarray(array).reshape(array.shape)
    if device_type == "cuda":
        return RawOrtValue(on_gpu(dense, device.device_id(), element.loader_name), element)
    return RawOrtValue(dense if element.is_numpy else dense.view(np.uint16), element)


class _Address:
    """Shows memory of the host to NumPy; `owner` keeps it alive."""

    def __init__(self, address: int, element: Element, shape: Sequence[int], owner: Any) -> None:
        self._owner = owner
        data = address, False
        self.__array_interface__ = {"shape": tuple(shape), "typestr": element.dtype.str, "data": data, "version": 3}


def array_at(address: int, element: Element, shape: Sequence[int], owner: Any = None) -> np.ndarray:
    """Returns an array of the host's memory at an address."""
    if 0 in shape:
        return np.empty(tuple(shape), element.dtype)
    return np.asarray(_Address(address, element, shape, owner))
