"""Measures this machine's peak arithmetic rate and memory bandwidth with NumPy, for a roofline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Roofs", "measured_roofs"]

_SIDE = 768  # of square matrices
_ELEMENTS = 1 << 24  # of float32, 64 MiB: more than caches hold
_REPEATS = 4


@dataclass(frozen=True)
class Roofs:
    """The peak rates of a machine: float32 operations and bytes of memory traffic per second."""

    operations: float
    bytes: float


def measured_roofs() -> Roofs:
    """Measure the peak rates by some matrix products and copies, in a fraction of a second."""
    import numpy as np

    matrix = np.ones((_SIDE, _SIDE), np.float32)
    product, source = np.empty_like(matrix), np.ones(_ELEMENTS, np.float32)
    target = np.empty_like(source)
    multiplied = _best(lambda: np.matmul(matrix, matrix, out=product))
    copied = _best(lambda: np.copyto(target, source))
    return Roofs(2 * _SIDE**3 / multiplied, (source.nbytes + target.nbytes) / copied)


def _best(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return max(best, 1e-9)
