"""Sums of products of bytes on machines that sum them up in different ways, to the last bit beside onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emulation import MACHINES, Machine, run_on
from onnx import helper, numpy_helper

import nnefc

EMULATED = {"aarch64", "cortex-a76", "armv7", "riscv64gcv", "wasm32"}


@pytest.fixture(params=[pytest.param(machine, id=machine.name) for machine in MACHINES if machine.name in EMULATED])
def machine(request: pytest.FixtureRequest) -> Machine:
    found: Machine = request.param
    if found.missing:
        pytest.skip(f"needs: {found.missing}")
    return found


def items(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], extreme: bool) -> np.ndarray:
    """Of the whole range, or its ends alone: the largest sums that are possible."""
    limits = np.iinfo(dtype)
    if extreme:
        return np.full(shape, limits.min if limits.min else limits.max, dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def products(rng: np.random.Generator) -> Iterator[tuple[str, str, str, tuple[int, ...], tuple[int, ...], int, bool]]:
    """Operator, types, shapes, groups, and whether all items are extreme."""
    for data, weights in (("uint8", "int8"), ("uint8", "uint8")):
        inputs, outputs, size = (int(n) for n in rng.integers((3, 5, 3), (40, 40, 12)))
        kernel = int(rng.integers(1, 4))
        shape = (outputs, inputs, kernel, kernel)
        yield "ConvInteger", data, weights, (1, inputs, size + 2, size), shape, 1, False
        yield "ConvInteger", data, weights, (1, 24, 9, 9), (24, 1, 3, 3), 24, False
        yield "ConvInteger", data, weights, (1, 16, 4, 7), (16, 16, 1, 1), 1, True
    for data, weights in (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")):
        rows, depth, columns = (int(n) for n in rng.integers(1, 50, 3))
        yield "MatMulInteger", data, weights, (rows, depth), (depth, columns), 1, False
        yield "MatMulInteger", data, weights, (4, 64), (64, 16), 1, True


def network(rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Many such operators side by side, and their data."""
    nodes, constants, inputs = [], [], {}
    element = {name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("uint8", "int8", "int32")}
    for n, (operator, data, weights, of_data, of_weights, groups, extreme) in enumerate(products(rng)):
        inputs[f"x{n}"] = items(rng, data, of_data, extreme)
        factors = items(rng, weights, of_weights, extreme)
        if n % 2 and weights == "int8":
            factors = np.maximum(factors, -127)  # as quantizers make them: two products fit into 16 bits
        constants.append(numpy_helper.from_array(factors, f"w{n}"))
        if operator == "ConvInteger":
            attributes = {"group": groups, "pads": [of_weights[-1] // 2] * 4}
            nodes.append(helper.make_node(operator, [f"x{n}", f"w{n}"], [f"y{n}"], **attributes))
        else:
            nodes.append(helper.make_node(operator, [f"x{n}", f"w{n}"], [f"y{n}"]))
    graph = helper.make_graph(
        nodes,
        "sums",
        [helper.make_tensor_value_info(name, element[str(a.dtype)], a.shape) for name, a in inputs.items()],
        [helper.make_tensor_value_info(f"y{n}", element["int32"], None) for n in range(len(nodes))],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), inputs


def test_sums_of_bytes_are_exact(machine: Machine, tmp_path: Path) -> None:
    model, inputs = network(np.random.default_rng(20))
    onnx.save(model, tmp_path / "sums.onnx")
    found = run_on(machine, nnefc.compile(tmp_path / "sums.onnx", machine.target), inputs)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, wanted in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        np.testing.assert_array_equal(found[output.name], wanted, err_msg=output.name)
