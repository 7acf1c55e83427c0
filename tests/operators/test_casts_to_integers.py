"""Reals as integers: what does not fit, and NaN, as onnxruntime has them on x86-64, on every machine alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emulation import MACHINES, run_on
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.driver.artifact import Artifact

FLOATS = {"float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
VALUES = np.hstack(
    [
        (
            0,
            0.9,
            127,
            128,
            200.7,
            255,
            256,
            300,
            32768,
            65504,
            65536,
            70000,
            2.0**31,
            3e9,
            2.0**32,
            5e9,
            2.0**63,
            1.7e19,
        ),
        (2.0**64, 1e20, 1e30, np.inf, np.nan, -0.9, -1, -1.5, -129, -200, -300, -70000, -(2.0**31), -3e9, -5e9),
        (-(2.0**63), -1e19, -1e30, -np.inf),
    ]
)


BASES = np.array([2, 10, -3, 0, 7, -2, 2, 3] * 4)[:31]
EXPONENTS = np.array([63, 25, 0.5, -1, 2, 3, 31, 40] * 4, np.float32)[:31]
POWERS = ("int32", "int64")
"""The types of integers that have powers of real exponents."""


def given(name: str) -> np.ndarray:
    """The reals that are cast: of a type, or powers."""
    with np.errstate(all="ignore"):
        return np.power(BASES.astype(np.float64), EXPONENTS) if name == "power" else VALUES.astype(name)


def inputs() -> dict[str, np.ndarray]:
    return {
        **{real: given(real) for real in FLOATS},
        **{f"base_{dtype}": BASES.astype(dtype) for dtype in POWERS},
        "exponent": EXPONENTS,
    }


def wanted(value: float, dtype: str) -> int:
    """By the instructions of x86-64: a signed integer, or its min where the value does not fit; then its low bits."""
    bits = int(dtype.lstrip("uint"))
    wide = 64 if dtype in ("int64", "uint32", "uint64") else 32
    large = dtype == "uint64" and value >= 2.0**63
    tail = value - 2.0**63 if large else value
    whole = int(tail) if -(2.0 ** (wide - 1)) <= tail < 2.0 ** (wide - 1) else -(2 ** (wide - 1))
    low = (whole + (2**63 if large else 0)) % 2**bits
    return low if dtype.startswith("u") or low < 2 ** (bits - 1) else low - 2**bits


def model(constant: bool = False) -> onnx.ModelProto:
    """Casts of each type of floats to each of integers, and powers; of inputs, or of values that are known."""
    nodes = [helper.make_node("Cast", [real], [f"{real}_{to}"], to=_code(to)) for real in FLOATS for to in INTEGERS]
    nodes += [helper.make_node("Pow", [f"base_{to}", "exponent"], [f"power_{to}"]) for to in POWERS]
    outputs = [
        helper.make_tensor_value_info(name, _code(name.split("_")[1]), given(name.split("_")[0]).shape)
        for name in (node.output[0] for node in nodes)
    ]
    known = [numpy_helper.from_array(array, name) for name, array in inputs().items()]
    leaves = [helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in known]
    graph = helper.make_graph(nodes, "casts", [] if constant else leaves, outputs, known if constant else [])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def _code(dtype: str) -> int:
    return int(getattr(TensorProto, dtype.upper()))


def check(found: dict[str, np.ndarray]) -> None:
    for name, array in found.items():
        real, dtype = name.split("_")
        exact = [wanted(value, dtype) for value in given(real).astype(np.float64).tolist()]
        assert array.tolist() == exact, name


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3"])
@pytest.mark.sample(1)
def test_levels_of_x86_64_agree(target: str) -> None:
    artifact = nnefc.compile(model(), target)
    check(artifact.run(inputs()))


def test_known_values_are_cast_alike() -> None:
    check(nnefc.compile(model(constant=True)).run({}))


@pytest.mark.parametrize("name", ["aarch64", "armv7", "riscv64", "wasm32"])
@pytest.mark.sample(1)
def test_other_machines_agree(name: str) -> None:
    machine = next(machine for machine in MACHINES if machine.name == name)
    if machine.missing:
        pytest.skip(f"{machine.missing} is not installed")
    artifact: Artifact = nnefc.compile(model(), machine.target)
    check(run_on(machine, artifact, inputs()))


def test_so_does_onnxruntime(tmp_path: Path) -> None:
    """Of uint32 its vectors and its loops over what is left differ; single elements are converted by the latter."""
    onnx.save(model(), tmp_path / "casts.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "casts.onnx", providers=["CPUExecutionProvider"])
    results = session.run(None, inputs())
    names = [output.name for output in session.get_outputs()]
    check({name: array for name, array in zip(names, results, strict=True) if not name.endswith("_uint32")})
