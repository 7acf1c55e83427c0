"""Sums of float16 on 64-bit Arm: how their innermost loops load, and what networks with them compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from emulation import run_on, with_glibc
from small_networks import Net
from test_loaded_lanes import innermost_loops

import nnefc

_MACHINE = with_glibc("arm", "cortex-a76", "qemu-aarch64", "-cpu", "cortex-a76")


def convolved(net: Net, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
    rng = np.random.default_rng(inputs + outputs)
    weights = rng.standard_normal((outputs, inputs // groups, kernel, kernel)) / np.sqrt(inputs * kernel**2 / groups)
    operands = [net.constant(a.astype(np.float32)) for a in (weights, rng.standard_normal(outputs))]
    return net.do("Conv", x, *operands, pads=[kernel // 2] * 4, strides=[stride] * 2, group=groups)


@pytest.mark.parametrize(("size", "kernel"), [(14, 1), (9, 3)])
def test_neighbouring_vectors_are_loaded_together(size: int, kernel: int, tmp_path: Path) -> None:
    net = Net(seed=1)
    x = convolved(net, net.floats(1, 64, size, size), 64, 64, 1)
    onnx.save(net.model([convolved(net, x, 64, 96, kernel)]), tmp_path / "network.onnx")
    nnefc.compile(tmp_path / "network.onnx", "cortex-a76", precision="fp16", strict=True).emit("asm", tmp_path)
    text = "\n".join(path.read_text() for path in tmp_path.glob("kernels*.s"))
    loop = max(innermost_loops(text), key=lambda lines: sum(line.startswith("fmla") for line in lines))
    code = [line for line in loop if line and not line.startswith(".")]
    sums = sum(line.startswith("fmla") for line in code)
    assert sums >= 96
    assert len(code) <= 1.2 * sums, code
    assert not any("[sp" in line for line in code)


def test_a_network_in_float16_is_nearly_the_same(tmp_path: Path) -> None:
    """Depthwise, strided and pointwise convolutions of odd sizes, residuals, limits, poolings, parts of a tensor."""
    if _MACHINE.missing:
        pytest.skip(f"needs: {_MACHINE.missing}")
    net = Net(seed=3)
    x = net.do("Relu", convolved(net, net.floats(1, 12, 23, 25), 12, 40, 3))
    x = net.do("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    limits = [net.constant(np.float32(limit)) for limit in (0, 6)]
    x = net.do("Clip", convolved(net, x, 40, 40, 3, 2, 40), *limits)
    x = convolved(net, x, 40, 24, 1)
    y = convolved(net, net.do("Relu", convolved(net, x, 24, 72, 1)), 72, 72, 5, 1, 72)
    x = net.do("Add", convolved(net, net.do("Relu", y), 72, 24, 1), x)
    y = net.do("Relu", convolved(net, x, 24, 16, 1))
    parts = [net.do("Relu", convolved(net, y, 16, 33, 1)), net.do("Relu", convolved(net, y, 16, 32, 3))]
    y = convolved(net, net.do("Concat", *parts, axis=1), 65, 10, 1)
    onnx.save(net.model([y, x]), tmp_path / "network.onnx")
    nnefc.compile(tmp_path / "network.onnx", "llvm").export(tmp_path / "network.so")
    with nnefc.load(tmp_path / "network.so") as model:
        expected = model(*net.inputs.values())
    artifact = nnefc.compile(tmp_path / "network.onnx", _MACHINE.target, precision="fp16")
    for single, half in zip(expected, run_on(_MACHINE, artifact, net.inputs).values(), strict=True):
        assert np.abs(single - half).max() < 5e-3 * np.abs(single).max()
