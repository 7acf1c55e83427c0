"""Vectors of SVE whose length is known: floats, 16-bit floats and bytes, compared with onnxruntime and in the
assembly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from assembly import Dialect, hottest_loop
from emulation import Machine, refused_by, run_on, with_glibc
from small_networks import Net

import nnefc
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.parsing import parse_target

TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=+bf16,+sve"


def machine(bits: int, code_for: int = 0) -> Machine:
    target = f"{TARGET}{code_for or bits}"
    return with_glibc(f"sve{bits}", target, "qemu-aarch64", "-cpu", f"max,sve{bits}=on")


def network() -> tuple[Net, list[str]]:
    """Sizes that are no multiples of anything."""
    net = Net(seed=21)
    y = net.convolution(net.floats(1, 5, 11, 13), 5, 37)
    y = net.convolution(y, 37, 37, groups=37)
    results = [net.convolution(y, 37, 70, size=1), net.do("MatMul", net.floats(9, 33), net.weight(33, 47))]
    results.append(net.do("MatMul", net.floats(9, 33), net.weight(33, 24)))  # in blocks of half a register of 512 bits
    rng = np.random.default_rng(3)
    for data, shape, groups in (
        (np.uint8, (37, 21, 3, 3), 1),
        (np.int8, (21, 1, 3, 3), 21),
        (np.uint8, (9, 21, 1, 1), 1),
    ):
        limits = np.iinfo(data)
        given = net.given(rng.integers(limits.min, limits.max + 1, (1, 21, 9, 14)).astype(data))
        weights = net.constant(rng.integers(-128, 128, shape).astype(np.int8))
        results.append(net.do("ConvInteger", given, weights, group=groups, pads=[shape[-1] // 2] * 4))
    return net, results


@pytest.mark.parametrize(
    ("bits", "precision", "error"),
    [
        (256, "", 1e-5),
        *(
            pytest.param(*slow, marks=pytest.mark.slow)
            for slow in ((512, "", 1e-5), (256, "fp16", 4e-3), (512, "fp16", 4e-3), (512, "bf16", 2e-2))
        ),
    ],
)
def test_results_are_those_of_every_other_machine(bits: int, precision: str, error: float, tmp_path: Path) -> None:
    compare(*network(), machine(bits), precision, error, tmp_path)


@pytest.mark.slow
def test_float16_in_blocks_of_half_a_register_have_the_same_results(tmp_path: Path) -> None:
    """As where a network's layers have 16 and 48 channels, and registers hold 32."""
    net = Net(seed=22)
    y = net.do("Relu", net.convolution(net.floats(1, 16, 7, 9), 16, 48))
    compare(net, [net.convolution(y, 48, 16, size=1)], machine(512), "fp16", 4e-3, tmp_path)


def compare(net: Net, results: list[str], emulated: Machine, precision: str, error: float, tmp_path: Path) -> None:
    if emulated.missing:
        pytest.skip(f"needs: {emulated.missing}")
    model = net.model(results)
    onnx.save(model, tmp_path / "n.onnx")
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, net.inputs)
    target = emulated.target + f" -precision={precision}" * bool(precision)
    found = run_on(emulated, nnefc.compile(tmp_path / "n.onnx", target), net.inputs)
    for made, exact in zip(found.values(), wanted, strict=True):
        if exact.dtype == np.int32:
            np.testing.assert_array_equal(made, exact)
        else:
            assert np.abs(made - exact).max() <= error * np.abs(exact).max()


@pytest.mark.parametrize(("bits", "code_for"), [(128, 256), (512, 256)])
def test_a_library_for_another_length_is_refused(bits: int, code_for: int, tmp_path: Path) -> None:
    emulated = machine(bits, code_for)
    if emulated.missing:
        pytest.skip(f"needs: {emulated.missing}")
    net = Net(seed=22)
    onnx.save(net.model([net.do("Relu", net.floats(3, 5))]), tmp_path / "n.onnx")
    text = refused_by(emulated, nnefc.compile(tmp_path / "n.onnx", emulated.target))
    assert f"lacks sve{code_for}" in text


def test_processors_have_the_length_that_they_all_have() -> None:
    assert parse_target("neoverse-v1").vectors.bytes == 32
    assert parse_target("a64fx").vectors.bytes == 64
    assert parse_target("neoverse-v2").vectors.bytes == 16
    neon = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1 -mattr=-sve256")
    assert neon.vectors.bytes == 16 and "sve" in neon.features and "sve256" not in neon.features
    with pytest.raises(CompileError, match="vectors of several lengths"):
        parse_target("llvm -mtriple=aarch64-linux-gnu -mattr=+sve256,+sve512")


LONG = Dialect(
    r"(fmla|sdot)\s+z\d+\.[shd].*", r"(str|ldr|st1\w|ld1\w)\s+\{?\s*z\d+.*\[sp\b.*", r"(b\.\w+|cbn?z|tbn?z|b)"
)


@pytest.mark.parametrize("integers", [False, True], ids=["floats", "bytes"])
@pytest.mark.sample(1)
def test_sums_stay_in_long_registers(integers: bool, tmp_path: Path) -> None:
    net = Net(seed=23)
    if integers:
        data, weights = net.given(np.zeros((1, 64, 14, 14), np.int8)), net.constant(np.ones((64, 64, 1, 1), np.int8))
        result = net.do("ConvInteger", data, weights)
    else:
        result = net.convolution(net.convolution(net.floats(1, 64, 14, 14), 64, 64, size=1), 64, 64, size=1)
    onnx.save(net.model([result]), tmp_path / "n.onnx")
    nnefc.compile(tmp_path / "n.onnx", f"{TARGET}256").emit("asm", tmp_path)
    loop = hottest_loop("\n".join(path.read_text() for path in sorted(tmp_path.glob("kernels*.s"))), LONG)
    assert loop.arithmetic >= 14 and not loop.spills, "\n".join(loop.lines)
    assert len(loop.lines) <= 2.2 * loop.arithmetic, "\n".join(loop.lines)
