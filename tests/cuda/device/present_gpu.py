"""Which GPU this machine has."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int
from functools import cache

__all__ = ["architecture"]

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


@cache
def architecture() -> int | None:
    """The compute capability of the first GPU, 90 for 9.0; None without a GPU or a driver. Not next to the stand-in."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, numbers = c_int(), [c_int(), c_int()]
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(byref(device), 0) != 0:
        return None
    for number, attribute in zip(numbers, (_MAJOR, _MINOR), strict=True):
        if driver.cuDeviceGetAttribute(byref(number), attribute, device) != 0:
            return None
    return 10 * numbers[0].value + numbers[1].value
