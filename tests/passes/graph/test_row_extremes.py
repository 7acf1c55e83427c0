"""Extremes along the last axes that front ends write out themselves: reduced in vectors, as sums are."""

from __future__ import annotations

import numpy as np
import pytest
from relax_programs import Case, Graph, Value, build, check, target
from tvm import te, tirx

from nnefc.backends import backend_of
from nnefc.passes.pipeline import lower

LARGEST = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda dtype: tirx.const(-np.inf, dtype), name="largest")
LEAST = te.comm_reducer(lambda a, b: tirx.min(a, b), lambda dtype: tirx.const(np.inf, dtype), name="least")
# As PyTorch's: what is not a number is larger than all.
LARGEST_OR_NAN = te.comm_reducer(
    lambda a, b: tirx.Select(tirx.any(a > b, tirx.isnan(a)), a, b), lambda dtype: tirx.const(-np.inf, dtype), name="nan"
)
REDUCERS = [(LARGEST, np.max), (LEAST, np.min), (LARGEST_OR_NAN, np.max)]
SHAPES = [((64, 1000), 1), ((7, 1, 64), 1), ((3, 5, 6, 7), 2), ((2, 33), 1), ((1, 515), 2), ((40,), 1)]


def reduced(graph: Graph, x: Value, reducer: object, function: object, count: int, kept: bool) -> Value:
    """The last `count` axes reduced, which stay with the extent 1 or not."""
    rows = len(x.shape) - count

    def compute(data: te.Tensor) -> te.Tensor:
        axes = [te.reduce_axis((0, int(extent)), f"k{i}") for i, extent in enumerate(data.shape[rows:])]
        shape = (*data.shape[:rows], *[1] * (count if kept else 0))
        return te.compute(shape, lambda *i: reducer(data(*i[:rows], *axes), axis=axes), name="extreme")  # type: ignore[operator]

    expected = function(x.array, axis=tuple(range(rows, len(x.shape))), keepdims=kept)  # type: ignore[operator]
    return graph.emit_te(compute, x, np.asarray(expected))


def cases() -> list[Case]:
    made = []
    rng = np.random.default_rng(0)
    for number, (shape, count) in enumerate(SHAPES):
        for reducer, function in REDUCERS:
            x = rng.standard_normal(shape).astype("float64" if number % 2 else "float32")
            x[0] = -np.inf if function is np.max else np.inf  # also where all are
            x[..., -1] = np.nan if reducer is LARGEST_OR_NAN and len(shape) > 1 else x[..., 0]

            def emit(
                graph: Graph, v: Value, r: object = reducer, f: object = function, c: int = count, k: bool = number > 2
            ) -> Value:
                return reduced(graph, v, r, f, c, k)

            made.append(Case([x], emit, 0, f"{shape} {function.__name__}"))
    return made


def test_extremes_of_rows_agree_with_numpy_where_all_are_infinite_too() -> None:
    check(cases())


@pytest.mark.parametrize(("reducer", "function"), REDUCERS)
def test_rows_of_any_length_are_reduced_in_vectors(reducer: object, function: object) -> None:
    x = np.zeros((64, 1000), np.float32)
    built = build([Case([x], lambda graph, v: reduced(graph, v, reducer, function, 1, kept=False))])
    texts: dict[str, str] = {}
    lower(built.network, backend_of(target("llvm")), lambda name, module: texts.setdefault(name, module.script()))  # type: ignore[func-returns-value]
    assert "T.vectorized" in texts["schedule"]
