"""Sums over the first axes of a tensor: along whole lines, with what makes the operand."""

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


def mean(graph: Graph, x: Value) -> Value:
    return graph.reduce("mean", x, [1, 2])


def sum_of_squares(graph: Graph, x: Value) -> Value:
    return graph.unary("sqrt", graph.reduce("sum", graph.binary("multiply", x, x), [0, 1], keepdims=False))


def min_max(graph: Graph, x: Value) -> Value:
    return graph.reduce("max", graph.unary("abs", x), [1])


FUNCTIONS = [mean, sum_of_squares, min_max]
SHAPES = [(1, 5, 7, 64), (2, 3, 1, 24), (1, 9, 2, 19), (3, 2, 2, 1), (1, 40, 40, 96)]


def test_whole_lines_are_combined() -> None:
    seen: dict[str, tvm.IRModule] = {}
    network = build([Case([normal(1, 5, 7, 64)], sum_of_squares)]).network
    lower(network, backend_of(target("llvm -mcpu=x86-64-v3")), seen.__setitem__)
    rules = {str(func.attrs[RULE]) for func in seen["schedule"].functions.values()}
    assert "ColumnReductionRule" in rules


@pytest.mark.parametrize("name", ["llvm", pytest.param("llvm -mcpu=x86-64-v2", marks=pytest.mark.slow)])
def test_results_are_right(name: str) -> None:
    check([Case([normal(*shape)], function, 1e-5) for shape in SHAPES for function in FUNCTIONS], name)
