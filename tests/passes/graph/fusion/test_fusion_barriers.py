"""Steps that cost less alone than in a group of joined operations."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from pass_runs import lower
from relax_programs import Case, Graph, Value, build, check, target

from nnefc.backends import backend_of
from nnefc.ir.attributes import RULE


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def rules_of(case: Case) -> list[str]:
    """The rule of each kernel that is left after the memory plan."""
    seen: dict[str, tvm.IRModule] = {}
    lower(build([case]).network, backend_of(target("llvm -mcpu=x86-64-v4")), seen.__setitem__)
    return sorted(str(func.attrs[RULE]) for func in seen["schedule"].functions.values())


def centered(graph: Graph, x: Value) -> Value:
    """Rows without their means."""
    return graph.binary("subtract", x, graph.reduce("mean", x, [len(x.shape) - 1]))


def reshaped_softmax(graph: Graph, x: Value) -> Value:
    """As ONNX defined it before version 13."""
    rows = graph.reshape(x, (-1, x.shape[-1]))
    return graph.reshape(graph.softmax(rows, 1), x.shape)


def transposed_rows(graph: Graph, x: Value) -> Value:
    y = graph.reshape(centered(graph, x), (1, *x.shape))
    return graph.transpose(graph.unary("abs", y), (0, 3, 1, 2))


def rows_of_transposed_rows(graph: Graph, x: Value) -> Value:
    return centered(graph, graph.unary("relu", graph.transpose(centered(graph, x), (0, 2, 1))))


def rows_also_wanted_untransposed(graph: Graph, x: Value) -> list[Value]:
    y = centered(graph, x)
    return [graph.unary("relu", graph.transpose(y, (2, 0, 1))), graph.unary("tanh", y)]


def reshape_inside(graph: Graph, x: Value) -> Value:
    return graph.unary("tanh", graph.reshape(graph.unary("relu", x), (x.shape[1], -1)))


@pytest.mark.parametrize(
    ("build_case", "rules"),
    [
        (reshaped_softmax, ["RowReductionRule"]),
        (transposed_rows, ["FallbackRule", "RowReductionRule"]),
        (rows_of_transposed_rows, ["RowReductionRule", "RowReductionRule"]),
        (reshape_inside, ["FallbackRule"]),
    ],
)
def test_rows_stay_rows_whatever_stands_around_them(build_case: object, rules: list[str]) -> None:
    assert rules_of(Case([normal(3, 5, 33)], build_case)) == rules


@pytest.mark.parametrize(
    ("name", "step"),
    [("llvm", 2), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("llvm", "llvm -mcpu=x86-64-v2"))],
)
def test_results_are_the_same(name: str, step: int) -> None:
    functions = (
        reshaped_softmax,
        transposed_rows,
        rows_of_transposed_rows,
        rows_also_wanted_untransposed,
        reshape_inside,
    )
    shapes = [(3, 5, 33), (1, 7, 64), (2, 1, 1), (4, 3, 17)]
    check([Case([normal(*shape)], function, 1e-5) for shape in shapes[::step] for function in functions], name)


def normalized_channels(graph: Graph, x: Value) -> Value:
    """A global response normalization: what is computed for each channel is read at each position."""
    norm = graph.unary("sqrt", graph.reduce("sum", graph.binary("multiply", x, x), [0]))
    scale = graph.binary("divide", norm, graph.unary("exp", graph.reduce("mean", norm, [1])))
    return graph.binary("add", graph.binary("multiply", x, scale), x)


def test_what_is_computed_for_each_column_is_not_computed_in_every_row() -> None:
    seen: dict[str, tvm.IRModule] = {}
    network = build([Case([normal(50, 16)], normalized_channels)]).network
    lower(network, backend_of(target("llvm -mcpu=x86-64-v4")), seen.__setitem__)
    shapes = [[int(size) for size in func.params[-1].shape] for func in seen["schedule"].functions.values()]
    assert sorted(shapes) == [[1, 16], [1, 16], [50, 16]]
    check([Case([normal(*shape)], normalized_channels, 1e-5) for shape in [(50, 16), (3, 7), (9, 1), (1, 5)]])
