"""Vectors of RISC-V of every length: floats, 16-bit floats and bytes, compared with onnxruntime and in the assembly."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from assembly import DIALECTS, Dialect, hottest_loop
from emulation import Machine, run_on, with_glibc
from onnx import helper
from small_networks import Net

import nnefc
from nnefc.passes.compute.dot.depthwise_int16_sums import takes_int16_sums
from nnefc.targets.machine.cpu.parsing import parse_target

_KNOWS_FLOAT16 = 9  # version of QEMU


def machine(bits: int, code_for: int = 0, more: str = "", options: str = "") -> Machine:
    """A processor with registers of so many bits, and code for these or for shorter ones."""
    target = f"llvm -mtriple=riscv64-linux-gnu -mattr=+v,+zvl{code_for or bits}b{more}"
    return with_glibc(f"{bits}", target, "qemu-riscv64", "-cpu", f"rv64,v=true,vext_spec=v1.0,vlen={bits}{options}")


MACHINES = [machine(512, code_for=128), machine(256), machine(1024)]


def network(whole: bool) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Sizes that are no multiples of anything; windows that registers hold, and larger ones.

    Args:
        whole: whether weights without a sign are multiplied too.
    """
    net, results = Net(seed=11), []
    x = net.floats(1, 5, 11, 13)
    y = net.convolution(x, 5, 37)
    y = net.convolution(y, 37, 37, groups=37)
    y = net.convolution(y, 37, 37, size=5, stride=2, groups=37)
    results.append(net.convolution(y, 37, 70, size=1))
    results.append(net.do("MatMul", net.floats(9, 33), net.weight(33, 47)))
    rng = np.random.default_rng(3)
    for data in (np.uint8, np.int8):
        for weights in (np.int8, np.uint8) if whole else (np.int8,):
            limits = np.iinfo(weights)
            for shape, groups, minimum in (
                ((37, 21, 3, 3), 1, limits.min),
                ((21, 1, 3, 3), 21, limits.min),
                ((21, 1, 3, 3), 21, limits.min + 1),  # two products at a time
                ((21, 1, 5, 5), 21, limits.min + 1),
            ):
                given = net.given(rng.integers(*_range(data), (1, 21, 9, 14)).astype(data))
                w = rng.integers(minimum, limits.max + 1, shape)
                w.flat[rng.integers(w.size, size=20)] = minimum
                attributes = {"group": groups, "pads": [shape[-1] // 2] * 4}
                results.append(net.do("ConvInteger", given, net.constant(w.astype(weights)), **attributes))
    return net.model(results), net.inputs


def _range(dtype: type) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max) + 1


def in_floats(model: onnx.ModelProto) -> onnx.ModelProto:
    """Computes convolutions of bytes in float32, whose sums below 2**24 are exact: onnxruntime's saturate on AVX2."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    nodes = list(made.graph.node)
    del made.graph.node[:]
    for number, node in enumerate(nodes):
        if node.op_type != "ConvInteger":
            made.graph.node.append(node)
            continue
        real = [f"real{number}_{part}" for part in range(3)]
        for name, cast in zip(node.input, real, strict=False):
            made.graph.node.append(helper.make_node("Cast", [name], [cast], to=onnx.TensorProto.FLOAT))
        sums = helper.make_node("Conv", real[:2], real[2:])
        sums.attribute.extend(node.attribute)
        made.graph.node.append(sums)
        made.graph.node.append(helper.make_node("Cast", real[2:], node.output, to=onnx.TensorProto.INT32))
    return made


@functools.cache
def expected(whole: bool) -> tuple[bytes, dict[str, np.ndarray], list[np.ndarray]]:
    model, inputs = network(whole)
    session = onnxruntime.InferenceSession(in_floats(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return model.SerializeToString(), inputs, session.run(None, inputs)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["share", "all"])
@pytest.mark.parametrize(
    "emulated",
    [MACHINES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in MACHINES[1:])],
    ids=lambda each: f"{each.target.rpartition('zvl')[2]} on {each.name}",
)
def test_results_are_those_of_every_other_machine(emulated: Machine, whole: bool, tmp_path: Path) -> None:
    if emulated.missing:
        pytest.skip(f"needs: {emulated.missing}")
    text, inputs, wanted = expected(whole)
    (tmp_path / "n.onnx").write_bytes(text)
    found = run_on(emulated, nnefc.compile(tmp_path / "n.onnx", emulated.target), inputs)
    for made, exact in zip(found.values(), wanted, strict=True):
        if exact.dtype == np.int32:
            np.testing.assert_array_equal(made, exact)
        else:
            np.testing.assert_allclose(made, exact, rtol=1e-4, atol=1e-5)


def test_products_are_made_in_pairs_unless_their_sum_may_leave_16_bits() -> None:
    filters = np.full((21, 3, 3), 127, np.int8)
    for minimum, pairs in ((-127, True), (-128, False)):
        filters[-1, -1, -1] = minimum
        assert takes_int16_sums(parse_target(machine(256).target), filters) == pairs


def test_float16_are_multiplied_where_the_processor_does(tmp_path: Path) -> None:
    """By an emulator that has them, and tells programs so."""
    emulated = machine(128, more=",+zvfh", options=",zfh=true,zvfh=true")
    if emulated.missing:
        pytest.skip(f"needs: {emulated.missing}")
    net = Net(seed=12)
    y = net.convolution(net.floats(1, 6, 15, 17), 6, 40)
    y = net.convolution(net.convolution(y, 40, 40, groups=40), 40, 72, size=1)
    model = net.model([y])
    onnx.save(model, tmp_path / "n.onnx")
    probe = subprocess.run([*emulated.command, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r"version (\d+)", probe.stdout)
    if version is None or int(version[1]) < _KNOWS_FLOAT16:
        pytest.skip("needs: QEMU 9")
    artifact = nnefc.compile(tmp_path / "n.onnx", f"{emulated.target} -precision=fp16")
    (found,) = run_on(emulated, artifact, net.inputs).values()
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, net.inputs)
    assert np.abs(found - wanted).max() <= 4e-3 * np.abs(wanted).max()


BYTES = Dialect(r"vwmacc\.vx\s.*", DIALECTS["riscv64v"].spill, DIALECTS["riscv64v"].branch)
FP16 = Dialect(r"vfmacc\.vf\s.*", DIALECTS["riscv64v"].spill, DIALECTS["riscv64v"].branch)


@pytest.mark.parametrize(
    ("attributes", "dialect", "sums", "lines"),
    [
        pytest.param("+zvl128b", BYTES, 12, 40, marks=pytest.mark.slow),
        ("+zvl256b", BYTES, 14, 38),
        ("+zvl128b,+zvfh", FP16, 7, 19),
    ],
)
@pytest.mark.sample(1)
def test_instructions_multiply_groups_of_registers(
    attributes: str, dialect: Dialect, sums: int, lines: int, tmp_path: Path
) -> None:
    net, integers = Net(seed=13), dialect is BYTES
    if integers:
        step, zero = net.constant(np.float32(0.1)), net.constant(np.uint8(0))
        data = net.do("DequantizeLinear", net.given(np.zeros((1, 64, 14, 14), np.uint8)), step, zero)
        weights = net.do("DequantizeLinear", net.constant(np.ones((64, 64, 1, 1), np.int8)), step)
        result = net.do("QuantizeLinear", net.do("Conv", data, weights), step, zero)
    else:
        result = net.convolution(net.convolution(net.floats(1, 64, 14, 14), 64, 64, size=1), 64, 64, size=1)
    onnx.save(net.model([result]), tmp_path / "n.onnx")
    target = f"llvm -mtriple=riscv64-linux-gnu -mattr=+v,{attributes}" + " -precision=fp16" * (not integers)
    nnefc.compile(tmp_path / "n.onnx", target).emit("asm", tmp_path)
    loop = hottest_loop("\n".join(path.read_text() for path in sorted(tmp_path.glob("kernels*.s"))), dialect)
    assert loop.arithmetic >= sums and len(loop.lines) <= lines and not loop.spills, "\n".join(loop.lines)
