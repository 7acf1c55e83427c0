"""Loops that are left to be cut where a choice changes, and those shared out among threads or made vectors instead."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from relax_programs import network_of, program, target
from tvm import te, tirx

from nnefc.driver import compile_network
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu.fallback import FallbackRule
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


def test_lines_are_shared_out_and_each_is_cut() -> None:
    assert kinds_of((64, 4800)) == {tirx.ForKind.PARALLEL, tirx.ForKind.SERIAL}


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("shape", [(480000,), (1, 1, 480000)])
def test_a_single_long_line_is_shared_out_in_parts_that_are_cut(shape: tuple[int, ...], before: int) -> None:
    assert kinds_of(shape, before=before) == {tirx.ForKind.PARALLEL, tirx.ForKind.SERIAL}


@pytest.mark.parametrize("size", [480000, 479909])
def test_a_single_long_line_is_padded_right(size: int) -> None:
    network = network_of(program(f"x[{size - 5}] -> y\n y = R.nn.pad(x, (2, 3))"))
    x = np.arange(1, size - 4, dtype="float32")
    with compile_network(network, target("llvm -mcpu=x86-64-v3")).load(threads=2) as model:
        np.testing.assert_array_equal(model(x), np.pad(x, (2, 3)))


def test_a_single_short_line_is_cut() -> None:
    assert kinds_of((1, 480)) == {tirx.ForKind.SERIAL}


def test_what_is_not_cut_becomes_vectors() -> None:
    assert tirx.ForKind.VECTORIZED not in kinds_of((64, 4800), tensors=8)
    assert tirx.ForKind.VECTORIZED in kinds_of((64, 4800), tensors=9)
