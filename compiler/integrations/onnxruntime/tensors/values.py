"""Values of inputs and outputs, as programs make and read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnefc.loader import DeviceArray

from ..devices import OrtDevice, OrtMemoryInfo, check_device
from .raw_values import HOST, RawOrtValue, value_of_array
from .sparse import SparseTensor

__all__ = ["OrtValue", "copy_tensors"]


class OrtValue:
    """A value of an input or output."""

    def __init__(self, ortvalue: RawOrtValue, numpy_obj: np.ndarray | None = None, session: Any = None) -> None:
        if not isinstance(ortvalue, RawOrtValue):
            raise ValueError(f"a value is made by OrtValue.ortvalue_from_numpy, not of a {type(ortvalue).__name__}")
        self._ortvalue, self._numpy_obj, self._session = ortvalue, numpy_obj, session

    def _get_c_value(self) -> RawOrtValue:
        return self._ortvalue

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Returns a value that shares the memory of a dense array, or a copy of it on a GPU.

        Raises:
            RuntimeError: it is no array of numbers, or there is no such device.
        """
        device = OrtDevice.make(device_type, device_id, vendor_id)._get_c_device()
        return cls(value_of_array(numpy_obj, check_device(device_type), device), numpy_obj)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> OrtValue:
        """Returns a value whose elements are of the type with this number of ONNX, such as 16 for bfloat16."""
        return cls(RawOrtValue.ortvalue_from_numpy_with_onnx_type(data, onnx_element_type), data)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Returns a tensor of zeros."""
        if memory_info is not None:
            return cls(RawOrtValue.ortvalue_from_shape_and_type_for_memory_info(shape, element_type, memory_info))
        check_device(device_type)
        device = OrtDevice.make(device_type, device_id, vendor_id)._get_c_device()
        return cls(RawOrtValue.ortvalue_from_shape_and_type(shape, element_type, device))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """Returns a value that is a sparse tensor."""
        return cls(RawOrtValue(sparse_tensor._get_c_tensor()))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Returns a value that shares the memory of another library's array."""
        return cls(RawOrtValue.from_dlpack(data))

    def as_sparse_tensor(self) -> SparseTensor:
        """Returns the sparse tensor.

        Raises:
            RuntimeError: the value is none.
        """
        return SparseTensor(self._ortvalue.as_sparse_tensor())

    def data_ptr(self) -> int:
        """Returns the address of the first element."""
        return self._ortvalue.data_ptr()

    def device_name(self) -> str:
        """Returns "cpu" or "cuda"."""
        return self._ortvalue.device_name().lower()

    def shape(self) -> list[int]:
        """Returns the sizes."""
        return self._ortvalue.shape()

    def data_type(self) -> str:
        """Returns ONNX's name of the type, such as `tensor(float)`."""
        return self._ortvalue.data_type()

    def element_type(self) -> int:
        """Returns ONNX's number of the type of the elements."""
        return self._ortvalue.element_type()

    def tensor_size_in_bytes(self) -> int:
        """Returns the size of the elements."""
        return self._ortvalue.tensor_size_in_bytes()

    def has_value(self) -> bool:
        """Returns False for an optional value that is absent."""
        return self._ortvalue.has_value()

    def is_tensor(self) -> bool:
        """Returns whether the value is a dense tensor."""
        return self._ortvalue.is_tensor()

    def is_sparse_tensor(self) -> bool:
        """Returns whether the value is a sparse tensor."""
        return self._ortvalue.is_sparse_tensor()

    def is_tensor_sequence(self) -> bool:
        """Returns whether the value is a sequence of tensors."""
        return self._ortvalue.is_tensor_sequence()

    def numpy(self) -> np.ndarray:
        """Returns an array that shares the memory, or a copy from a GPU."""
        return self._ortvalue.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        converted = array if dtype is None else array.astype(dtype, copy=False)
        return converted.copy() if copy and converted is array else converted

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        content = self._ortvalue.array("__dlpack__")
        return content.__dlpack__(stream=stream) if isinstance(content, DeviceArray) else content.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        content = self._ortvalue.content
        return content.__dlpack_device__() if isinstance(content, DeviceArray) else (HOST, 0)

    def update_inplace(self, data: Any) -> None:
        """Copies other elements into the memory, as many and of the same type.

        Raises:
            TypeError: `data` is neither an array nor a value.
            RuntimeError: there are others, or of another type.
        """
        if not isinstance(data, np.ndarray | OrtValue):
            raise TypeError(f"a value is updated with an array or an OrtValue, and not with a {type(data).__name__}")
        self._ortvalue.update_inplace(data._ortvalue if isinstance(data, OrtValue) else data)


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copies the elements of values to as many other values.

    Raises:
        RuntimeError: there are other numbers of values.
    """
    if len(src) != len(dst):
        raise RuntimeError(f"{len(src)} values are copied to {len(dst)}")
    for source, target in zip(src, dst, strict=True):
        target._get_c_value().update_inplace(source._get_c_value())
