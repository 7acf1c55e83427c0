"""What TVM's code generator makes of schedules, on the emulator: tiles, asynchronous copies, warps, vectors."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from emulate import run_kernel
from tvm import s_tir, te, tirx

from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cuda.target import CudaTarget

TARGET = CudaTarget("cuda", parse_target("x86-64"))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def product(rows: int, columns: int, depth: int) -> tirx.PrimFunc:
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((columns, depth), name="B")
    k = te.reduce_axis((0, depth), name="k")
    return te.create_prim_func(
        [a, b, te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")]
    )


def in_tiles(func: tirx.PrimFunc, *, pipelined: bool) -> tirx.PrimFunc:
    """A product by tiles of 16 by 16 in shared memory, the next of them copied while one is worked on."""
    schedule = s_tir.Schedule(func)
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    (i0, i1), (j0, j1), (k0, k1) = (schedule.split(loop, [None, 16]) for loop in (i, j, k))
    schedule.reorder(i0, j0, i1, j1, k0, k1)
    for loop, axis in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.y"), (j1, "threadIdx.x")):
        schedule.bind(loop, axis)
    for operand in (0, 1):
        shared = schedule.cache_read(block, operand, "shared")
        schedule.compute_at(shared, k0)
        y, x = schedule.split(schedule.fuse(*schedule.get_loops(shared)[-2:]), [None, 16])
        schedule.bind(y, "threadIdx.y")
        schedule.bind(x, "threadIdx.x")
    schedule.decompose_reduction(block, k0)
    if pipelined:
        schedule.annotate(k0, "software_pipeline_stage", [0, 0, 1])
        schedule.annotate(k0, "software_pipeline_order", [0, 1, 2])
        schedule.annotate(k0, "software_pipeline_async_stages", [0])
    return schedule.mod["main"]


def by_rows(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A product with a warp for each result, its sum by shuffles."""
    schedule = s_tir.Schedule(func)
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    k0, k1 = schedule.split(k, [None, 32])
    schedule.reorder(k1, k0)
    o, t = schedule.split(schedule.fuse(i, j), [None, 4])
    schedule.bind(o, "blockIdx.x")
    schedule.bind(t, "threadIdx.y")
    schedule.bind(k1, "threadIdx.x")
    return schedule.mod["main"]


@pytest.mark.parametrize(
    ("way", "shape"),
    [
        (lambda f: in_tiles(f, pipelined=False), (32, 48, 32)),
        (lambda f: in_tiles(f, pipelined=True), (32, 16, 64)),
        (by_rows, (6, 10, 77)),
    ],
    ids=["tiles", "tiles, copied ahead", "rows by warps"],
)
def test_products_as_tvm_writes_them(
    way: Callable[[tirx.PrimFunc], tirx.PrimFunc], shape: tuple[int, int, int]
) -> None:
    rows, columns, depth = shape
    a, b, c = random(rows, depth), random(columns, depth), np.full((rows, columns), np.nan, np.float32)
    run_kernel(way(product(rows, columns, depth)), (a, b, c), TARGET)
    np.testing.assert_allclose(c, a @ b.T, rtol=1e-5, atol=1e-5)


def converted(length: int, source: str, result: str, lanes: int) -> tirx.PrimFunc:
    a = te.placeholder((length,), source, name="A")
    func = te.create_prim_func(
        [a, te.compute((length,), lambda i: a[i].astype(result) + tirx.const(1, result), name="C")]
    )
    schedule = s_tir.Schedule(func)
    o, t, v = schedule.split(schedule.get_loops(schedule.get_sblock("C"))[0], [None, 32, lanes])
    schedule.bind(o, "blockIdx.x")
    schedule.bind(t, "threadIdx.x")
    schedule.vectorize(v)
    return schedule.mod["main"]


@pytest.mark.parametrize(
    ("source", "result", "lanes"),
    [
        ("float32", "float16", 4),
        ("float16", "float32", 4),
        ("float16", "float16", 8),
        ("float32", "bfloat16", 4),
        ("int8", "float32", 4),
        ("uint8", "int32", 4),
        ("int64", "int32", 2),
        ("int32", "float64", 2),
    ],
)
def test_vectors_as_tvm_writes_them(source: str, result: str, lanes: int) -> None:
    data = np.random.default_rng(0).integers(0, 100, 512).astype(source)
    out = np.zeros(512, ml_dtypes.bfloat16 if result == "bfloat16" else result)
    run_kernel(converted(512, source, result, lanes), (data, out), TARGET)
    np.testing.assert_array_equal(out.astype(np.float64), (data.astype(np.float64) + 1))
