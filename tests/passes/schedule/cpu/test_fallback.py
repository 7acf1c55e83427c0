"""Loops that are left to be cut where a choice changes, and those distributed among threads or made vectors instead."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi
from emulation import MACHINES, run_on, with_relaxed_simd
from relax_programs import network_of, program, target
from scipy.special import expit, softmax
from small_networks import Net
from tvm import te, tirx

import nnefc
from nnefc.driver.compile import compile_network
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu.fallback import FallbackRule
from nnefc.passes.schedule.cpu.row_reduction import RowReductionRule
from nnefc.passes.schedule.rule import scheduled


def kinds_of(shape: tuple[int, ...], tensors: int = 1, before: int = 0) -> set[tirx.ForKind]:
    """Of the loops of a kernel that pads tensors along their last axis, also before the first, and adds them."""
    *outer, size = shape
    given = [te.placeholder((*outer, size - 2 - n), name=f"x{n}") for n in range(tensors)]

    def element(*index: tirx.Var) -> tirx.Expr:
        *around, i = index
        return sum(
            (
                tirx.if_then_else(
                    tirx.all(i >= before, i < size - 2 - n), x(*around, i - before), tirx.const(0, "float32")
                )
                for n, x in enumerate(given)
            ),
            tirx.const(0, "float32"),
        )

    kernel = KernelAnalysis(te.create_prim_func([*given, te.compute(shape, element)]))
    found: list[tirx.For] = []
    func = scheduled(kernel, (FallbackRule(),), target("llvm -mcpu=x86-64-v3"))
    tvm_ffi.structural_walk(func.body, (tirx.For, found.append))
    return {loop.kind for loop in found}


def test_lines_are_distributed_and_each_is_cut() -> None:
    assert kinds_of((64, 4800)) == {tirx.ForKind.PARALLEL, tirx.ForKind.SERIAL}


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("shape", [(480000,), (1, 1, 480000)])
def test_a_single_long_line_is_distributed_in_parts_that_are_cut(shape: tuple[int, ...], before: int) -> None:
    assert kinds_of(shape, before=before) == {tirx.ForKind.PARALLEL, tirx.ForKind.SERIAL}


@pytest.mark.parametrize("size", [480000, 479909])
def test_a_single_long_line_is_padded_right(size: int) -> None:
    network = network_of(program(f"x[{size - 5}] -> y\n y = R.nn.pad(x, (2, 3))"))
    x = np.arange(1, size - 4, dtype="float32")
    with compile_network(network, target("llvm -mcpu=x86-64-v3")).load(threads=2) as model:
        np.testing.assert_array_equal(model(x), np.pad(x, (2, 3)))


def test_a_single_short_line_is_cut() -> None:
    assert kinds_of((1, 480)) == {tirx.ForKind.SERIAL}


@pytest.mark.parametrize(("size", "lanes"), [(96, 32), (784, 16), (24, 8), (36, None)])
def test_rows_of_bytes_are_vectors_that_divide_them(size: int, lanes: int | None) -> None:
    data = te.placeholder((64, size), "float32", "x")
    kernel = KernelAnalysis(te.create_prim_func([data, te.compute((64, size), lambda *i: data(*i).astype("int8"))]))
    found: list[tirx.For] = []
    func = scheduled(kernel, (FallbackRule(),), target("llvm -mcpu=x86-64-v3"))
    tvm_ffi.structural_walk(func.body, (tirx.For, found.append))
    vectors = [int(loop.extent) for loop in found if loop.kind == tirx.ForKind.VECTORIZED]
    assert vectors == ([] if lanes is None else [lanes])


def test_what_is_not_cut_becomes_vectors() -> None:
    assert tirx.ForKind.VECTORIZED not in kinds_of((64, 4800), tensors=8)
    assert tirx.ForKind.VECTORIZED in kinds_of((64, 4800), tensors=9)


@pytest.mark.parametrize(
    ("machine", "size", "expected"),
    [("wasm32-wasi", 208, 4), ("wasm32-wasi", 24, 3), ("wasm32-wasi", 20, 1), ("llvm -mcpu=x86-64-v3", 208, 1)],
)
@pytest.mark.parametrize("rows", [False, True])
def test_engines_that_make_numbers_again_in_each_round_have_several_vectors_in_one(
    machine: str, size: int, expected: int, rows: bool
) -> None:
    x = te.placeholder((3, size), name="x")
    k = te.reduce_axis((0, size), name="k")
    largest = te.compute((3, 1), lambda i, j: te.max(x[i, k], k))
    y = te.compute((3, size), lambda i, j: tirx.exp(x[i, j] - largest[i, 0] if rows else x[i, j]))
    kernel = KernelAnalysis(te.create_prim_func([x, y]))
    found: list[tirx.For] = []
    func = scheduled(kernel, (RowReductionRule() if rows else FallbackRule(),), target(machine))
    tvm_ffi.structural_walk(func.body, (tirx.For, found.append))
    (together,) = {int(loop.extent) for loop in found if loop.kind == tirx.ForKind.UNROLLED} or {1}
    assert together == expected


@pytest.mark.parametrize("machine", ["wasm32-wasi", "wasm32-relaxed"])
@pytest.mark.sample(1)
def test_several_vectors_in_a_round_are_computed_as_one_is(machine: str, tmp_path: Path) -> None:
    (engine,) = (each for each in MACHINES if each.name == "wasm32")
    if engine.missing:
        pytest.skip(f"needs: {engine.missing}")
    net = Net(0)
    inputs = [net.floats(3, size) for size in (208, 24, 20, 7)]
    outputs = [net.do(op, x) for x in inputs for op in ("Exp", "Sigmoid", "HardSwish", "Softmax")]
    onnx.save(net.model(outputs), tmp_path / "m.onnx")
    artifact = nnefc.compile(tmp_path / "m.onnx", machine)
    found = run_on(replace(engine, command=with_relaxed_simd()), artifact, net.inputs)
    exact = [np.exp, expit, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), partial(softmax, axis=-1)]
    expected = [function(net.inputs[name].astype(np.float64)) for name in inputs for function in exact]
    for here, there in zip(expected, found.values(), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-7)
