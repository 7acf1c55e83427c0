"""Floats that are rounded while they become int32, by one instruction: the numbers are those of NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi
from emulation import MACHINES, Machine, run_on, with_glibc
from onnx import TensorProto, helper, numpy_helper
from tvm import te, tirx

import nnefc
from nnefc.passes.compute.dot.quantize_dequantize import dequantized, quantized
from nnefc.passes.tir.cpu.convert_with_rounding import convert_with_rounding, use_rounding_conversions

VECTORS = "rv64,v=true,vext_spec=v1.0,vlen=128"
A53 = with_glibc("a53", "cortex-a53", "qemu-aarch64", "-cpu", "cortex-a53")
ARMV7 = with_glibc("armv7", "armv7-linux-gnueabihf", "qemu-arm", "-cpu", "cortex-a7")
RV64 = with_glibc("rv64", "riscv64gcv-linux-gnu", "qemu-riscv64", "-cpu", VECTORS)
WASM = next(machine for machine in MACHINES if machine.name == "wasm32")
EDGES = [0.5, 1.5, 2.5, 0.49999997, 0.0, 2**22 + 0.5, 2**23 - 0.5, 2**23 + 1, 2e9]


def model(folder: Path, size: int) -> Path:
    nodes = [helper.make_node("Round", ["x"], ["r"]), helper.make_node("Cast", ["r"], ["y"], to=TensorProto.INT32)]
    graph = helper.make_graph(
        nodes,
        "rounding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (size,))],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (size,))],
    )
    path = folder / "rounding.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("machine", "instruction", "others"),
    [(A53, "fcvtns", {"frinti", "fcvtzs"}), (RV64, "vfcvt.x.f.v", {"vfcvt.rtz.x.f.v", "vfsgnj.vv"})],
    ids=["a53", "rv64"],
)
def test_one_instruction_rounds_to_even(machine: Machine, instruction: str, others: set[str], tmp_path: Path) -> None:
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    x = np.array([*EDGES, *(-np.array(EDGES)), *np.random.default_rng(1).normal(0, 90, 78)], np.float32)
    artifact = nnefc.compile(model(tmp_path, x.size), machine.target)
    artifact.emit("asm", tmp_path)
    words = set("".join(path.read_text() for path in tmp_path.glob("kernels*.s")).split())
    assert instruction in words
    assert not others & words
    np.testing.assert_array_equal(run_on(machine, artifact, {"x": x})["y"], np.rint(x).astype(np.int32))


LOW, HIGH, ZERO, STEP = -5.0, 9.0, 3.0, 0.25


def limited(folder: Path, size: int) -> Path:
    """Rounded numbers between limits: alone, with a zero point, and bytes."""
    nodes = [
        helper.make_node("Round", ["x"], ["r"]),
        helper.make_node("Clip", ["r", "low", "high"], ["c"]),
        helper.make_node("Cast", ["c"], ["alone"], to=TensorProto.INT32),
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Round", ["n"], ["s"]),
        helper.make_node("Add", ["s", "zero"], ["m"]),
        helper.make_node("Clip", ["m", "low", "high"], ["d"]),
        helper.make_node("Cast", ["d"], ["moved"], to=TensorProto.INT32),
        helper.make_node("QuantizeLinear", ["x", "step", "nothing"], ["bytes"]),
        helper.make_node("QuantizeLinear", ["x", "step", "seven"], ["moved_bytes"]),
    ]
    constants = [
        numpy_helper.from_array(np.array(value, np.float32), name)
        for name, value in (("low", LOW), ("high", HIGH), ("zero", ZERO), ("step", STEP))
    ]
    constants += [
        numpy_helper.from_array(np.array(value, np.uint8), name) for name, value in (("nothing", 0), ("seven", 7))
    ]
    kinds = {"alone": TensorProto.INT32, "moved": TensorProto.INT32}
    outputs = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.UINT8), (size,))
        for name in ("alone", "moved", "bytes", "moved_bytes")
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (size,))]
    path = folder / "limited.onnx"
    graph = helper.make_graph(nodes, "limited", given, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("machine", [None, A53, ARMV7, RV64, WASM], ids=["host", "a53", "armv7", "rv64", "wasm32"])
@pytest.mark.sample(3)
def test_nan_is_between_the_limits_and_the_lower_one_of_bytes(machine: Machine | None, tmp_path: Path) -> None:
    if machine is not None and machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    edges = [np.nan, -np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**31, -(2.0**31), *EDGES, *(-np.array(EDGES))]
    x = np.array([*edges, *np.random.default_rng(2).normal(0, 40, 79)], np.float32)
    path = limited(tmp_path, x.size)
    if machine is None:
        with nnefc.compile(path, "llvm").load() as loaded:
            found = loaded.run({"x": x})
    else:
        # QEMU 7.2 ends at a conversion towards zero that is the first instruction in a block to round
        names = ("bytes", "moved_bytes") if machine is RV64 else ()
        found = run_on(machine, nnefc.compile(path, machine.target, output_tensors=names), {"x": x})
    with np.errstate(over="ignore"):
        steps = np.nan_to_num(np.rint(x / np.float32(STEP)), nan=-np.inf)
    np.testing.assert_array_equal(found["bytes"], np.clip(steps, 0, 255))
    np.testing.assert_array_equal(found["moved_bytes"], np.clip(steps + 7, 0, 255))
    for name, exact in (("alone", np.rint(x)), ("moved", np.rint(-x) + ZERO)):
        if machine is RV64:
            continue
        whole = np.nan_to_num(np.clip(exact, LOW, HIGH), nan=-(2.0**31))
        np.testing.assert_array_equal(found[name], whole)


def test_bytes_that_are_extended_at_once_are_left_out() -> None:
    use_rounding_conversions()
    x = te.placeholder((64,), "float32", "x")
    scale, zero = tirx.const(0.1, "float32"), tirx.const(3, "int8")
    y = te.compute(x.shape, lambda i: dequantized(quantized(x(i), scale, zero, "int8"), scale, zero))
    func = convert_with_rounding(te.create_prim_func([x, y]), "x86_64", 8)
    casts: list[tirx.Cast] = []
    tvm_ffi.structural_walk(func.body, (tirx.Cast, casts.append))
    computed = [cast for cast in casts if not isinstance(cast.value, tirx.IntImm)]
    assert [str(cast.expr_ty().dtype) for cast in computed] == ["float32"]
