"""Accesses a GPU's memory and streams through NVIDIA's driver, and returns outputs in device memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from .dlpack import BFLOAT, CUDA, KINDS, capsule_of
from .tensors import DTYPES, RunError, Tensor

__all__ = ["DEFAULT_STREAM", "DeviceArray", "GpuContext", "Span", "stream_handle"]

DEFAULT_STREAM = 1  # CUDA's handle of the legacy default stream
_MEMORY_TYPE, _DEVICE_ORDINAL = 2, 9  # attributes of pointers
_DEVICE_MEMORY = 2


@dataclass(frozen=True)
class Span:
    """The address range of an array.

    Attributes:
        address, bytes: of its elements.
        is_host: whether it is in host memory.
        owner: keeps the memory alive; for host memory, the NumPy array.
    """

    address: int
    bytes: int
    is_host: bool
    owner: Any


class GpuContext:
    """The functions of NVIDIA's driver that arrays need, in the primary context of one GPU.

    The library of the network has loaded the driver before.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._driver = ctypes.CDLL("libcuda.so.1")
        signatures: dict[str, list[Any]] = {
            "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
            "cuCtxPushCurrent_v2": [c_void_p],
            "cuDeviceGet": [POINTER(c_int), c_int],
            "cuDevicePrimaryCtxRelease_v2": [c_int],
            "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
            "cuGetErrorString": [c_int, POINTER(c_char_p)],
            "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
            "cuMemFree_v2": [c_uint64],
            "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
            "cuMemcpyHtoD_v2": [c_uint64, c_void_p, c_size_t],
            "cuPointerGetAttributes": [c_uint, POINTER(c_int), POINTER(c_void_p), c_uint64],
            "cuStreamSynchronize": [c_void_p],
        }
        for name, arguments in signatures.items():
            getattr(self._driver, name).argtypes = arguments
        self._peers: dict[int, GpuContext] = {}
        self._context = c_void_p()
        self._device = c_int()
        self._call("cuDeviceGet", byref(self._device), number)
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)

    def allocate(self, size: int) -> int:
        """Allocate device memory, and return its address.

        The memory retains the context, since this object may be deleted before the memory is freed.
        """
        memory = c_uint64()
        with self._current():
            self._call("cuMemAlloc_v2", byref(memory), max(size, 1))
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)
        return int(memory.value)

    def free(self, address: int) -> None:
        """Free memory of :meth:`allocate`."""
        with self._current():
            self._call("cuMemFree_v2", address)
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def peer(self, number: int) -> GpuContext:
        """Return the context of the GPU with a number, which may be this one."""
        if number == self.number:
            return self
        if number not in self._peers:
            self._peers[number] = GpuContext(number)
        return self._peers[number]

    def number_of(self, address: int) -> int:
        """Return the number of the GPU that has an address; this GPU's if the driver does not know the address."""
        kind, number = c_uint(), c_int()
        attributes = (c_int * 2)(_MEMORY_TYPE, _DEVICE_ORDINAL)
        values = (c_void_p * 2)(*(ctypes.addressof(value) for value in (kind, number)))
        with self._current():
            self._call("cuPointerGetAttributes", 2, attributes, values, address)
        return number.value if kind.value == _DEVICE_MEMORY else self.number

    def synchronize(self, stream: int) -> None:
        """Wait until a stream has completed its work."""
        with self._current():
            self._call("cuStreamSynchronize", stream)

    def fetch(self, address: int, array: np.ndarray) -> None:
        """Copy from GPU memory to a dense host array."""
        with self._current():
            self._call("cuMemcpyDtoH_v2", array.ctypes.data, address, array.nbytes)

    def store(self, address: int, array: np.ndarray) -> None:
        """Copy a dense host array to GPU memory."""
        with self._current():
            self._call("cuMemcpyHtoD_v2", address, array.ctypes.data, array.nbytes)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._driver.cuDevicePrimaryCtxRelease_v2(self._device)

    def host_array(self, tensor: Tensor, span: Span) -> np.ndarray:
        """Return the array of a span, copied to the host if it is in GPU memory."""
        if span.is_host:
            return np.asarray(span.owner)
        array = np.empty(tensor.shape, DTYPES[tensor.dtype])
        self.fetch(span.address, array)
        return array

    @contextmanager
    def _current(self) -> Iterator[None]:
        before = c_void_p()
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._driver.cuCtxPopCurrent_v2(byref(before))

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            text = c_char_p()
            self._driver.cuGetErrorString(result, byref(text))
            reason = text.value.decode(errors="replace") if text.value is not None else f"error {result}"
            raise RunError(f"GPU {self.number}: {name} failed: {reason}")


class DeviceArray:
    """An output in the memory of a GPU, dense and row-major; the memory is freed with the last reference to it.

    Libraries that support `__dlpack__` or `__cuda_array_interface__` use it without a copy. If the run that computes it
    has not ended, they wait for it.

    Attributes:
        shape, dtype: as in NumPy; bfloat16 as uint16 bit patterns.
        device: the GPU's number.
        address: of the first element.
    """

    def __init__(self, gpu: GpuContext, tensor: Tensor, stream: int | None) -> None:
        self._gpu = gpu
        self._stream = stream  # on which the run computes the elements; None: the run has ended
        self._is_bfloat = tensor.dtype == "bfloat16"
        self.shape = tensor.shape
        self.dtype = DTYPES[tensor.dtype]
        self.device = gpu.number
        self.address = gpu.allocate(self.nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def numpy(self) -> np.ndarray:
        """Return a copy in host memory."""
        self._wait()
        array = np.empty(self.shape, self.dtype)
        self._gpu.fetch(self.address, array)
        return array

    def store(self, array: np.ndarray) -> None:
        """Overwrite the elements with those of a dense host array of the same type and number of elements."""
        self._wait()
        self._gpu.store(self.address, array)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": self._stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, copy: bool | None = None, **_: Any) -> Any:
        if copy:
            raise BufferError("a DeviceArray is given without a copy")
        if stream != self._stream:
            self._wait()
        return capsule_of(self, BFLOAT if self._is_bfloat else KINDS[self.dtype.kind])

    def __reduce__(self) -> NoReturn:
        """Refuse copies: two objects would free the same memory."""
        raise TypeError("a DeviceArray cannot be copied or pickled: numpy() copies its elements")

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on cuda:{self.device}>"

    def __del__(self) -> None:
        if getattr(self, "address", None) is not None:
            with suppress(RunError):  # at the end of the process, the driver may be gone already
                self._gpu.free(self.address)

    def _wait(self) -> None:
        if self._stream is not None:
            self._gpu.synchronize(self._stream)


def stream_handle(stream: Any) -> int:
    """Return CUDA's handle of a stream.

    `stream` is the handle, or a stream object of another library, such as PyTorch or CuPy.

    Raises:
        RunError: it is neither.
    """
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1]
    for name in ("cuda_stream", "ptr", "handle"):  # of PyTorch, CuPy, CUDA's Python bindings
        stream = getattr(stream, name, stream)
    try:
        return int(stream) or DEFAULT_STREAM  # handle 0 is the default stream as well
    except (TypeError, ValueError):
        raise RunError(f"stream is a {type(stream).__name__}, which is not a CUDA stream") from None
