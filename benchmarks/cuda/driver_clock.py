"""Memory, a stream and times of a GPU by NVIDIA's driver alone, for a machine without PyTorch."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

__all__ = ["DriverClock", "OnGpu"]

GROUPS = 15
GROUP_SECONDS = 0.01
_SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuDevicePrimaryCtxRelease_v2": [c_int],
    "cuCtxPushCurrent_v2": [c_void_p],
    "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
    "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemcpyHtoD_v2": [c_uint64, c_void_p, c_size_t],
    "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
    "cuStreamCreate": [POINTER(c_void_p), c_uint],
    "cuStreamDestroy_v2": [c_void_p],
    "cuStreamSynchronize": [c_void_p],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventDestroy_v2": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
}


class OnGpu:
    """A dense array in the GPU's memory, which shows itself by `__cuda_array_interface__`."""

    def __init__(self, clock: DriverClock, array: np.ndarray) -> None:
        self._clock, self._like = clock, np.ascontiguousarray(array)
        memory = c_uint64()
        clock.call("cuMemAlloc_v2", byref(memory), max(array.nbytes, 1))
        self._address = int(memory.value)
        clock.call("cuMemcpyHtoD_v2", self._address, self._like.ctypes.data, array.nbytes)
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (self._address, False),
            "version": 3,
        }

    def numpy(self) -> np.ndarray:
        """Returns a copy, when what writes the array is done."""
        found = np.empty_like(self._like)
        self._clock.call("cuMemcpyDtoH_v2", found.ctypes.data, self._address, found.nbytes)
        return found

    def free(self) -> None:
        """Frees the memory."""
        self._clock.call("cuMemFree_v2", self._address)


class DriverClock:
    """The first GPU, current for the thread inside the context.

    Attributes:
        stream: CUDA's handle of a stream, for runs.

    Raises:
        RuntimeError: a call of the driver's fails.
    """

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        for name, arguments in _SIGNATURES.items():
            getattr(self._driver, name).argtypes = arguments
        self._device, self._context, self._stream = c_int(), c_void_p(), c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", byref(self._device), 0)

    def __enter__(self) -> DriverClock:
        self.call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)
        self.call("cuCtxPushCurrent_v2", self._context)
        self.call("cuStreamCreate", byref(self._stream), 1)
        return self

    def __exit__(self, *_error: object) -> None:
        self.call("cuStreamDestroy_v2", self._stream)
        self.call("cuCtxPopCurrent_v2", byref(c_void_p()))
        self.call("cuDevicePrimaryCtxRelease_v2", self._device)

    @property
    def stream(self) -> int:
        """Returns the stream's handle."""
        assert self._stream.value is not None
        return self._stream.value

    def about(self) -> dict[str, str]:
        """Returns the device's name, and the version of CUDA that the driver has."""
        name, version = ctypes.create_string_buffer(128), c_int()
        self.call("cuDeviceGetName", name, len(name), self._device)
        self.call("cuDriverGetVersion", byref(version))
        return {"device": name.value.decode(), "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}"}

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver's."""
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} failed with {result}")

    def milliseconds(self, run: Callable[[], Any]) -> float:
        """Returns the time of a run on the stream, between events: the median of groups of runs."""
        run()  # a graph is made when addresses come for the second time
        run()
        self.call("cuStreamSynchronize", self._stream)
        began = time.monotonic()
        run()
        self.call("cuStreamSynchronize", self._stream)
        count = max(1, min(200, int(GROUP_SECONDS / max(time.monotonic() - began, 1e-6))))
        return statistics.median(self._group(run, count) for _ in range(GROUPS))

    def _group(self, run: Callable[[], Any], count: int) -> float:
        begin, end, elapsed = c_void_p(), c_void_p(), c_float()
        for event in (begin, end):
            self.call("cuEventCreate", byref(event), 0)
        self.call("cuEventRecord", begin, self._stream)
        for _ in range(count):
            run()
        self.call("cuEventRecord", end, self._stream)
        self.call("cuEventSynchronize", end)
        self.call("cuEventElapsedTime", byref(elapsed), begin, end)
        for event in (begin, end):
            self.call("cuEventDestroy_v2", event)
        return elapsed.value / count
