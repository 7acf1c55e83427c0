"""The last schedule rule: any computation, by the loops that it has."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from emulate import device_code, run_kernel
from tvm import te, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.fallback import FallbackRule
from nnefc.passes.schedule.rule import scheduled
from nnefc.targets.codegen.cuda.device_functions import DeviceFunction
from nnefc.targets.machine.cuda.target import parse_cuda_target

TARGET = parse_cuda_target("cuda")


def _ran(func: tirx.PrimFunc, *arrays: np.ndarray) -> DeviceFunction:
    return run_kernel(scheduled(KernelAnalysis(func), (FallbackRule(),), TARGET), arrays, TARGET, checks=True)


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("shape", [(1,), (5, 7), (3, 11, 13), (2, 1, 129, 3)])
def test_element_wise_steps_become_one_launch(shape: tuple[int, ...]) -> None:
    a = te.placeholder(shape, "float32", "a")
    b = te.compute(shape, lambda *i: a(*i) * 2.0, "b")
    c = te.compute(shape, lambda *i: b(*i) + 1.0, "c")
    x, y = _random(*shape), np.full(shape, np.nan, np.float32)
    assert len(_ran(te.create_prim_func([a, c]), x, y).launches) == 1
    np.testing.assert_array_equal(y, x * 2 + 1)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 50), (300, 7)])
def test_each_thread_reduces_for_one_element(rows: int, columns: int) -> None:
    a = te.placeholder((columns, rows), "float32", "a")
    k = te.reduce_axis((0, columns), "k")
    b = te.compute((rows,), lambda i: te.max(a[k, i], axis=k), "b")
    x, y = _random(columns, rows), np.full(rows, np.nan, np.float32)
    (launch,) = _ran(te.create_prim_func([a, b]), x, y).launches
    assert launch.threads >= rows
    np.testing.assert_array_equal(y, x.max(axis=0))


def test_two_results_of_a_reduction_are_kept_together() -> None:
    a = te.placeholder((6, 40), "float32", "a")
    k = te.reduce_axis((0, 40), "k")
    largest = te.comm_reducer(
        lambda x, y: (tirx.Select(x[1] >= y[1], x[0], y[0]), tirx.Select(x[1] >= y[1], x[1], y[1])),
        lambda index, value: (tirx.const(-1, index), tirx.min_value(value)),
    )
    index, value = te.compute((6,), lambda i: largest((k.astype("int32"), a[i, k]), axis=k), "largest")
    x, i, v = _random(6, 40), np.full(6, -2, np.int32), np.full(6, np.nan, np.float32)
    _ran(te.create_prim_func([a, index, value]), x, i, v)
    np.testing.assert_array_equal(i, x.argmax(axis=1))
    np.testing.assert_array_equal(v, x.max(axis=1))


def test_what_is_between_two_launches_is_in_the_workspace() -> None:
    a = te.placeholder((5, 70), "float32", "a")
    k = te.reduce_axis((0, 70), "k")
    s = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), "s")
    b = te.compute((5, 70), lambda i, j: a[i, j] / s[i], "b")
    x, y = np.abs(_random(5, 70)), np.full((5, 70), np.nan, np.float32)
    function = _ran(te.create_prim_func([a, b]), x, y)
    assert [parameter.offset for parameter in function.parameters] == [None, None, 0]
    assert function.parameters[-1].bytes == 20
    assert len(function.launches) == 2
    np.testing.assert_allclose(y, x / x.sum(axis=1, keepdims=True), rtol=1e-6)


RUNNING_MAX = """
@T.prim_func(s_tir=True)
def running_maximum(a: T.Buffer((9,), "float32"), b: T.Buffer((9,), "float32")) -> None:
    with T.sblock("scan"):
        T.reads(a[0:9])
        T.writes(b[0:9])
        b[0] = a[0]
        for i in range(8):
            b[i + 1] = T.max(b[i], a[i + 1])
"""


def test_statements_in_order_run_in_one_thread() -> None:
    x, y = _random(9), np.full(9, np.nan, np.float32)
    (launch,) = _ran(tvm.script.from_source(RUNNING_MAX), x, y).launches
    assert launch.threads == 1
    np.testing.assert_array_equal(y, np.maximum.accumulate(x))


def test_a_maximum_takes_the_second_operand_of_nan() -> None:
    a = te.placeholder((4,), "float32", "a")
    b = te.compute((4,), lambda i: tirx.Max(tirx.const(0.0, "float32"), a[i]), "b")
    x, y = np.array([np.nan, -1, 2, np.inf], np.float32), np.empty(4, np.float32)
    _ran(te.create_prim_func([a, b]), x, y)
    np.testing.assert_array_equal(y, np.array([np.nan, 0, 2, np.inf], np.float32))


def test_names_that_c_does_not_know_do_not_get_into_the_source() -> None:
    a = te.placeholder((4,), "float32", "gpu_0/data 0")
    b = te.compute((4,), lambda i: a[i] + 1.0, "a.b")
    x, y = _random(4), np.empty(4, np.float32)
    _ran(te.create_prim_func([a, b]), x, y)
    np.testing.assert_array_equal(y, x + 1)


def test_names_of_its_own_tensors_are_identifiers_too() -> None:
    a = te.placeholder((4, 9), "float32", "a@1")
    k = te.reduce_axis((0, 9), "k")
    product = te.comm_reducer(lambda x, y: x * y, lambda dtype: tirx.const(1.0, dtype), name="product")
    b = te.compute((4,), lambda i: product(a[i, k], axis=[k]), "a@1_red")
    c = te.compute((4,), lambda i: b[i] + 1.0, "c")
    x, y = _random(4, 9), np.empty(4, np.float32)
    _ran(te.create_prim_func([a, c]), x, y)
    np.testing.assert_allclose(y, x.prod(1) + 1, rtol=1e-5)


def test_every_kernel_has_a_symbol_of_its_own() -> None:
    func = scheduled(KernelAnalysis(tvm.script.from_source(RUNNING_MAX)), (FallbackRule(),), TARGET)
    code = device_code([func.without_attr("global_symbol"), func.with_attr("global_symbol", "scan")], TARGET)
    assert [launch.kernel for launch in code.launches] == ["kernel0_kernel", "scan_kernel"]
    assert code.source.count("__global__") == 4  # declared and defined
