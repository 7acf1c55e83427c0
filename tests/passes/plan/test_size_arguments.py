"""Sizes that kernels get from their callers: few, simple, and the same for kernels that differ in them alone."""

from __future__ import annotations

import re

import pytest
import tvm_ffi
from pass_runs import lower
from relax_programs import network_of, opened, program, target
from tvm import te, tirx
from tvm.ir.expr import TensorLoad

from nnefc.backends import backend_of
from nnefc.driver.compile import compile_network
from nnefc.ir.attributes import DYNAMIC_DIMENSIONS
from nnefc.ir.network import Network
from nnefc.passes.backend import Lowered
from nnefc.passes.plan.program import kernel_stages
from nnefc.passes.plan.size_arguments import pass_sizes_as_arguments
from nnefc.symbolic.dims import Range, expression, ranges, size_hint


def lowered(network: Network) -> Lowered:
    with ranges({dimension.var: dimension.values for dimension in network.dynamic_dimensions}):
        return lower(network, backend_of(target("llvm")))


def kernel(var: tirx.Var, *shapes: tuple[object, ...]) -> tirx.PrimFunc:
    """Adds tensors, of the first shape those of the others, as far as they go."""
    operands = [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
    result = te.compute(shapes[0], lambda *at: sum((x(*at) for x in operands), start=0.0))
    return te.create_prim_func([*operands, result], "int64").with_attr(DYNAMIC_DIMENSIONS, [var])


def simplified(expr: tirx.Expr) -> str:
    return re.sub(r"T.int64\((-?\d+)\)", r"\1", str(expr))


@pytest.mark.parametrize(
    ("sizes", "shapes", "stands_for", "usual"),
    [
        (lambda h: [(h - 1) // 4 + 1, (h - 1) // 112 * 28 + 28], ["h + 1", "h // 28 * 28 + 28"], "(h - 1) // 4", 55),
        (lambda h: [(h + 1) // 2, (h - 1) // 4], ["h", "(h - 1) // 2"], "(h + 1) // 2", 112),
        (lambda h: [(h + 1) // 6, (h + 3) // 4], ["h // 3", "(h + 1) // 2"], "(h + 1) // 2", 112),
        (lambda h: [h // 4 - 2, h // 4 - 1], ["h", "h + 1"], "h // 4 - 2", 54),
        (lambda h: [h // 4, h // 4 - 1], ["h", "h - 1"], "h // 4", 56),
        (lambda h: [(h + 1) // 2, h // 2], ["(h + 1) // 2", "h // 2"], "h", 224),  # neither follows from the other
        (lambda h: [(h + 1) // 2, h + 2], ["(h + 1) // 2", "h + 2"], "h", 224),
        (lambda h: [h - 2, h - 5], ["h + 3", "h"], "h - 5", 219),
        (lambda h: [h - 2, h], ["h - 2", "h"], "h", 224),
    ],
)
def test_quotients_of_a_dimension_become_the_one_that_all_follow_from(
    sizes: object, shapes: list[str], stands_for: str, usual: int
) -> None:
    h = tirx.Var("h", "int64")
    with ranges({h: Range(8, 4096, 224)}):
        func, arguments = pass_sizes_as_arguments(kernel(h, *((size, 4) for size in sizes(h))))
        ((own, value),) = arguments
        assert size_hint(value) == usual
    found = [simplified(param.shape[0]) for param in func.params[:2]]
    assert [*found, simplified(expression(value))] == [*shapes, stands_for]
    assert list(func.attrs[DYNAMIC_DIMENSIONS]) == [own]


def test_kernels_that_differ_in_their_sizes_alone_are_one() -> None:
    module = program('x["a", 16]; y["b", 16] -> s, t\ns = R.nn.softmax(x)\nt = R.nn.softmax(y)')
    made = lowered(opened(network_of(module))).program
    assert len(made.kernels) == 1
    assert [[str(value) for _, value in step.sizes] for step in kernel_stages(made)] == [["a"], ["b"]]


@pytest.mark.slow
def test_each_compilation_gives_the_same_bytes() -> None:
    pools = [f"b{i} = R.nn.relu(a{i})\na{i + 1} = R.nn.max_pool2d(b{i}, (2, 2), (2, 2))" for i in range(6)]
    module = program("\n".join(['a0["n", 16, "h", "w"] -> a6', *pools]))
    kept, objects = [], set()
    for count in range(3):
        kept.append([tirx.Var("v", "int64") for _ in range(997 * count)])  # whatever the addresses of variables are
        objects.add(compile_network(opened(network_of(module)), target("llvm")).code.objects)
    assert len(objects) == 1


def test_what_a_kernel_reads_is_written_out_twice() -> None:
    count = 60  # sums, pair by pair
    inputs = [f'v{k}["n", "h"]' for k in range(count + 1)]
    sums = [f"v{count + 1 + k} = R.add(v{2 * k}, v{2 * k + 1})" for k in range(count)]
    module = program("\n".join([f"{'; '.join(inputs)} -> v{2 * count}", *sums]))
    made = tirx.transform.UnrollLoop()(lowered(opened(network_of(module))).module)
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(made, (TensorLoad, loads.append))
    assert len(loads) < 4 * count  # by full vectors, and one by one; and where the operands are


@pytest.mark.parametrize(("minimum", "stands_for"), [(4, "h - 4"), (1, "h")])
def test_what_is_only_written_may_be_negative_but_no_size(minimum: int, stands_for: str) -> None:
    """A kernel does nothing where one of its sizes is negative."""
    h = tirx.Var("h", "int64")
    result = te.compute((2,), lambda _: h - 4)
    with ranges({h: Range(minimum, 4096, 224)}):
        func = te.create_prim_func([result], "int64").with_attr(DYNAMIC_DIMENSIONS, [h])
        ((_, value),) = pass_sizes_as_arguments(func)[1]
        assert simplified(expression(value)) == stands_for


@pytest.mark.parametrize(
    ("result", "operand", "stands_for"),
    [
        (lambda h: tirx.max(h - 2, 0), lambda h: tirx.max(h - 2, 0), "h - 2"),  # no elements: nothing is to be done
        (lambda h: tirx.max(h - 2, 0) + 3, lambda h: tirx.max(h - 2, 0), "h"),
        (lambda h: 1, lambda h: tirx.max(h - 2, 0), "h"),
        (lambda h: h - 1, lambda h: h - 4, "h - 4"),  # of which no run has less than 0
        (lambda h: (h - 5) // 4 + 1, lambda h: (h - 5) // 4 + 1, "(h - 5) // 4"),
        (lambda h: (h - 5) // 4 + 4, lambda h: (h - 5) // 4 + 1, "(h - 1) // 4"),
        (lambda h: (h - 9) // 4 + 4, lambda h: (h - 9) // 4 + 2, "(h - 1) // 4"),
    ],
)
def test_kernels_with_results_have_no_negative_sizes(result: object, operand: object, stands_for: str) -> None:
    h = tirx.Var("h", "int64")
    with ranges({h: Range(1, 4096, 224)}):
        ((_, value),) = pass_sizes_as_arguments(kernel(h, (result(h), 4), (operand(h), 4)))[1]
    assert simplified(expression(value)) == stands_for
