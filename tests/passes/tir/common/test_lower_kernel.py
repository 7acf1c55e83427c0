"""Kernels as the entry calls them: what memory they ask for, and what they really use."""

import re
from collections.abc import Mapping

import numpy as np
import pytest
import tvm
from pass_runs import lower, lower_kernel
from relax_programs import Case, build, check, target
from tvm import s_tir, te, topi

from nnefc.backends import backend_of
from nnefc.passes.tir.common.lower_kernel import Kernel


def scheduled(result: te.Tensor, operands: list[te.Tensor]) -> s_tir.Schedule:
    func = te.create_prim_func([*operands, result]).with_attr("global_symbol", "main")
    return s_tir.Schedule(tvm.IRModule({"main": func}))


def intermediate(size: int, rows: int = 4) -> tuple[s_tir.Schedule, object, object]:
    """exp(x) + 1 in two blocks over `rows` × `size`."""
    x = te.placeholder((rows, size), name="x")
    inner = te.compute(x.shape, lambda i, j: te.exp(x[i, j]), name="inner")
    sch = scheduled(te.compute(x.shape, lambda i, j: inner[i, j] + 1, name="outer"), [x])
    return sch, sch.get_sblock("inner"), sch.get_sblock("outer")


def lowered(sch: s_tir.Schedule) -> Kernel:
    return lower_kernel(sch.mod["main"])


def test_a_buffer_of_the_whole_kernel_becomes_a_part_of_the_workspace() -> None:
    kernel = lowered(intermediate(100)[0])
    assert (kernel.workspace_bytes, kernel.scratch_bytes) == (1600, 0)
    assert [param.name for param in kernel.func.params] == ["x_data", "outer_data", "workspace"]


def test_a_buffer_inside_a_loop_is_scratch() -> None:
    sch, inner, outer = intermediate(3000)
    sch.compute_at(inner, sch.get_loops(outer)[0])
    kernel = lowered(sch)
    assert (kernel.workspace_bytes, kernel.scratch_bytes) == (0, 12032)
    assert len(kernel.func.params) == 2


def test_a_buffer_inside_an_unrolled_loop_counts_once_a_round() -> None:
    sch, inner, outer = intermediate(3000)
    loop = sch.get_loops(outer)[0]
    sch.compute_at(inner, loop)
    sch.unroll(loop)
    assert lowered(sch).scratch_bytes == 4 * 12032


def machine_code(functions: Mapping[object, tvm.tirx.PrimFunc], name: str = "llvm") -> str:
    """As LLVM's assembly."""
    with tvm.transform.PassContext(config={"tirx.disable_storage_rewrite": True}):
        return str(tvm.compile(tvm.IRModule(functions), target=target(name).to_tvm()).mod.inspect_source("ll"))


@pytest.mark.parametrize(("size", "scratch"), [(10, 0), (1024, 0), (1025, 4160)])
def test_a_small_buffer_inside_a_loop_is_on_the_stack(size: int, scratch: int) -> None:
    sch, inner, outer = intermediate(size)
    sch.compute_at(inner, sch.get_loops(outer)[0])
    kernel = lowered(sch)
    assert kernel.scratch_bytes == scratch
    func = kernel.func.with_attrs({"global_symbol": "kernel", "calling_conv": 1})
    assert ("AllocWorkspace" in machine_code({"kernel": func})) == bool(scratch)


def test_many_small_buffers_are_scratch() -> None:
    sch, inner, outer = intermediate(1000, rows=20)
    loop = sch.get_loops(outer)[0]
    sch.compute_at(inner, loop)
    sch.unroll(loop)
    assert lowered(sch).scratch_bytes == 20 * 4032


def test_an_element_wise_kernel_needs_no_memory() -> None:
    x = te.placeholder((4, 4), name="x")
    kernel = lowered(scheduled(topi.exp(x), [x]))
    assert (kernel.workspace_bytes, kernel.scratch_bytes) == (0, 0)


def test_booleans_and_narrow_integers_take_a_byte_each() -> None:
    x = te.placeholder((100,), name="x")
    inner = te.compute(x.shape, lambda i: x[i] > 0, name="inner")
    kernel = lowered(scheduled(te.compute(x.shape, lambda i: te.any(inner[i]), name="outer"), [x]))
    assert kernel.workspace_bytes == 128


def test_kernels_return_a_status() -> None:
    assert "-> T.int32" in lowered(intermediate(100)[0]).func.script()


@pytest.mark.parametrize("name", [pytest.param("llvm", marks=pytest.mark.slow), "llvm -mcpu=x86-64-v2"])
def test_no_function_allocates_more_than_its_kernel_declares(name: str) -> None:
    """Each function of the machine code frees only at its end what it allocates on the way."""
    rng = np.random.default_rng(0)
    shapes = [(1, 3, 19), (3, 16, 19), (2, 50, 7)]

    def product(columns: int) -> Case:
        weights = rng.standard_normal((19, columns)).astype(np.float32)
        return Case([rng.random(shapes[1], np.float32)], lambda g, x: g.matmul(x, g.constant(weights)))

    def convolution(channels: int) -> Case:
        weights = rng.standard_normal((channels, 33, 3, 3)).astype(np.float32)
        return Case([rng.random((1, 33, 13, 13), np.float32)], lambda g, x: g.convolve(x, weights, padding=1))

    rows = Case([rng.random((5, 3000), np.float32)], lambda g, x: g.softmax(x, 1))
    network = build([rows, *map(product, (7, 10, 24, 40)), *map(convolution, (16, 33, 64))]).network
    code = lower(network, backend_of(target(name)))
    text = machine_code({gv: f for gv, f in code.module.functions.items() if gv.name_hint != "nnefc_network"}, name)
    asked = [
        sum(-(-int(size) // 64) * 64 for size in re.findall(r"\(i32 1, i32 0, i64 (\d+), i32 2, i32 32\)", body))
        for body in re.split(r"^define ", text, flags=re.MULTILINE)
    ]
    assert 0 < max(asked) <= code.scratch_bytes


def test_small_products_of_several_batches_have_enough_scratch() -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((19, 10)).astype(np.float32)
    data = rng.standard_normal((3, 1, 16, 19)).astype(np.float32)
    check([Case([data], lambda g, x: g.unary("relu", g.matmul(x, g.constant(weights))))])
