"""Resizing between convolutions: the numbers, and that nothing is laid out again for it."""

from __future__ import annotations

import numpy as np
import pytest
from relax_programs import Case, Graph, Value, build, check, summary, target

from nnefc.operators.base import Emitter
from nnefc.operators.vision.interpolation import AxisScaling, Interpolation
from nnefc.operators.vision.resize import Resize
from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.layout.assign_layouts import assign_layouts

RNG = np.random.default_rng(8)
TARGET = target("llvm -mcpu=x86-64-v3")
NEAREST = Interpolation("nearest", "asymmetric")
LINEAR = Interpolation("linear", "half_pixel")


def resized(graph: Graph, x: Value, factors: tuple[int, ...], interpolation: Interpolation) -> Value:
    """`x` enlarged by whole factors; the reference is NumPy's."""
    axes, array = [], x.array
    for axis, factor in enumerate(factors, 2):
        size = x.shape[axis]
        axes.append((axis, AxisScaling(size, size * factor, factor)))
        if interpolation.mode == "nearest":
            array = np.repeat(array, factor, axis)
        else:
            positions = (np.arange(size * factor) + 0.5) / factor - 0.5
            array = np.apply_along_axis(
                lambda line, at=positions, n=size: np.interp(at, np.arange(n), line), axis, array
            )
    emitter = Emitter(graph._builder)
    emitter.hint = "resized"
    return graph.emit(Resize(tuple(axes), interpolation).lower(emitter, x.expr), array)


def between_convolutions(factors: tuple[int, ...], interpolation: Interpolation, channels: int) -> Case:
    ones = (1,) * len(factors)
    first, second = RNG.standard_normal((channels, 8, *ones)) / 8, RNG.standard_normal((8, channels, *ones)) / 8
    x = RNG.standard_normal((1, 8, *[5, 3, 4][: len(factors)]))

    def make(graph: Graph, x: Value) -> Value:
        inner = resized(graph, graph.convolve(x, first.astype(np.float32)), factors, interpolation)
        return graph.convolve(inner, second.astype(np.float32))

    return Case([x.astype(np.float32)], make, name=f"{interpolation.mode} by {factors}")


CASES = [
    between_convolutions(factors, interpolation, channels)
    for interpolation in (NEAREST, LINEAR)
    for factors, channels in (((3,), 16), ((2, 3), 12), ((2, 1, 2), 8))
]


def test_enlarged_tensors_agree_with_numpy() -> None:
    check(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_is_laid_out_again_between_two_convolutions(case: Case) -> None:
    after = summary(assign_layouts(build([case]).network.module, TARGET, FastAlgorithms()))
    assert after.count(" block(") == 1
    assert after.count("unblock(") == 1
    assert after.count("= resize") == 1
