"""Chooses between the direct algorithm and Strassen's for a matrix product, by a model of their costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from nnefc.passes.compute.dot.dot_product import pair_speed
from nnefc.passes.graph.stored_weights import Definition, weights_of
from nnefc.targets.machine.cpu.target import Target

__all__ = ["constant_factor", "strassen_bytes", "strassen_saving"]

# Loads and stores of vectors, as measured on Zen 4, where Strassen's algorithm takes 4 and 6 cycles for them.
_SUM_ACCESSES = 6  # for a vector of A: its share of the seven sums, and reading these
_RESULT_ACCESSES = 9  # for a vector of C
_MIN_SAVING = 1.5  # cycles saved for each cycle spent


def strassen_saving(left: Sequence[int], depth: int, columns: int, dtype: str, target: Target) -> float:
    """Returns the cycles that Strassen's algorithm saves; negative where it takes more.

    An eighth of the multiply-adds is set against the sums, and against three quarters more of the constant factor,
    which comes from memory. What saves little counts as nothing, and what cannot be computed so costs infinitely much.

    Args:
        left: the shape of the left factor, `[…, M, K]`.
        depth, columns: K and N of the constant one.
    """
    *batch, rows, _ = left
    costs, lanes = target.costs, target.lanes(dtype)
    if not target.maps_constants or math.prod(batch) != 1 or depth % (2 * lanes) or columns % (2 * lanes):
        return -math.inf
    if target.block_lanes(dtype) > lanes:
        return -math.inf  # its submatrices are made of blocks that are one vector
    vectors = depth * columns / lanes
    saved = rows * vectors * (1 / pair_speed(target) - 7 / 8) / costs.multiply_adds
    accesses = rows * (_SUM_ACCESSES * depth + _RESULT_ACCESSES * columns) / lanes
    spent = accesses / (costs.loads + costs.stores)
    spent += 0.75 * vectors * target.vectors.bytes / costs.memory_bytes_per_cycle
    return min(saved - spent, 0) if saved <= _MIN_SAVING * spent else saved - spent


def strassen_bytes(factor: np.ndarray, dtype: str) -> int:
    """Returns the growth of a constant factor, multiplied as `dtype`, by its seven sums of submatrices."""
    return factor.size * np.dtype(dtype).itemsize * 3 // 4


def multiplied_type(factor: np.ndarray, target: Target) -> str:
    """Returns the element type that a constant factor is packed in: float32 if the target converts its own slowly."""
    dtype = str(factor.dtype)
    return dtype if target.widens(dtype) else "float32"


def constant_factor(right: relax.Expr, rank: int, definition: Definition) -> np.ndarray | None:
    """Returns the constant right factor `[K, N]` of a product with a tensor of `rank`, as a view as of
    :func:`weights_of`; None for others.
    """
    weights = weights_of(right, definition)
    if weights is None:
        return None
    *batch, depth, columns = weights.shape if 2 <= weights.ndim <= rank else (0, 0, 0)
    return weights.reshape(depth, columns) if all(size == 1 for size in batch) else None
