"""How far a graph's results may be from float64, by what the graph computes.

A graph is evaluated in float64 several times. In each, every step's floats are moved by random errors of the size that
its computation may have: a few units in the last place of the result, or, where terms are added up, of the sum of the
terms' magnitudes, which the same step gives for the magnitudes of its inputs. How far the results move tells how the
graph carries errors on; a result that jumps (of a rounding, a comparison, a choice of the largest) may be any value
that was seen, so nothing is asked of it.

Source: the CESTAC method of stochastic arithmetic, J. Vignes, 1993.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from walk import Graph, Rejected, Step, evaluate

__all__ = ["Bounds", "bounds_of"]

Array = npt.NDArray[np.float64]

UNIT = 2.0**-24
SAMPLES = 5
_STEP_UNITS = 48.0
"""Errors of one step, in units of float32: of elementary functions, of the order of sums, of Winograd's transforms."""
_SPREAD = 4.0
"""How many times the largest movement seen results may move: samples do not meet the worst case."""

# fmt: off
_SUMS = frozenset((
    "Add", "Sub", "Sum", "Mean", "MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "AveragePool",
    "GlobalAveragePool", "LpPool", "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "CumSum",
    "ScatterElements", "ScatterND", "Resize", "GridSample",
))
# fmt: on
"""What adds terms up, and gives for the magnitudes of its inputs the sum of the terms' magnitudes."""
# fmt: off
_EXACT = frozenset((
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Split", "Slice", "Pad",
    "Tile", "Expand", "DepthToSpace", "SpaceToDepth", "Trilu", "CenterCropPad", "ReverseSequence", "Gather",
    "GatherElements", "GatherND", "Compress", "Where", "Clip", "Relu", "Abs", "Neg", "Max", "Min", "MaxPool",
    "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "OneHot", "ConstantOfShape", "EyeLike", "Cast", "Sign",
    "Ceil", "Floor", "Round", "Hardmax",
))
# fmt: on
"""What computes no new floats."""
_CANCELLING = frozenset(
    ("Gelu", "Mish", "HardSwish", "Softplus", "Celu", "Elu", "Selu", "Log", "Acosh", "Asinh", "Atanh")
)
"""What subtracts numbers as large as its inputs, or as one, to give small results."""
_INNER = {"LSTM": 8.0, "GRU": 8.0, "RNN": 8.0}
"""How large the sums inside are, where results are bounded by activations."""


@dataclass(frozen=True)
class Bounds:
    """What one output may be.

    Attributes:
        exact: the result in float64, or the integers.
        allowed: how far each item may be from it; infinite where nothing is asked.
    """

    exact: npt.NDArray[np.generic]
    allowed: Array


def bounds_of(graph: Graph) -> dict[str, Bounds]:
    """The bounds of each output, by its name."""
    rng = np.random.default_rng(graph.seed)
    exact = {t.name: t.exact for t in (*graph.inputs, *graph.constants)}
    scales: dict[str, Array] = {}
    for step in graph.steps:
        values = [exact[name] if name else None for name in step.node.input]
        for name, value in zip(step.node.output, evaluate(step, values), strict=True):
            exact[name] = value
        scales |= _scales(step, values, [exact[name] for name in step.node.output])
    moved: dict[str, Array] = {t.name: np.zeros(t.shape) for t in graph.outputs}
    for _ in range(SAMPLES):
        sample = _sample(graph, scales, rng)
        for tensor in graph.outputs:
            value = sample.get(tensor.name)
            if value is None or value.shape != exact[tensor.name].shape:
                moved[tensor.name][...] = np.inf
                continue
            apart = np.abs(value.astype(np.float64) - exact[tensor.name].astype(np.float64))
            moved[tensor.name] = np.maximum(moved[tensor.name], np.nan_to_num(apart, nan=np.inf))
    return {
        t.name: Bounds(exact[t.name], _allowed(exact[t.name], moved[t.name], scales.get(t.name))) for t in graph.outputs
    }


def _allowed(exact: npt.NDArray[np.generic], moved: Array, scale: Array | None) -> Array:
    if exact.dtype.kind != "f":
        return np.where(moved > 0, np.inf, 0.0)
    floats = exact.astype(np.float64)
    jumped = moved > 0.02 * np.maximum(np.abs(floats), np.abs(floats).max(initial=0) * 0.05)
    own = UNIT * 4 * np.abs(floats) + (_STEP_UNITS * UNIT * scale if scale is not None else 0)
    return np.where(jumped, np.inf, _SPREAD * moved + own + 1e-30)


def _scales(step: Step, values: Sequence[Any | None], results: Sequence[Any]) -> dict[str, Array]:
    """The magnitude that a step's errors are relative to, by result."""
    kind = step.node.op_type
    if kind in _EXACT:
        return {}
    found = {}
    magnitudes: list[npt.NDArray[np.generic]] | None = None
    if kind in _SUMS:
        try:
            magnitudes = evaluate(step, [np.abs(v) if v is not None and v.dtype == np.float64 else v for v in values])
        except Rejected:
            magnitudes = None
    for k, (name, value) in enumerate(zip(step.node.output, results, strict=True)):
        if value.dtype.kind != "f":
            continue
        size = np.abs(value.astype(np.float64))
        if magnitudes is not None and magnitudes[k].shape == value.shape:
            # Transforms of a whole tile share its largest terms.
            size = np.maximum(np.abs(magnitudes[k]), 0.2 * np.abs(magnitudes[k]).max(initial=0))
        else:
            size = np.maximum(size, 0.05 * size.max(initial=0)) + _INNER.get(kind, 0.0)
            if kind in _CANCELLING:
                size = size + 0.25 * np.abs(values[0]) + 0.1
        found[name] = size
    return found


def _sample(graph: Graph, scales: dict[str, Array], rng: np.random.Generator) -> dict[str, npt.NDArray[np.generic]]:
    """One evaluation with errors; results that follow from a refused step are missing."""
    values: dict[str, npt.NDArray[np.generic]] = {t.name: t.exact for t in (*graph.inputs, *graph.constants)}
    for step in graph.steps:
        if any(name and name not in values for name in step.node.input):
            continue
        try:
            found = evaluate(step, [values[name] if name else None for name in step.node.input])
        except Rejected:
            continue
        for name, value in zip(step.node.output, found, strict=True):
            scale = scales.get(name)
            if scale is not None and scale.shape == value.shape:
                value = value + _STEP_UNITS * UNIT * scale * rng.uniform(-1, 1, value.shape)
            values[name] = value
    return values
