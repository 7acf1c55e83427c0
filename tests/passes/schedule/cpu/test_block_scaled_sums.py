"""Products of one row with matrices in blocks: few terms are summed up by themselves, if they are floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper
from pass_runs import lower
from relax_programs import target
from tvm import s_tir, tirx

from nnefc.backends import backend_of
from nnefc.driver.formats import load_network
from nnefc.ir.attributes import RULE

COLUMNS, BLOCKS, BLOCK = 64, 6, 128


def model(bits: int, rows: int = 1, level: int = 0) -> onnx.ModelProto:
    """Rows times a matrix in blocks, of MatMulNBits."""
    bytes_of_block = BLOCK * bits // 8
    data = np.zeros((COLUMNS, BLOCKS, bytes_of_block), np.uint8)
    scales = np.ones(COLUMNS * BLOCKS, np.float32)
    sizes = {"K": BLOCKS * BLOCK, "N": COLUMNS, "bits": bits, "block_size": BLOCK, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "data", "scales"], ["y"], domain="com.microsoft", **sizes)
    row, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, size))
        for name, size in (("x", sizes["K"]), ("y", COLUMNS))
    )
    constants = [numpy_helper.from_array(data, "data"), numpy_helper.from_array(scales, "scales")]
    graph = helper.make_graph([node], "product", [row], [result], constants)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def scheduled_product(path: Path, triple: str) -> tirx.PrimFunc:
    seen: dict[str, tvm.IRModule] = {}
    lower(load_network(path), backend_of(target(triple)), seen.__setitem__)
    (func,) = (f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule")
    return func


def sums_within_sums(path: Path, triple: str) -> int:
    """How many sums are within each other in the product, the total among them."""
    func = scheduled_product(path, triple)
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, found.append))
    return sum(str(block.name_hint).endswith("_init") for block in found)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_sums_that_wait_for_each_other_are_short(bits: int, tmp_path: Path) -> None:
    path = tmp_path / "product.onnx"
    onnx.save(model(bits), path)
    assert sums_within_sums(path, "llvm -mcpu=x86-64-v4") == 3  # of few terms, of a block, of all
    assert sums_within_sums(path, "llvm -mcpu=x86-64-v3") == 2  # which has several sums, of as many columns


def test_scales_multiply_the_sum_of_a_block_and_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "product.onnx"
    onnx.save(model(4, rows=8, level=4), path)
    func = scheduled_product(path, "llvm -mcpu=x86-64-v4 -mattr=+avx512vnni")
    totals: list[tirx.Expr] = []

    def note(stmt: tirx.BufferStore) -> None:
        if isinstance(stmt.value, tirx.Add) and isinstance(stmt.value.b, tirx.Mul):
            totals.append(stmt.value.b)

    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, note))
    assert [isinstance(total.a, tirx.Add) for total in totals] == [True]
