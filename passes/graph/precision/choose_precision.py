"""Chooses the convolutions and matrix products that multiply 16-bit floats on a CPU, or only store weights as such."""

from __future__ import annotations

import numpy as np
from tvm import relax

from nnefc.passes.compute.dot.dot_product import pair_speed, sums_in_float16
from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.precision.use_16bit_floats import MOVES, SUMS_OF_LANES, SUMS_OF_PAIRS, Chooser, Float16Sums, Use
from nnefc.passes.graph.rewriter import is_call
from nnefc.targets.machine.cpu.target import Target

__all__ = ["moves_on", "sums_on", "uses_on"]

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")


_ADDITIONS = ("add", "clip")
"""Arithmetic on float16 results that is done in float16: each rounds once more, by as much."""


def moves_on(target: Target, dtype: str) -> tuple[str, ...]:
    """Returns the operators that only move 16-bit floats on this target.

    Others are computed in float32 if the target has no arithmetic in `dtype`.
    """
    if dtype == "float16" and sums_in_float16(target):
        return *MOVES, *_ADDITIONS
    return tuple(name for name in MOVES if name != "nn.relu" and "pool" not in name)


def sums_on(target: Target) -> Float16Sums:
    """Returns the conditions on weights for float16 accumulators on `target`."""
    return SUMS_OF_LANES if sums_in_float16(target) else SUMS_OF_PAIRS


def uses_on(target: Target, dtype: str, algorithms: FastAlgorithms) -> Chooser:
    """Returns the function that decides how contractions on `target` use 16-bit floats: products of pairs are taken
    where they are faster and no faster algorithm reads the weights.
    """
    fast = pair_speed(target) > 1
    multiplied = Use.SUMMED if dtype == "float16" else Use.MULTIPLIED

    def use(call: relax.Call, weights: np.ndarray | None) -> Use:
        """Sums of pairs of float16 are made in float16."""
        if weights is None or weights.dtype.itemsize == 1 or not target.widens(dtype):
            return Use.NONE  # bytes are narrower still
        if algorithms.narrows(weights) and dtype == "float16":
            return Use.READ
        if algorithms.tile(weights) is not None or algorithms.by_strassen(weights):
            return Use.NONE
        if is_call(call, "matmul"):
            if weights.ndim > 2:
                return Use.NONE
            return multiplied if fast else Use.STORED
        if not is_call(call, *_CONVOLUTIONS):
            return Use.NONE
        groups = int(call.attrs.groups)
        if groups > 1 and weights.shape[1] == 1 and not (dtype == "float16" and sums_in_float16(target)):
            return Use.NONE  # a filter of its own for each channel: no sums of pairs
        return multiplied if fast else Use.STORED

    return use
