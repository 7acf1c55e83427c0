"""Which parts of a product's second factor are asked for ahead, and where nothing is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
from pass_runs import lower, lower_kernel
from relax_programs import Case, Graph, Value, build, check, target
from tvm import tirx

from nnefc.backends import backend_of

LINE = 16  # elements of float32


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def product(rows: int, depth: int, columns: int) -> Case:
    return Case([values(rows, depth)], lambda g, x: g.matmul(x, g.constant(values(depth, columns))), 1e-4)


def convolution(inputs: int, outputs: int, size: int, kernel: int) -> Case:
    def make(graph: Graph, x: Value) -> Value:
        return graph.convolve(x, values(outputs, inputs, kernel, kernel), strides=2)

    return Case([values(1, inputs, size, size)], make, 1e-4)


CASES = [
    product(56, 96, 512),
    product(26, 784, 160),
    product(55, 3 * 131, 256),
    convolution(48, 96, 29, 3),
    convolution(1, 256, 57, 11),
]


def prefetches(stmt: tirx.Stmt, loops: tuple[tirx.For, ...] = ()) -> list[tuple[tuple[tirx.For, ...], tirx.Expr]]:
    """What is asked for, as flat indices, and the loops around it; not the frames of parallel loops."""
    match stmt:
        case tirx.For():
            return prefetches(stmt.body, (*loops, stmt))
        case tirx.SeqStmt():
            return [found for part in stmt.seq for found in prefetches(part, loops)]
        case tirx.AttrStmt():
            return prefetches(stmt.body, loops)
        case tirx.Evaluate() if isinstance(stmt.value, tvm.ir.Call) and stmt.value.op.name == "tirx.call_llvm_intrin":
            address = stmt.value.args[1]
            return [(loops, address.args[0].indices[0])] if address.op.name == "tirx.address_of" else []
    return []


def value(expr: tirx.Expr, known: dict[tirx.Var, int]) -> int:
    """Of an index."""
    match expr:
        case tirx.IntImm():
            return int(expr.value)
        case tirx.Var():
            return known[expr]
        case tirx.Cast():
            return value(expr.value, known)
    a, b = value(expr.a, known), value(expr.b, known)
    operations = {tirx.Add: a + b, tirx.Sub: a - b, tirx.Mul: a * b, tirx.Min: min(a, b)}
    return (
        operations[type(expr)]
        if type(expr) in operations
        else {tirx.FloorDiv: a // b, tirx.FloorMod: a % b}[type(expr)]
    )


def kernels(case: Case, name: str) -> list[tirx.PrimFunc]:
    seen: dict[str, tvm.IRModule] = {}
    lower(build([case]).network, backend_of(target(name)), seen.__setitem__, memory_budget=1)
    with target(name).to_tvm():
        return [lower_kernel(func).func for func in seen["schedule"].functions.values()]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(CASES[0], id="product", marks=pytest.mark.slow),
        pytest.param(CASES[1], id="in parts"),
        pytest.param(CASES[2], id="of odd depth", marks=pytest.mark.slow),
        pytest.param(CASES[3], id="convolution"),
        pytest.param(CASES[4], id="one channel", marks=pytest.mark.slow),
    ],
)
@pytest.mark.sample(1)
def test_while_a_panel_is_multiplied_all_of_the_next_one_is_asked_for(case: Case) -> None:
    ((loops, index),) = [found for func in kernels(case, "llvm -mcpu=x86-64-v4") for found in prefetches(func.body)]
    assert int(loops[-1].extent) > 1  # LLVM takes what is read out of others
    parallel = next(loop for loop in loops if loop.kind == tirx.ForKind.PARALLEL)
    lines: dict[int, set[int]] = {}
    for counters in itertools.product(*(range(int(loop.extent)) for loop in loops)):
        known = dict(zip((loop.loop_var for loop in loops), counters, strict=True))
        lines.setdefault(known[parallel.loop_var], set()).add(value(index, known))
    asked = sorted(set().union(*lines.values()))
    size = asked[0]  # of a panel: the first one was not prefetched
    assert asked == list(range(size, asked[-1] + LINE, LINE))
    assert (asked[-1] + LINE) % size == 0
    panels = [{line // size for line in lines[counters]} for counters in sorted(lines)]
    assert all(len(found) == 1 for found in panels)
    assert [min(found) for found in panels] == sorted(min(found) for found in panels)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (product(56, 96, 512), "llvm -mcpu=x86-64-v3"),  # two vectors in a line, and loads that do not wait
        (product(1, 512, 512), "llvm -mcpu=x86-64-v4"),  # each panel is read once
        (product(56, 32, 64), "llvm -mcpu=x86-64-v4"),  # stays in the first cache
    ],
    ids=["short vectors", "one row", "small"],
)
def test_nothing_is_asked_for_where_it_would_not_help(case: Case, name: str) -> None:
    assert not [found for func in kernels(case, name) for found in prefetches(func.body)]


def test_results_are_those_of_numpy() -> None:
    check(CASES, "llvm")
