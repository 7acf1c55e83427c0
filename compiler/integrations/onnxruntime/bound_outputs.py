"""Arrays that a library writes its outputs into: those of a program, where no input shares memory with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnefc.loader import DeviceArray, Model

from .inputs import Feed
from .tensors.gpu_memory import GpuAddress

__all__ = ["targets"]


def targets(model: Model, feed: Feed, out: Mapping[str, Any] | None, on_gpu: bool) -> Mapping[str, Any] | str | None:
    """Returns arrays that the library writes to: those that no input shares memory with, where sizes are not
    data-dependent. Other outputs are copied after the run.
    """
    if on_gpu and model.device != "cpu":
        return "device"
    if not out or model._library.is_data_dependent or model._library.finds_sizes:
        return None
    return None if any(isinstance(array, list | None) for array in out.values()) or _overlap(feed, out) else out


def _overlap(feed: Feed, out: Mapping[str, Any]) -> bool:
    ranges = [_span(array) for array in out.values()]
    others = [_span(array) for array in feed.values()]
    return any(a < d and c < b for a, b in ranges for c, d in others)


def _span(array: Any) -> tuple[int, int]:
    """Returns the addresses of the first element of an array and of what follows its last one."""
    if isinstance(array, DeviceArray):
        return array.address, array.address + array.nbytes
    if isinstance(array, GpuAddress):
        return array.address, array.address + array.nbytes
    if hasattr(array, "__cuda_array_interface__"):
        return 0, 1 << 62
    try:
        first, last = np.lib.array_utils.byte_bounds(np.asarray(array))
    except (TypeError, ValueError, RuntimeError):
        return 0, 1 << 62
    return int(first), int(last)
