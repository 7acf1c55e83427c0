"""Graphs whose inputs hold special values of IEEE 754: no numbers, infinities and zeros of both signs.

Bounds (:mod:`bounds`) say what cancellation may take from numbers, and say nothing where there are none. Here it is
looked at what kind of value each element is, and where it is a number, whether it is about the right one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from graph import Graph, Tensor
from steps import Rejected, evaluate

__all__ = ["nearby_values", "special_difference", "with_special_values"]

Arrays = Mapping[str, npt.NDArray[np.generic]]

_VALUES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
_SHARES = np.array([0.4, 0.2, 0.2, 0.1, 0.1])
_NEAR = 0.05
"""How far numbers may be from those of the reference, over them or a small part of the largest number of the tensor."""
_ERROR = 2.0**-20
"""Of each step, over its results: beyond it roundings and comparisons give other numbers."""


def with_special_values(graph: Graph) -> Graph | None:
    """The graph with special values among those of its inputs; None if nothing says what it gives for them."""
    rng = np.random.default_rng([graph.seed, 1])
    inputs = [_disturbed(tensor, rng) for tensor in graph.inputs]
    try:
        return replace(replace(graph, inputs=inputs).with_values(), special=True)
    except Rejected:
        return None


def nearby_values(graph: Graph) -> Iterator[dict[str, npt.NDArray[np.generic]]]:
    """The outputs, by name, where each step errs to the one side, and to the other; none that cannot be computed."""
    for error in (1 + _ERROR, 1 - _ERROR):
        values = {t.name: t.exact for t in (*graph.inputs, *graph.constants)}
        try:
            for step in graph.steps:
                found = evaluate(step, [values[name] if name else None for name in step.inputs])
                moved = [value * error if value.dtype.kind == "f" else value for value in found]
                values |= dict(zip(step.node.output, moved, strict=True))
        except Rejected:
            continue
        yield {t.name: values[t.name] for t in graph.outputs}


def special_difference(results: Arrays, *expected: Arrays) -> str:
    """How results differ in kinds of values, or in numbers by far, from all that are expected; "" if they do not."""
    for name, exact in expected[0].items():
        value = results[name]
        others = [other[name] for other in expected if other[name].shape == value.shape]
        if not others:
            return f"{name} has the shape {value.shape}, not {exact.shape}"
        wrong = np.logical_and.reduce([_wrong(value, other) for other in others])
        if wrong.any():
            where = tuple(int(k) for k in np.argwhere(wrong)[0])
            values = " nor ".join(repr(other[where]) for other in others)
            return f"{name}{list(where)} is {value[where]!r}, not {values}; {int(wrong.sum())} of {wrong.size} elements"
    return ""


def _disturbed(tensor: Tensor, rng: np.random.Generator) -> Tensor:
    if not tensor.is_float or not tensor.array.size:
        return tensor
    array = tensor.array.copy()
    count = int(rng.integers(1, max(2, array.size // 4 + 1)))
    array.reshape(-1)[rng.integers(0, array.size, count)] = rng.choice(_VALUES, count, p=_SHARES)
    return replace(tensor, array=array)


def _wrong(value: npt.NDArray[np.generic], exact: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    if exact.dtype.kind != "f":
        return np.asarray(value != exact)
    with np.errstate(all="ignore"):
        numbers, right = value.astype(np.float64), exact.astype(np.float32).astype(np.float64)
        largest = np.abs(right[np.isfinite(right)]).max(initial=0)
        near = np.abs(numbers - right) <= _NEAR * np.maximum(np.abs(right), _NEAR * largest) + 1e-6
    return np.asarray(~(near | (numbers == right) | (np.isnan(numbers) & np.isnan(right))))
