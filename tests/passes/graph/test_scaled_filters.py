"""Factors of channels, as squeeze-and-excitation computes them, join the filter of the convolution after them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from relax_programs import Case, Graph, Value, build, check, summary, target

from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.layout.assign_layouts import assign_layouts


def values(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(math.prod(shape)).standard_normal(shape) * scale).astype(np.float32)


def filters(outputs: int, inputs: int, *kernel: int) -> np.ndarray:
    return values(outputs, inputs, *kernel, scale=1 / math.sqrt(inputs * math.prod(kernel)))


def excited(
    then: Callable[[Graph, Value], Value | list[Value]],
    shape: tuple[int, ...] = (1, 19, 13, 11),
    swapped: bool = False,
    axes: tuple[int, ...] = (2, 3),
    name: str = "",
) -> Case:
    """`then` of a convolution's result times a factor for each channel."""

    def make(g: Graph, x: Value) -> Value | list[Value]:
        ones = (1,) * (len(shape) - 2)
        y = g.convolve(x, filters(shape[1], shape[1], *ones))
        factor = g.unary("sigmoid", g.convolve(g.reduce("mean", y, axes), filters(shape[1], shape[1], *ones)))
        return then(g, g.binary("multiply", *((factor, y) if swapped else (y, factor))))

    return Case([values(*shape)], make, 1e-5, name)


def project(g: Graph, x: Value, outputs: int = 9, kernel: int = 1) -> Value:
    return g.convolve(x, filters(outputs, x.shape[1], *(kernel,) * (len(x.shape) - 2)), padding=kernel // 2)


def of_a_constant(g: Graph, x: Value) -> Value:
    """A trained tensor, of all positions, times factors that are computed."""
    factor = g.unary("sigmoid", g.convolve(g.reduce("mean", x, (2, 3)), filters(16, x.shape[1], 1, 1)))
    return project(g, g.binary("multiply", g.constant(values(1, 16, 9, 9)), factor))


JOINED = [
    excited(project, name="channels that do not fill a block"),
    excited(project, (1, 32, 9, 9), name="full blocks"),
    excited(project, (1, 40, 9, 9), swapped=True, name="the factor first"),
    excited(lambda g, x: project(g, x, 5, 3), name="a padded 3 × 3 filter"),
    excited(project, (1, 17, 50), axes=(2,), name="one spatial dimension"),
]
LEFT = [
    excited(project, (2, 19, 13, 11), name="a batch: each element has factors of its own"),
    excited(lambda g, x: project(g, x, 90), (1, 32, 3, 3), name="a filter larger than the data"),
    excited(lambda g, x: [project(g, x), g.unary("relu", x)], name="used otherwise too"),
    excited(lambda g, x: g.convolve(x, filters(19, 1, 3, 3), groups=19), name="a depthwise convolution"),
    excited(project, axes=(2,), shape=(1, 19, 13, 11), name="factors for each column"),
    Case([values(1, 8, 9, 9)], of_a_constant, 1e-5, "a constant times factors"),
]


def laid_out(case: Case, strict: bool = False) -> str:
    return summary(assign_layouts(build([case]).network.module, target("llvm"), FastAlgorithms(), strict))


@pytest.mark.parametrize("case", JOINED, ids=lambda case: case.name)
def test_the_filter_takes_the_factors(case: Case) -> None:
    assert "scale_inputs(" in laid_out(case)
    assert "multiply(" not in laid_out(case)


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case.name)
def test_elsewhere_the_product_stays(case: Case) -> None:
    assert "multiply(" in laid_out(case)


def test_strictly_the_product_comes_first() -> None:
    assert "multiply(" in laid_out(JOINED[0], strict=True)


@pytest.mark.parametrize(
    ("name", "step"),
    [("llvm", 2), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("llvm", "llvm -mcpu=x86-64-v3"))],
)
def test_the_results_are_the_same(name: str, step: int) -> None:
    check([*JOINED, *LEFT][::step], name)
