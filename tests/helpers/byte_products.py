"""Operands and expected sums for microkernels that multiply bytes, four terms at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import MultiplyAdd, product_of
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation

__all__ = ["min_max_operands", "product_named", "sums_of_bytes"]


def product_named(name: str) -> MultiplyAdd:
    found = product_of(f"nnefc.{name}")
    assert found is not None
    return found


def min_max_operands(product: MultiplyAdd, is_unsigned: bool, sizes: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Data and weights of so many bytes, each the smallest or the largest that the product takes."""
    rng = np.random.default_rng(1)
    dtype, minimum = (np.uint8, 0) if is_unsigned else (np.int8, -127 if product.joined else -128)
    maximum = 255 if is_unsigned else 127
    data = rng.choice([0 if is_unsigned else -128, maximum], sizes[0]).astype(dtype)
    return data, rng.choice([minimum, maximum], sizes[1]).astype(dtype)


def sums_of_bytes(
    steps: Sequence[Accumulation], trips: int, operands: tuple[np.ndarray, np.ndarray], move: tuple[int, int]
) -> Mapping[int, list[int]]:
    """The sums of four columns each, by their numbers, after so many iterations; `move` is in bytes."""
    data, weights = operands
    found = dict.fromkeys((step.sum for step in steps), np.zeros(4, np.int64))
    for trip in range(trips):
        for step in steps:
            left, right = 4 * step.left + trip * move[0], 4 * step.right + trip * move[1]
            products = weights[right : right + 16].reshape(4, 4).astype(np.int64) @ data[left : left + 4]
            found[step.sum] = found[step.sum] + products
    return {number: total.tolist() for number, total in found.items()}
