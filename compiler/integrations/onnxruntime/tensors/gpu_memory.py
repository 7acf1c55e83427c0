"""Arrays in the memory of NVIDIA's GPUs: copies of arrays, and memory that a program gives by its address."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnefc.loader import DeviceArray, Tensor
from nnefc.loader.gpu import GpuContext

from .element_types import Element

__all__ = ["GpuAddress", "on_gpu"]


def on_gpu(array: np.ndarray, number: int, loader_name: str) -> DeviceArray:
    """Returns a copy of an array in the memory of a GPU.

    Raises:
        RuntimeError: the driver, or a GPU of this number, does not exist.
    """
    try:
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        raise RuntimeError(f"memory of a GPU cannot be allocated: {error}") from error
    made = DeviceArray(GpuContext(number), Tensor("value", loader_name, array.shape), None)
    made.store(array)
    return made


class GpuAddress:
    """Memory of a GPU at an address, which the program that gives it keeps alive.

    Attributes:
        address, shape, nbytes: of the elements.
    """

    def __init__(self, address: int, element: Element, shape: Sequence[int]) -> None:
        data = address, False
        self.address, self.shape = address, tuple(shape)
        self.nbytes = math.prod(self.shape) * element.dtype.itemsize
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": self.shape,
            "typestr": element.dtype.str,
            "data": data,
            "strides": None,
            "version": 3,
        }
