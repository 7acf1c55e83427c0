"""Loops that are cut where a choice changes: what they look like, and that they compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper
from tir_programs import function
from tvm import tirx
from tvm.ir.expr import TensorLoad

import nnefc
from nnefc.passes.tir.common.partition_loops import partition_loops


def loops_in(stmt: tirx.Stmt) -> list[tirx.For]:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(stmt, (tirx.For, found.append))
    return found


def loads_in(stmt: tirx.Stmt) -> list[TensorLoad]:
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(stmt, (TensorLoad, found.append))
    return found


def choices_in(stmt: tirx.Stmt) -> int:
    found: list[tvm.ir.Call] = []
    tvm_ffi.structural_walk(stmt, (tvm.ir.Call, found.append))
    return sum(call.op.name.endswith("if_then_else") for call in found)


def summed(count: int, *axes: str) -> tirx.Stmt:
    """The sum of some tensors, each with padding of its own on both sides of dynamic axes."""
    sizes = ", ".join(f"{side}{n}{axis}: T.int64" for n in range(count) for axis in axes for side in "ab")
    index = " + ".join(f"{axis} * T.int64({99**n})" for n, axis in enumerate(axes))
    inside = [" and ".join(f"a{n}{axis} <= {axis} and {axis} < b{n}{axis}" for axis in axes) for n in range(count)]
    padded = [f"T.if_then_else({each}, X[{index} + T.int64({n})], T.float32(0))" for n, each in enumerate(inside)]
    lines = [f"X: T.Buffer((T.int64(9999),)), P: T.Buffer((T.int64(9999),)), n: T.int64, {sizes}"]
    lines += [f"{'    ' * depth}for {axis} in range(n):" for depth, axis in enumerate(axes, 1)]
    lines.append(f"{'    ' * (len(axes) + 1)}P[{index}] = {' + '.join(padded)}")
    return partition_loops(function("\n".join(lines)).body)


def innermost(stmt: tirx.Stmt) -> list[tirx.For]:
    return [loop for loop in loops_in(stmt) if len(loops_in(loop)) == 1]


def test_few_independent_choices_are_all_cut() -> None:
    assert len(innermost(summed(1, "i", "j"))) == 5
    assert len(innermost(summed(2, "i", "j"))) == 25
    assert not choices_in(summed(2, "i", "j"))


@pytest.mark.parametrize("axes", ["i", "ij"])
def test_many_independent_choices_make_few_loops_and_none_in_the_middle(axes: str) -> None:
    loops = innermost(summed(4, *axes))
    assert 17 <= len(loops) <= 32
    (middle,) = [loop for loop in loops if len(loads_in(loop)) == 4 and not choices_in(loop)]
    assert middle


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.sample(1)
def test_padding_is_that_of_numpy_at_every_size(mode: str, tmp_path: Path) -> None:
    widths = [0, 0, 2, 3, 0, 1, 0, 4]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "height", "width"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Pad", ["x", "widths"], ["y"], mode=mode)
    constant = numpy_helper.from_array(np.array(widths), "widths")
    graph = helper.make_graph([node], "padding", [given], [result], [constant])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "pad.onnx")
    nnefc.compile(tmp_path / "pad.onnx").export(tmp_path / "pad.so")
    library = nnefc.load(tmp_path / "pad.so")
    for sizes in ((5, 5), (6, 17), (33, 8)):
        x = np.random.default_rng(0).standard_normal((1, 2, *sizes)).astype(np.float32)
        np.testing.assert_array_equal(library(x), np.pad(x, list(zip(widths[:4], widths[4:], strict=True)), mode=mode))
