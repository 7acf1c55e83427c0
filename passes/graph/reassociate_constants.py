"""Decides when constants that are added or multiplied one after another may be combined first (reassociation).

A large constant that is added and subtracted again rounds, because sums have no more digits than their type:

    a = x + 12582912            # 1.5 · 2²³: float32 has no fractions there
    b = a - 12582912            # x, rounded to the nearest integer
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

__all__ = ["grows", "shifts_round"]

_SMALLEST_STEP = 1 / 16
"""The smallest step to which a network may round on purpose; smaller ones count as float error."""


def grows(*arrays: np.ndarray) -> bool:
    """Whether the combined constants, broadcast, have more elements than the largest of them: `[C, 1, 1]` and `[1, H,
    W]`.
    """
    together = math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))
    return together > max(array.size for array in arrays)


def shifts_round(one: np.ndarray, other: np.ndarray, dtype: str | np.dtype[np.generic]) -> bool:
    """Whether adding two constants one after another gives other results than adding their sum, because of rounding in
    `dtype`.

    This holds where they cancel at all positions, and where they do for the most part in any, and the distance between
    numbers of their size is no mere error.
    """
    one, other = one.astype(np.float64), other.astype(np.float64)
    larger, total = np.maximum(np.abs(one), np.abs(other)), np.abs(one + other)
    step = larger * float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    all_cancel = (larger > 0).all() and (total <= step).all()
    return bool(all_cancel or ((2 * total < larger) & (step >= _SMALLEST_STEP)).any())
