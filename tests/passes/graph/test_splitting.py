"""Splits whose parts lie in memory one after the other are no work, in row-major and in blocked layout."""

from __future__ import annotations

import numpy as np
import pytest
from pass_runs import lower
from relax_programs import Case, Graph, Value, build, check, target

from nnefc.backends import backend_of


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def gates(graph: Graph, x: Value) -> list[Value]:
    """Parts that several operations read, and one that is a result as it is."""
    a, b, c = graph.split(graph.unary("exp", x), [5, 21], 1)
    return [graph.unary("tanh", a), graph.binary("add", graph.unary("relu", b), b), c]


def channels(seam: int) -> Case:
    """A part of a convolution's result is convolved again, the other is a result."""
    first, second = values(40, 3, 3, 3), values(7, seam, 3, 3) / 8

    def make(graph: Graph, x: Value) -> list[Value]:
        left, right = graph.split(graph.convolve(x, first), [seam], 1)
        return [graph.convolve(left, second), graph.unary("relu", right)]

    return Case([values(1, 3, 9, 8)], make, 1e-5, f"channels split at {seam}")


CASES = [
    Case([values(1, 30)], gates, name="one row"),
    Case([values(4, 30)], gates, name="interleaved"),
    Case([values(6, 5)], lambda g, x: g.split(x, [1, 2, 5], 0), name="parts of an input"),
    channels(16),
    channels(32),
    channels(8),
    channels(13),
]


@pytest.mark.parametrize("name", ["llvm", pytest.param("llvm -mcpu=x86-64-v3", marks=pytest.mark.slow)])
def test_parts_are_right(name: str) -> None:
    check(CASES, name)


def test_parts_of_one_row_are_no_kernels() -> None:
    built = build([CASES[0]])
    lowered = lower(built.network, backend_of(target("llvm")))
    called = [action.kernel.name_hint for action in lowered.plan.actions if hasattr(action, "kernel")]
    assert not [name for name in called if "split" in name], called
