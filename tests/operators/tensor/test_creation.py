"""Tensors made of numbers and sizes alone: arrays where sizes are known, else kernels; both as NumPy makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from nnefc.driver.compile import compile_network
from nnefc.ir.network import DynamicDimension, Network
from nnefc.operators.base import Emitter, Operator, build_main
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.tensor.creation import Arange, Eye, Full, Linspace, SizeValues
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Range, Size, ranges
from nnefc.targets.machine.any_target import parse_any_target

N = tirx.Var("n", "int64")
OPEN = DynamicDimension("n", N, Range(1, 200, 16))


def counts(n: Any, count: int) -> np.ndarray:
    """A matrix of so many different sizes, of two columns if there is more than one."""
    made = np.empty(count, object)
    made[:] = [n * position + 1 for position in range(count)]
    return made.reshape(-1, min(count, 2))


CASES: list[tuple[Callable[[int], Operator], Callable[[int], np.ndarray]]] = [
    (lambda n: Arange(0, n, 1, "int64"), lambda n: np.arange(n)),
    (lambda n: Arange(n, n + 5, 2, "int32"), lambda n: np.arange(n, n + 5, 2, dtype=np.int32)),
    (lambda n: Arange(2 * n, -n, -3, "float32"), lambda n: np.arange(2 * n, -n, -3).astype(np.float32)),
    (lambda n: Arange(20, n, 7, "int64"), lambda n: np.arange(20, n, 7)),
    (lambda n: Full((n, 3, n // 2 + 1), 2.5, "float32"), lambda n: np.full((n, 3, n // 2 + 1), np.float32(2.5))),
    (lambda n: Eye(n, n + 1, "float32", -1), lambda n: np.eye(n, n + 1, -1, np.float32)),
    (lambda n: Eye(4, n, "bool"), lambda n: np.eye(4, n, dtype=bool)),
    (lambda n: SizeValues(counts(n, 1), "int32"), lambda n: counts(n, 1).astype(np.int32)),
    (lambda n: SizeValues(counts(n, 200), "int64"), lambda n: counts(n, 200).astype(np.int64)),
]


def network() -> Network:
    """Of `x[n]` it takes the size, and doubles the elements."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((N,), "float32"))

    def made() -> list[relax.Expr]:
        ctx = Emitter(builder)
        results = [ctx.apply(operator(Size(N))) for operator, _ in CASES]
        return list(map(ctx.expr, [*results, ctx.apply(Elementwise("add"), x, x)]))

    with ranges({N: OPEN.values}):
        module = build_main(builder, made, lambda: [x])
    names = tuple(f"y{index}" for index in range(len(CASES) + 1))
    return Network("created", module, ("x",), names, dynamic_dimensions=(OPEN,))


def test_one_library_makes_the_tensors_of_all_sizes() -> None:
    with compile_network(network(), parse_any_target("llvm", None)).load() as library:
        for n in (1, 2, 17, 40):
            x = np.arange(n, dtype=np.float32)
            *found, doubled = library(x)
            for array, (operator, expected) in zip(found, CASES, strict=True):
                wanted = expected(n)
                np.testing.assert_array_equal(array, wanted, err_msg=f"{operator(n)}")
                assert array.dtype == wanted.dtype
            np.testing.assert_array_equal(doubled, 2 * x)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        *((operator(9), expected(9)) for operator, expected in CASES),
        (Arange(-1, 2.5, 0.3, "float32"), np.arange(-1, 2.5, 0.3).astype(np.float32)),
        (Arange(5, 5, 1, "int64"), np.zeros(0, np.int64)),
        (Linspace(-1, 2, 7, "float64"), np.linspace(-1, 2, 7)),
    ],
    ids=lambda element: type(element).__name__,
)
def test_known_sizes_make_arrays(operator: Operator, expected: np.ndarray) -> None:
    made = operator.lower(Emitter(relax.BlockBuilder()))
    assert isinstance(made, np.ndarray) and made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)
    assert operator.shape() == expected.shape


@pytest.mark.parametrize("numbers", [(0, 5, 0), (0.0, 5.0, 0.0), (0.0, float("inf"), 1.0), (0.0, float("nan"), 1.0)])
def test_ranges_that_do_not_end_are_refused(numbers: tuple[float, float, float]) -> None:
    with pytest.raises(CompileError, match="there is no range from"):
        Arange(*numbers, "float32").shape()


@pytest.mark.parametrize(
    "operator", [Arange(0, 1 << 29, 1, "int8"), Eye(1 << 15, 1 << 15, "int8"), Full((1 << 29,), 1, "int8")]
)
def test_constants_that_few_words_make_large_are_refused(operator: Operator) -> None:
    with pytest.raises(CompileError, match=r"too large: it would have .* elements, and may have 268,435,456"):
        operator.lower(Emitter(relax.BlockBuilder()))
