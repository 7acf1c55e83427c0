"""Chooses the range of real values that a tensor's integers represent: `minmax`, `percentile` or `entropy`.

`minmax` takes all values that were seen. `percentile` leaves out the rarest 0.01 percent. `entropy` takes the range
whose integers tell most of the values: that of the smallest Kullback-Leibler divergence between the distribution of the
values and the one that the integers can express.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnefc.driver.options import MINMAX
from nnefc.support.diagnostics import CompileError

__all__ = ["METHODS", "Histogram", "ValueRange", "check_method", "grid_of_range"]

Array = np.ndarray[Any, Any]

_BINS = 2048
_LEVELS = 256
_LEFT_OUT = 1e-4


@dataclass
class ValueRange:
    """The min and max of a tensor, or of each of its channels, over all runs."""

    low: Array
    high: Array

    def join(self, low: Array, high: Array) -> None:
        """Take in another run."""
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)

    def divided(self, scale: Array) -> ValueRange:
        """That of the channels divided by factors above zero."""
        return ValueRange(self.low / scale, self.high / scale)

    @property
    def whole(self) -> tuple[float, float]:
        """Over all channels; zero is always in it."""
        return min(0.0, float(self.low.min())), max(0.0, float(self.high.max()))

    @property
    def is_finite(self) -> bool:
        """Whether the tensor had values, all of them finite."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())


@dataclass
class Histogram:
    """Histogram of values with `_BINS` equal bins over a range."""

    low: float
    high: float
    counts: Array = field(default_factory=lambda: np.zeros(_BINS, np.int64))

    def add(self, values: Array) -> None:
        """Take in another run."""
        if self.high > self.low:
            self.counts += np.histogram(values, _BINS, (self.low, self.high))[0]

    @property
    def edges(self) -> Array:
        """Edges of the bins, one more than there are bins."""
        return np.linspace(self.low, self.high, _BINS + 1)


def _minmax(histogram: Histogram) -> tuple[float, float]:
    return histogram.low, histogram.high


def _percentile(histogram: Histogram) -> tuple[float, float]:
    total = int(histogram.counts.sum())
    if not total:
        return histogram.low, histogram.high
    share = np.cumsum(histogram.counts) / total
    first = int(np.searchsorted(share, _LEFT_OUT, side="right"))
    last = int(np.searchsorted(share, 1 - _LEFT_OUT))
    edges = histogram.edges
    return min(0.0, float(edges[first])), max(0.0, float(edges[min(last + 1, _BINS)]))


def _entropy(histogram: Histogram) -> tuple[float, float]:
    """The threshold on magnitudes is searched; what has no negative values has all integers for positive ones."""
    low, high = histogram.low, histogram.high
    maximum = max(-low, high)
    middle = np.abs((histogram.edges[1:] + histogram.edges[:-1]) / 2)
    magnitudes = np.histogram(middle, _BINS, (0, maximum), weights=histogram.counts)[0]
    levels = _LEVELS if low == 0 or high == 0 else _LEVELS // 2
    if not magnitudes.any():
        return low, high
    sizes = range(levels, _BINS + 1, 16)
    best = min(sizes, key=lambda size: _divergence(magnitudes, size, levels))
    threshold = maximum * best / _BINS
    return max(low, -threshold), min(high, threshold)


def _divergence(counts: Array, size: int, levels: int) -> float:
    """Return the Kullback-Leibler divergence of a histogram that is cut at `size` bins and quantized to `levels`.

    Counts beyond the cut are added to its last bin, as values that saturate.
    """
    kept = counts[:size].astype(np.float64)
    wanted = kept.copy()
    wanted[-1] += counts[size:].sum()
    step = np.minimum(np.arange(size) * levels // size, levels - 1)
    filled = kept > 0
    sums = np.bincount(step, kept, levels)
    filled_bins = np.bincount(step, filled, levels)
    means = np.divide(sums, filled_bins, out=np.zeros(levels), where=filled_bins > 0)
    found = np.where(filled, means[step], 0.0)
    p, q = wanted / wanted.sum(), found / max(found.sum(), 1e-300)
    both = (p > 0) & (q > 0)
    lost = float(p[(p > 0) & (q == 0)].sum())
    return float((p[both] * np.log(p[both] / q[both])).sum()) + lost * 20


METHODS: dict[str, Callable[[Histogram], tuple[float, float]]] = {
    MINMAX: _minmax,
    "percentile": _percentile,
    "entropy": _entropy,
}
"""How a range follows from the values, by name."""


def check_method(name: str) -> None:
    """Refuse a name that `METHODS` does not have.

    Raises:
        CompileError: there is no such method.
    """
    if name not in METHODS:
        raise CompileError(f"there is no method {name!r} of calibration", hint=f"choose one of {', '.join(METHODS)}")


def grid_of_range(low: float, high: float) -> tuple[np.float32, int]:
    """The scale and the zero point of uint8 for a range with zero in it, which an integer stands for exactly."""
    scale = np.float32((high - low) / 255)
    if not scale > np.finfo(np.float32).tiny:
        return np.float32(1), 0
    return scale, int(np.clip(np.rint(-low / float(scale)), 0, 255))
