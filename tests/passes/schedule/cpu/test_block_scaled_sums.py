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
from tvm import s_tir

from nnefc.backends import backend_of
from nnefc.driver.formats import load_network
from nnefc.ir.attributes import RULE

COLUMNS, BLOCKS, BLOCK = 64, 6, 128


def model(bits: int) -> onnx.ModelProto:
    """A row times a matrix in blocks, of MatMulNBits."""
    bytes_of_block = BLOCK * bits // 8
    data = np.zeros((COLUMNS, BLOCKS, bytes_of_block), np.uint8)
    scales = np.ones(COLUMNS * BLOCKS, np.float32)
    sizes = {"K": BLOCKS * BLOCK, "N": COLUMNS, "bits": bits, "block_size": BLOCK}
    node = helper.make_node("MatMulNBits", ["x", "data", "scales"], ["y"], domain="com.microsoft", **sizes)
    row, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, size))
        for name, size in (("x", sizes["K"]), ("y", COLUMNS))
    )
    constants = [numpy_helper.from_array(data, "data"), numpy_helper.from_array(scales, "scales")]
    graph = helper.make_graph([node], "product", [row], [result], constants)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def sums_within_sums(path: Path, triple: str) -> int:
    """How many sums are within each other in the product, the total among them."""
    seen: dict[str, tvm.IRModule] = {}
    lower(load_network(path), backend_of(target(triple)), seen.__setitem__)
    (func,) = (f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule")
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, found.append))
    return sum(str(block.name_hint).endswith("_init") for block in found)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_sums_that_wait_for_each_other_are_short(bits: int, tmp_path: Path) -> None:
    path = tmp_path / "product.onnx"
    onnx.save(model(bits), path)
    assert sums_within_sums(path, "llvm -mcpu=x86-64-v4") == 3  # of few terms, of a block, of all
    assert sums_within_sums(path, "llvm -mcpu=x86-64-v3") == 2  # which has several sums, of as many columns
