"""Computes error metrics between an array and its reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # the command line starts without NumPy
    import numpy as np

__all__ = ["Difference", "difference"]

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class Difference:
    """Of two arrays of one shape.

    Attributes:
        largest, mean: of the absolute differences, where both are finite; of strings and booleans, each that
            differs counts 1.
        scale: the largest value that there should be, by its absolute value; 1 if there is none but zero.
        wrong: how many elements are infinite or not a number in one array, and something else in the other.
        elements: how many there are.
    """

    largest: float = 0.0
    mean: float = 0.0
    scale: float = 1.0
    wrong: int = 0
    elements: int = 0

    @property
    def relative(self) -> float:
        """The largest difference over the largest value; infinite if anything is wrong."""
        return self.largest / self.scale if not self.wrong else float("inf")


def difference(found: Array, wanted: Array) -> Difference:
    """How far `found` is from `wanted`, which has the same shape."""
    import numpy as np

    if not wanted.size:
        return Difference()
    if wanted.dtype.kind not in "iufV" or found.dtype.kind not in "iufV":
        unequal = np.asarray(found != wanted)
        return Difference(float(unequal.any()), float(unequal.mean()), elements=wanted.size)
    exact, own = wanted.astype(np.float64), found.astype(np.float64)
    usual = np.isfinite(exact) & np.isfinite(own)
    alike = usual | (np.isnan(exact) & np.isnan(own)) | (exact == own)
    if not usual.all():
        exact, own = exact[usual], own[usual]
    apart = np.abs(own - exact)
    return Difference(
        float(apart.max(initial=0)),
        float(apart.mean()) if apart.size else 0.0,
        float(np.abs(exact).max(initial=0)) or 1.0,
        int(wanted.size - np.count_nonzero(alike)),
        wanted.size,
    )
