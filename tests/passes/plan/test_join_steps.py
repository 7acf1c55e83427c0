"""Kernels are joined where one alone reads what another computes, and a target has use for it."""

from __future__ import annotations

import pytest
from tvm import te, tirx
from tvm.ir import GlobalVar

from nnefc.passes.plan.join_steps import join_steps
from nnefc.passes.plan.program import Buffer, MemoryKind, Pool, Program, Step
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.vector_products.gated_product import GatedProductRule, is_gated_product
from nnefc.targets.machine.cuda.target import parse_cuda_target

N = 8
FIRST, SECOND = GlobalVar("product"), GlobalVar("cell")


def kernels(n: int = N, depth: int = 4) -> dict[GlobalVar, tirx.PrimFunc]:
    """A product of 2 n columns, and the product of pairs of these."""
    x, w, p = (te.placeholder(shape) for shape in ((1, depth), (depth, 2 * n), (1, 2 * n)))
    k = te.reduce_axis((0, depth))
    product = te.compute((1, 2 * n), lambda i, j: te.sum(x[i, k] * w[k, j], k), name="made")
    cell = te.compute((1, n), lambda i, j: p[i, j] * p[i, n + j], name="made")
    return {FIRST: te.create_prim_func([x, w, product]), SECOND: te.create_prim_func([p, cell])}


@pytest.mark.parametrize("why_not", ["", "no use", "an output", "two readers"])
def test_a_product_and_the_only_reader_of_its_columns_are_joined(why_not: str) -> None:
    x, w = (Buffer(MemoryKind.INPUT, i, shape, "float32") for i, shape in enumerate(((1, 4), (4, 2 * N))))
    made, result = (Buffer(MemoryKind.WORKSPACE, i, (1, size), "float32") for i, size in enumerate((2 * N, N)))
    steps = [Step(FIRST, (x, w), (made,), (), ("m",)), Step(SECOND, (made,), (result,), (), ("r",))]
    outputs = [result]
    if why_not == "an output":
        outputs.append(made)
    if why_not == "two readers":
        outputs.append(Buffer(MemoryKind.WORKSPACE, 2, (1, N), "float32"))
        steps.append(Step(SECOND, (made,), (outputs[-1],)))
    program = Program(tuple(steps), (x, w), (), tuple(outputs), (), (), kernels())
    changed = join_steps(program, lambda _func: why_not != "no use", Pool())
    if why_not:
        assert changed.steps == program.steps
        return
    (step,) = changed.steps
    assert (step.reads, step.writes, step.tensors) == ((x, w), (result,), ("m", "r"))
    (func,) = changed.kernels.values()
    assert [param.shape[1] for param in func.params] == [4, 2 * N, N]
    assert len(func.body.block.alloc_buffers) == 1


def test_a_joined_product_and_cell_are_one_launch() -> None:
    n, depth = 128, 64
    x, w = (Buffer(MemoryKind.INPUT, i, shape, "float32") for i, shape in enumerate(((1, depth), (depth, 2 * n))))
    made, result = (Buffer(MemoryKind.WORKSPACE, i, (1, size), "float32") for i, size in enumerate((2 * n, n)))
    steps = (Step(FIRST, (x, w), (made,)), Step(SECOND, (made,), (result,)))
    program = Program(steps, (x, w), (), (result,), (), (), kernels(n, depth))
    (func,) = join_steps(program, lambda _func: True, Pool()).kernels.values()
    target = parse_cuda_target("cuda -arch=sm_90")
    assert is_gated_product(func, target)
    assert not is_gated_product(program.kernels[FIRST], target)
    schedule = GatedProductRule().apply(KernelAnalysis(func), target)
    assert schedule is not None
    assert str(schedule.mod).count('thread="blockIdx.x"') == 1
