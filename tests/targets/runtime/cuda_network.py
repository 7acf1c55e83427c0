"""A library for a GPU with its functions declared, and its tensors in the memory of a GPU."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

import numpy as np
from fake_driver import FakeDriver
from runtime_samples import INITIAL_COUNT, WEIGHTS

__all__ = [
    "ALLOCATE",
    "BAD_ARGUMENT",
    "BAD_WEIGHTS",
    "DEVICE_ERROR",
    "KERNEL_ERROR",
    "NO_DEVICE",
    "OK",
    "OUT_OF_MEMORY",
    "RELEASE",
    "Network",
    "OnDevice",
]

OK, BAD_ARGUMENT, OUT_OF_MEMORY, KERNEL_ERROR, BAD_WEIGHTS, NO_DEVICE, DEVICE_ERROR = 0, 1, 4, 5, 7, 8, 9

ALLOCATE = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
RELEASE = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_size_t)


class Options(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_int32),
        ("workspace", c_void_p),
        ("workspace_bytes", c_uint64),
        ("weights", c_char_p),
        ("device", c_int64),
        ("keep_subnormals", c_int64),
        *((name, c_void_p) for name in ("processors", "parallel_for", "parallel_for_pool")),
        ("constant_bytes", c_uint64),
        ("constants", c_void_p),
        ("time_limit", c_int64),
        ("allocate", ALLOCATE),
        ("release", RELEASE),
        ("allocator", c_void_p),
    )


class Network:
    """A library for a GPU, with its functions declared."""

    def __init__(self, path: Path) -> None:
        self.dll = ctypes.CDLL(str(path))
        self.dll.nnefc_last_error.restype = c_char_p
        for name in ("last_error", "destroy", "reset", "synchronize"):
            getattr(self.dll, f"nnefc_{name}").argtypes = [c_void_p]
        self.dll.nnefc_run.argtypes = [c_void_p] * 3
        self.dll.nnefc_enqueue.argtypes = [c_void_p] * 4
        self.x = np.random.default_rng(5).standard_normal(1024).astype(np.float32)
        self.x[:2] = 1, 3
        self.y = np.empty(1024, np.float32)
        self.count = np.empty(1, np.int64)

    def create(self, **options: object) -> tuple[int, c_void_p]:
        chosen = Options(ctypes.sizeof(Options), **options)
        session = c_void_p()
        return self.dll.nnefc_create(byref(chosen), byref(session)), session

    def session(self, **options: object) -> c_void_p:
        status, session = self.create(**options)
        assert status == OK, self.error(None)
        return session

    def run(self, session: c_void_p, *positions: int) -> int:
        """Run with tensors at these positions, or those that this object has."""
        x, y, count = positions or (self.x.ctypes.data, self.y.ctypes.data, self.count.ctypes.data)
        return self.dll.nnefc_run(session, (c_void_p * 1)(x), (c_void_p * 2)(y, count))

    def enqueue(self, session: c_void_p, x: int, y: int, count: int, stream: int | None = None) -> int:
        return self.dll.nnefc_enqueue(session, (c_void_p * 1)(x), (c_void_p * 2)(y, count), stream)

    def error(self, session: c_void_p | None) -> str:
        return self.dll.nnefc_last_error(session).decode()

    def check(self, runs: int) -> None:
        """What the last of so many runs gave."""
        np.testing.assert_array_equal(self.y, -(self.x * WEIGHTS))
        assert self.count[0] == INITIAL_COUNT + runs


class OnDevice:
    """The network's tensors in memory of the present GPU, the first byte so many bytes into a block."""

    def __init__(self, driver: FakeDriver, network: Network, offset: int = 0) -> None:
        self._driver, self._network, self._offset = driver, network, offset
        tensors = (network.x, np.zeros_like(network.y), np.zeros_like(network.count))
        padded = [np.concatenate([np.zeros(offset, np.uint8), tensor.view(np.uint8)]) for tensor in tensors]
        self._blocks = [driver.put(block) for block in padded]
        self.positions = [block + offset for block in self._blocks]

    def check(self, runs: int) -> None:
        """Compare the outputs, which must be done."""
        y, count = self.positions[1:]
        self._network.y[:] = self._driver.get(y, np.float32, 1024)
        self._network.count[:] = self._driver.get(count, np.int64, 1)
        self._network.check(runs)

    def free(self) -> None:
        self._driver.free(*self._blocks)
