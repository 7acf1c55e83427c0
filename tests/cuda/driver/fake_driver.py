"""A driver of NVIDIA's that needs no GPU: the folder `stand_in` as libcuda.so.1, in this process or for programs.

driver = FakeDriver.install()      # from now on, libraries of this process find it
with driver.kernels(path):         # the emulated kernels, see stand_in/stand_in.h
    model = nnefc.load(library)
    driver.clear()
    model(x)
    driver.log                     # the calls, a line each
    driver.complaints              # misuse, a line each
    driver.objects                 # what lives
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_bool, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
from runtime_samples import ZIG_CC, folder

__all__ = ["HERE", "FakeDriver", "driver_folder"]

HERE = Path(__file__).parent

_ZIG = [*ZIG_CC, "-g", "-fPIC", "-shared"]


@functools.cache
def driver_folder() -> Path:
    """The folder with the driver, for LD_LIBRARY_PATH."""
    path = folder("fake-cuda")
    flags = ["-fno-sanitize=all", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1", "-ldl", "-lpthread"]
    sources = sorted(map(str, (HERE / "stand_in").glob("*.c")))
    command = [*_ZIG, *sources, *flags, "-o", str(path / "libcuda.so.1")]
    subprocess.run(command, check=True)
    return path


class FakeDriver:
    """The driver in this process."""

    def __init__(self) -> None:
        self.dll = ctypes.CDLL(str(driver_folder() / "libcuda.so.1"))
        for name in ("fake_log", "fake_complaints", "fake_objects"):
            getattr(self.dll, name).restype = c_char_p
        self.dll.fake_fail.argtypes = [c_uint, c_int, c_char_p]
        self.dll.fake_pools.argtypes = [c_bool]
        self.dll.cuMemAlloc_v2.argtypes = [c_void_p, c_size_t]
        self.dll.cuMemFree_v2.argtypes = [c_ulonglong]
        self.dll.cuMemcpyHtoD_v2.argtypes = [c_ulonglong, c_void_p, c_size_t]
        self.dll.cuMemcpyDtoH_v2.argtypes = [c_void_p, c_ulonglong, c_size_t]
        self.dll.cuCtxPushCurrent_v2.argtypes = [c_void_p]
        self.dll.cuStreamSynchronize.argtypes = [c_void_p]
        self.dll.cuStreamDestroy_v2.argtypes = [c_void_p]

    @staticmethod
    @functools.cache
    def install() -> FakeDriver:
        """The one driver of this process, which each opening of libcuda.so.1 gets from now on."""
        return FakeDriver()

    def machine(
        self, devices: int = 1, capability: tuple[int, int] = (9, 0), version: int = 13000, pools: bool = True
    ) -> None:
        """Change the number of GPUs, their compute capability, whether they have memory pools; the driver's version."""
        self.dll.fake_machine(devices, *capability, version)
        self.dll.fake_pools(pools)

    def clear(self) -> None:
        """Begin a new log; nothing fails on purpose."""
        self.dll.fake_clear()

    def fail(self, call: int, result: int, function: str = "") -> None:
        """Let the n-th call from here on fail with a result, counting all or those of a function."""
        self.dll.fake_fail(call, result, function.encode())

    @property
    def log(self) -> list[str]:
        """The calls since :meth:`clear`, with what they were given."""
        return self.dll.fake_log().decode().splitlines()

    @property
    def names(self) -> list[str]:
        """The names alone of the functions that were called, without those that make a context current or not."""
        return [line.split()[0] for line in self.log if not line.startswith(("cuCtx", "  "))]

    @property
    def complaints(self) -> str:
        """What was wrong with calls."""
        return self.dll.fake_complaints().decode()

    @property
    def objects(self) -> list[str]:
        """All that was made and not freed."""
        return self.dll.fake_objects().decode().splitlines()

    @contextmanager
    def kernels(self, library: Path) -> Iterator[None]:
        """Let modules that are loaded meanwhile take their kernels from a library."""
        before = os.environ.get("NNEFC_EMULATED_KERNELS")
        os.environ["NNEFC_EMULATED_KERNELS"] = str(library)
        try:
            yield
        finally:
            if before is None:
                del os.environ["NNEFC_EMULATED_KERNELS"]
            else:
                os.environ["NNEFC_EMULATED_KERNELS"] = before

    @contextmanager
    def context(self, device: int = 0) -> Iterator[None]:
        """Make a GPU's primary context current, as a program does that uses CUDA itself."""
        context = c_void_p()
        self._check(self.dll.cuInit(0))
        self._check(self.dll.cuDevicePrimaryCtxRetain(byref(context), device))
        self._check(self.dll.cuCtxPushCurrent_v2(context))
        try:
            yield
        finally:
            self._check(self.dll.cuCtxPopCurrent_v2(byref(context)))
            self._check(self.dll.cuDevicePrimaryCtxRelease_v2(device))

    def put(self, array: np.ndarray) -> int:
        """Copy an array to new memory of the present GPU."""
        memory = c_ulonglong()
        self._check(self.dll.cuMemAlloc_v2(byref(memory), array.nbytes))
        self._check(self.dll.cuMemcpyHtoD_v2(memory.value, array.ctypes.data, array.nbytes))
        return int(memory.value)

    def get(self, memory: int, dtype: type[np.generic], *shape: int) -> np.ndarray:
        """Copy an array from the present GPU."""
        array = np.empty(shape, dtype)
        self._check(self.dll.cuMemcpyDtoH_v2(array.ctypes.data, memory, array.nbytes))
        return array

    def free(self, *memory: int) -> None:
        """Free what :meth:`put` made."""
        for block in memory:
            self._check(self.dll.cuMemFree_v2(block))

    def stream(self) -> int:
        """A new stream of the present GPU."""
        stream = c_void_p()
        self._check(self.dll.cuStreamCreate(byref(stream), 1))
        assert stream.value is not None
        return stream.value

    def _check(self, result: int) -> None:
        assert result == 0, (result, self.complaints)
