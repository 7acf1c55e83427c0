"""Minima and maxima along the last axes: reduced in vectors, as sums are; what is infinite or not a number is kept."""

from __future__ import annotations

import numpy as np
import pytest
from pass_runs import lower
from relax_programs import Case, Graph, Value, build, check, target
from tvm import relax

from nnefc.backends import backend_of

REDUCTIONS = [(relax.op.max, np.max), (relax.op.min, np.min)]
SHAPES = [((64, 1000), 1), ((7, 1, 64), 1), ((3, 5, 6, 7), 2), ((2, 33), 1), ((1, 515), 2), ((40,), 1)]


def reduced(graph: Graph, x: Value, reduction: tuple[object, object], count: int, kept: bool) -> Value:
    """The last `count` axes reduced, which stay with the size 1 or not."""
    operator, function = reduction
    axes = tuple(range(len(x.shape) - count, len(x.shape)))
    expected = function(x.array, axis=axes, keepdims=kept)  # type: ignore[operator]
    return graph.emit(operator(x.expr, list(axes), keepdims=kept), np.asarray(expected))  # type: ignore[operator]


def cases() -> list[Case]:
    made = []
    rng = np.random.default_rng(0)
    for number, (shape, count) in enumerate(SHAPES):
        for reduction in REDUCTIONS:
            x = rng.standard_normal(shape).astype("float64" if number % 2 else "float32")
            x[0] = -np.inf if reduction[1] is np.max else np.inf  # also where all are
            x[..., -1] = np.nan if number % 3 == 0 else x[..., 0]

            def emit(graph: Graph, v: Value, r: tuple = reduction, c: int = count, k: bool = number > 2) -> Value:
                return reduced(graph, v, r, c, k)

            made.append(Case([x], emit, 0, f"{shape} {reduction[1].__name__}"))
    return made


def test_min_max_of_rows_agree_with_numpy_where_all_are_infinite_too() -> None:
    check(cases())


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_rows_of_any_length_are_reduced_in_vectors(reduction: tuple[object, object]) -> None:
    x = np.zeros((64, 1000), np.float32)
    built = build([Case([x], lambda graph, v: reduced(graph, v, reduction, 1, kept=False))])
    texts: dict[str, str] = {}
    lower(built.network, backend_of(target("llvm")), lambda name, module: texts.setdefault(name, module.script()))  # type: ignore[func-returns-value]
    assert "T.vectorized" in texts["schedule"]
