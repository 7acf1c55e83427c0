"""Graphs with inputs of other sizes, for libraries that leave sizes open: one library is run with several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from graph import Graph, Tensor
from steps import Rejected, in_float32
from walk import LARGEST, MAX_ELEMENTS

from nnefc.loader.tensors import Dimension

__all__ = ["with_other_sizes"]

_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33)


def with_other_sizes(
    graph: Graph, shapes: Mapping[str, Sequence[int | str]], dimensions: Sequence[Dimension], rng: np.random.Generator
) -> Graph | None:
    """The graph with sizes that a library takes, and the values of its tensors; None if the reference has none.

    Inputs repeat their elements along a dimension that grows, so that values stay those that operators take.

    Args:
        shapes: of the library's inputs by name, with the names of dynamic dimensions.
    """
    named = {each.name: each for each in dimensions}
    drawn: dict[str, int] = {}
    inputs = []
    for tensor in graph.inputs:
        array = tensor.array
        for axis, size in enumerate(shapes.get(tensor.name, ())):
            if not isinstance(size, str) or size not in named or not array.shape[axis]:
                continue
            if size not in drawn:
                drawn[size] = _drawn(named[size], array.shape[axis], rng)
            array = np.take(array, np.arange(drawn[size]) % array.shape[axis], axis)
        inputs.append(Tensor(tensor.name, array, in_float32(array)))
    if all(one.shape == other.shape for one, other in zip(inputs, graph.inputs, strict=True)):
        return None
    try:
        found = replace(graph, inputs=inputs).with_values()
    except Rejected:
        return None
    return replace(found, opened=graph.opened) if all(map(_is_compared, found.tensors.values())) else None


def _drawn(dimension: Dimension, now: int, rng: np.random.Generator) -> int:
    choices = [size for size in _SIZES if dimension.minimum <= size <= dimension.maximum]
    choices = [size for size in choices if size % dimension.multiple == 0]
    return int(rng.choice(choices)) if choices and rng.random() < 0.7 else now


def _is_compared(tensor: Tensor) -> bool:
    """Whether a tensor is one that walks make: it has elements, not too many, and no large or undefined ones."""
    if not 0 < tensor.exact.size <= MAX_ELEMENTS:
        return False
    return tensor.exact.dtype.kind != "f" or bool(np.abs(tensor.exact).max() < LARGEST)
