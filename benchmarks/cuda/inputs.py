"""What networks are given on a GPU and where they are compiled: the same numbers, so that they need not travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["EVERY", "drawn"]

EVERY = 5
"""Of this many results of a batch, or steps of a sequence, one is kept to be compared."""


def drawn(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Inputs by name, float32."""
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
