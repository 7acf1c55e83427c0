"""Large products with constants, by Strassen's algorithm: which ones, and that they are right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_runs import lower
from relax_programs import Case, Graph, Value, build, check, target, with_fast_memory
from tvm import te, tirx

from nnefc.backends import backend_of
from nnefc.driver.compile import compile_network
from nnefc.driver.options import CodeOptions
from nnefc.ir.attributes import RULE
from nnefc.passes.compute import strassen
from nnefc.passes.compute.periodic_select import chosen
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.rule import scheduled
from nnefc.targets.machine.cpu.target import Target

TOLERANCE = 1e-5  # of the largest value


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def product(rows: int, depth: int, columns: int, *leading: int) -> Case:
    """A product with a bias, a function and a residual."""
    weights, bias, residual = (
        values(depth, columns) / np.float32(depth**0.5),
        values(columns),
        values(*leading, rows, columns),
    )

    def make(graph: Graph, x: Value) -> Value:
        biased = graph.binary("add", graph.matmul(x, graph.constant(weights)), graph.constant(bias))
        return graph.binary("add", graph.unary("tanh", biased), graph.constant(residual))

    return Case([values(*leading, rows, depth)], make, TOLERANCE, f"{rows} × {depth} × {columns}")


MACHINE = with_fast_memory(target("llvm -mcpu=x86-64-v4"))


def kernels_of(case: Case, machine: Target = MACHINE, strict: bool = False) -> list[str]:
    """The rules that scheduled the kernels of a case."""
    seen = {}
    lower(build([case]).network, backend_of(machine), seen.__setitem__, strict, memory_budget=math.inf)
    return [str(func.attrs[RULE]) for func in seen["schedule"].functions.values()]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.sampled_from([4, 8, 16]))
def test_the_seven_products_give_the_product(rows: int, depth: int, columns: int, size: int) -> None:
    """The formulas themselves, in NumPy."""
    left, right = values(2 * rows, 2 * depth), values(2 * depth, 2 * columns * size)
    factors = strassen.combine_right(right, size)
    unpacked = np.moveaxis(factors, 1, 2).reshape(strassen.COUNT, depth, columns * size).astype(np.float64)
    quarters = [left[i::2, j * depth : (j + 1) * depth].astype(np.float64) for i in range(2) for j in range(2)]
    products = [np.tensordot(sums, quarters, 1) @ factor for sums, factor in zip(strassen.LEFT, unpacked, strict=True)]
    expected = (left.astype(np.float64) @ right).reshape(rows, 2, columns, 2, size)
    for quarter, sums in enumerate(strassen.RESULT):
        own = np.tensordot(sums, products, 1).reshape(rows, columns, size)
        np.testing.assert_allclose(own, expected[:, quarter // 2, :, quarter % 2], atol=1e-5)


SHAPES = [(96, 256, 256), (97, 256, 288), (197, 288, 224), (211, 224, 352), (128, 320, 256)]


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("llvm -mcpu=x86-64-v3", SHAPES[3:4]),
        *(
            pytest.param(name, SHAPES, marks=pytest.mark.slow)
            for name in ("llvm -mcpu=x86-64-v3", "llvm", "llvm -mcpu=x86-64")
        ),
    ],
)
def test_products_by_strassen_are_right(name: str, shapes: list[tuple[int, int, int]]) -> None:
    check([product(*shape) for shape in shapes] + [product(101, 256, 256, 1, 1)], with_fast_memory(target(name)))


def test_large_products_with_constants_go_by_strassen() -> None:
    for shape in SHAPES:
        assert kernels_of(product(*shape)) == ["StrassenSumsRule", "StrassenProductsRule"]


@pytest.mark.parametrize("shape", [(197, 264, 256), (197, 256, 264), (50, 256, 256, 4)], ids=str)
def test_others_do_not(shape: tuple[int, ...]) -> None:
    assert "StrassenProductsRule" not in kernels_of(product(*shape))


def test_they_are_taken_where_arithmetic_takes_longer_than_reading_a_longer_factor() -> None:
    """Emerald Rapids begins two multiply-adds in a cycle, Zen 4 one, and reads no more from memory."""
    for name, rows, expected in (("znver4", 128, True), ("znver4", 64, False), ("emeraldrapids", 128, False)):
        kernels = kernels_of(product(rows, 768, 768), target(f"llvm -mcpu={name}"))
        assert ("StrassenProductsRule" in kernels) == expected, (name, rows)


def test_strictness_rules_them_out() -> None:
    assert "StrassenProductsRule" not in kernels_of(product(128, 256, 256), strict=True)
    built = build([product(128, 256, 256)])
    with compile_network(built.network, with_fast_memory(target("llvm")), CodeOptions(strict=True)).load() as model:
        (output,) = model.run(built.inputs).values()
    ((expected, _, _),) = built.expected.values()
    assert np.abs(output - expected).max() < 3e-6 * np.abs(expected).max()


def test_products_with_the_same_factor_share_its_sums() -> None:
    first, second = values(256, 256) / 16, values(256, 512) / 16

    def make(graph: Graph, x: Value) -> list[Value]:
        return [graph.matmul(x, graph.constant(first)), graph.matmul(x, graph.constant(second))]

    case = Case([values(1, 110, 256)], make, TOLERANCE)
    assert kernels_of(case).count("StrassenSumsRule") == 1
    check([case], with_fast_memory(target("llvm")))


@pytest.mark.parametrize(("shape", "axis"), [((4, 4, 32), 2), ((7, 4, 32), 0), ((3, 4, 5, 32), 3), ((4, 7, 4, 32), 1)])
def test_another_choice_by_an_axis_has_another_schedule(shape: tuple[int, ...], axis: int) -> None:
    data = te.placeholder(shape, "float32")

    def element(*index: tirx.Var) -> tirx.Expr:
        return chosen(index[axis], [data(*index) + tirx.const(k, "float32") for k in range(shape[axis])])

    func = te.create_prim_func([data, te.compute(shape, element)])
    assert scheduled(KernelAnalysis(func), CPU_RULES, target("llvm -mcpu=x86-64-v3")).attrs[RULE] == "FallbackRule"
