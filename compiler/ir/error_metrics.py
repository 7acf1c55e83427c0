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
    """Error metrics of an array against a reference of the same shape.

    Attributes:
        largest, mean: max and mean of the absolute differences where both are finite; a string or boolean that differs
            counts 1.
        scale: the max absolute value of the reference; 1 if all are zero.
        wrong: the number of elements that are infinite or NaN in one array, and differ in the other.
        elements: the number of elements.
    """

    largest: float = 0.0
    mean: float = 0.0
    scale: float = 1.0
    wrong: int = 0
    elements: int = 0

    @property
    def relative(self) -> float:
        """The max difference divided by the max value; infinite if any element is wrong."""
        return self.largest / self.scale if not self.wrong else float("inf")


def difference(found: Array, wanted: Array) -> Difference:
    """Computes the error metrics of `found` against the reference `wanted`, which has the same shape."""
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
