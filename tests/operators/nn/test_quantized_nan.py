"""NaN as integers, by every operator that quantizes: the lowest one of the type on every machine, as in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from boards import BOARDS, run_on_board
from emulation import MACHINES, run_on
from onnx import TensorProto, helper, numpy_helper

import nnefc

SIZE, SCALE, ZERO = 67, 1.5, 3  # full vectors, and a tail
TYPES = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "uint4": (0, 15),
    "int4": (-8, 7),
}


def sample() -> np.ndarray:
    x = np.linspace(-250, 420, SIZE).astype(np.float32)
    x[[0, 5, 17, 40, SIZE - 1]] = np.nan
    x[[1, 30]], x[[2, 31]] = np.inf, -np.inf
    return x


SOURCES = {"known": "x", "given": "x", "product": "p", "relu": "r"}
"""What is quantized: an input by a known scale and by one that is an input, a product, and what is rectified."""


def model(dtypes: tuple[str, ...] = tuple(TYPES), count: int = len(SOURCES)) -> onnx.ModelProto:
    """Of the first `count` sources, to each of the types."""
    nodes, outputs = [], []
    for dtype in dtypes:
        for name, source in list(SOURCES.items())[:count]:
            scale = "s" if name == "given" else "scale"
            nodes.append(helper.make_node("QuantizeLinear", [source, scale, f"zero_{dtype}"], [f"{name}_{dtype}"]))
            outputs.append(helper.make_tensor_value_info(f"{name}_{dtype}", _code(dtype), (1, SIZE)))
    made = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["x", "w"], ["p"])]
    constants = [helper.make_tensor(f"zero_{dtype}", _code(dtype), [], [ZERO]) for dtype in dtypes]
    constants += [
        numpy_helper.from_array(np.float32(SCALE), "scale"),
        numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), "w"),
    ]
    given = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, SIZE)),
        helper.make_tensor_value_info("s", TensorProto.FLOAT, ()),
    ]
    graph = helper.make_graph([*made, *nodes], "quantized", given, outputs, constants)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def _code(dtype: str) -> int:
    return int(getattr(TensorProto, dtype.upper()))


def inputs() -> dict[str, np.ndarray]:
    return {"x": sample()[None], "s": np.array(SCALE, np.float32)}


def check(found: dict[str, np.ndarray]) -> None:
    x = sample().astype(np.float64)
    for name, array in found.items():
        source, dtype = name.split("_")
        low, high = TYPES[dtype]
        if source == "product":  # NaN and infinities times the zeros of the matrix
            assert (array == low).all(), name
            continue
        exact = np.rint((np.maximum(x, 0) if source == "relu" else x) / SCALE) + ZERO
        wanted = np.clip(np.nan_to_num(exact, nan=low), low, high)
        np.testing.assert_array_equal(array.reshape(-1), wanted, name)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3"])
@pytest.mark.sample(1)
def test_levels_of_x86_64_agree(target: str) -> None:
    check(nnefc.compile(model(), target).run(inputs()))


@pytest.mark.parametrize("name", ["aarch64", "cortex-a76", "armv7", "wasm32", "riscv64"])
@pytest.mark.sample(2)
def test_other_machines_agree(name: str) -> None:
    machine = next(machine for machine in MACHINES if machine.name == name)
    if machine.missing:
        pytest.skip(f"{machine.missing} is not installed")
    check(run_on(machine, nnefc.compile(model(), machine.target), inputs()))


@pytest.mark.parametrize("target", ["cortex-m0plus", "cortex-m4", "cortex-m55", "riscv32imc"])
@pytest.mark.sample(1)
def test_microcontrollers_agree(target: str) -> None:
    if BOARDS[target].missing:
        pytest.skip(f"needs {BOARDS[target].missing}")
    check(run_on_board(nnefc.compile(model(("uint8", "int8", "int16"), 3), target), inputs()).outputs)


def test_so_does_onnxruntime() -> None:
    session = onnxruntime.InferenceSession(
        model(("uint8", "int8", "uint16", "int16")).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    check(dict(zip(names, session.run(None, inputs()), strict=True)))


def test_a_range_with_nan_gives_the_lowest_integer() -> None:
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])]
    outputs = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("y", TensorProto.UINT8, (SIZE,)),
            ("scale", TensorProto.FLOAT, ()),
            ("zero", TensorProto.UINT8, ()),
        )
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (SIZE,))]
    graph = helper.make_graph(nodes, "dynamic", given, outputs)
    made = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    found = nnefc.compile(made).run({"x": sample()})
    assert np.isnan(found["scale"])
    assert found["zero"] == 0
    assert not found["y"].any()
