"""Images of digits, of which readers and detectors of text know what to make: lines of them, and scattered ones."""

from __future__ import annotations

import numpy as np

__all__ = ["line_of_text", "scattered_digits"]

# Each digit is seven rows of five pixels, the left one the highest bit.
_DIGITS = (
    (14, 17, 19, 21, 25, 17, 14), (4, 12, 4, 4, 4, 4, 14), (14, 17, 1, 2, 4, 8, 31), (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2), (31, 16, 30, 1, 1, 17, 14), (6, 8, 16, 30, 17, 17, 14), (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14), (14, 17, 17, 15, 1, 2, 12),
)  # fmt: skip


_CELLS = 6  # a side, with a digit each or none


def line_of_text(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Random digits from left to right, dark on a bright ground with a little noise: `[height, width]` in 0 … 1."""
    size = int(rng.integers(height // 2, height * 3 // 4 + 1))
    image = np.full((height, width), rng.uniform(0.7, 1.0))
    ink, step = rng.uniform(0.0, 0.3), size * 6 // 7
    for left in range(step // 2, width - step, step):
        if rng.random() < 0.9:  # else a space
            _draw(image, int(rng.integers(10)), (height - size) // 2, left, size, ink)
    return _noisy(rng, image, 0.02)


def scattered_digits(rng: np.random.Generator, size: int) -> np.ndarray:
    """Dark digits at random positions of a bright image: `[3, size, size]` in 0 … 1."""
    image, cell = np.full((size, size), rng.uniform(0.85, 1.0)), size // _CELLS
    for position in rng.choice(_CELLS**2, int(rng.integers(8, 17)), replace=False):
        height = int(rng.integers(cell * 2 // 3, cell * 5 // 6))
        top, left = (int(n) * cell + int(rng.integers(0, cell - height)) for n in divmod(int(position), _CELLS))
        _draw(image, int(rng.integers(10)), top, left, height, rng.uniform(0.1, 0.4))
    return np.repeat(_noisy(rng, image, 0.01)[None], 3, 0)


def _draw(image: np.ndarray, digit: int, top: int, left: int, height: int, ink: float) -> None:
    """With soft edges: the rows and columns of the digit are interpolated."""
    rows = np.array([[row >> bit & 1 for bit in (4, 3, 2, 1, 0)] for row in _DIGITS[digit]], np.float64)
    width = height * 5 // 7
    y, x = (np.clip((np.arange(n) + 0.5) * m / n - 0.5, 0, m - 1) for n, m in ((height, 7), (width, 5)))
    by_row = np.stack([np.interp(y, np.arange(7), column) for column in rows.T], 1)
    soft = np.clip(2 * np.stack([np.interp(x, np.arange(5), row) for row in by_row]) - 0.5, 0, 1)
    part = image[top : top + height, left : left + width]
    part += (ink - part) * soft[: part.shape[0], : part.shape[1]]


def _noisy(rng: np.random.Generator, image: np.ndarray, size: float) -> np.ndarray:
    return np.clip(image + size * rng.standard_normal(image.shape), 0, 1).astype(np.float32)
