"""Kernels whose result may be written over an operand do not claim that their parameters never share memory."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from pass_runs import lower

from nnefc.backends.cuda import CudaBackend
from nnefc.driver.formats import load_network
from nnefc.targets.machine.cuda.target import parse_cuda_target


def declarations(folder: Path, operator: str, *shapes: tuple[int, ...], result: tuple[int, ...]) -> list[str]:
    """The kernels' declarations in the source of a network of one operator."""
    names = [f"x{index}" for index in range(len(shapes))]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True)]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, result)
    graph = helper.make_graph([helper.make_node(operator, names, ["y"])], "network", inputs, [output])
    path = folder / "network.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    backend = CudaBackend(parse_cuda_target("cuda"))
    lowered = lower(load_network(path), backend)
    return re.findall(r'^extern "C" __global__ .*', backend.device_code(lowered).source, re.MULTILINE)


@pytest.mark.parametrize(
    ("operator", "shapes", "result", "shares"),
    [
        ("Sigmoid", [(64, 100)], (64, 100), True),
        ("Add", [(64, 100), (64, 100)], (64, 100), True),
        ("Transpose", [(64, 100)], (100, 64), False),
        ("MatMul", [(64, 32), (32, 48)], (64, 48), False),
    ],
)
def test_restrict(
    operator: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], shares: bool, tmp_path: Path
) -> None:
    found = declarations(tmp_path, operator, *shapes, result=result)
    assert found
    assert all(("__restrict__" not in declaration) == shares for declaration in found)
