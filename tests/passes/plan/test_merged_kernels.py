"""Kernels that differ in numbers alone are one function in libraries that shall be small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emulation import MACHINES, run_on
from small_networks import Net

import nnefc
from nnefc.backends.cpu import CpuBackend

WASM = next(machine for machine in MACHINES if machine.target.startswith("wasm32"))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray], list[np.ndarray]]:
    """Dense blocks: convolutions that differ in how many channels they sum up, of images of two sizes."""
    net, channels, outputs = Net(7), 16, []
    x = net.convolution(net.floats(1, 3, 25, 29), 3, channels)
    for stride in (1, 2):
        x = net.convolution(x, channels, channels, groups=channels, stride=stride)
        for _ in range(3):
            y = net.convolution(net.convolution(x, channels, 32, 1), 32, 16)
            x, channels = net.do("Concat", x, y, axis=1), channels + 16
        outputs.append(net.do("Softmax", net.do("GlobalAveragePool", x), axis=1))
    path = tmp_path_factory.mktemp("merged") / "m.onnx"
    onnx.save(net.model(outputs), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return path, net.inputs, session.run(None, net.inputs)


def functions(artifact: nnefc.Artifact) -> int:
    module = artifact.code.module  # type: ignore[attr-defined]
    assert module is not None
    return len(module.functions)


def test_results_are_those_of_functions_of_their_own(
    network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inputs, expected = network
    merged = nnefc.compile(path, "llvm", small=True)
    begin = CpuBackend.__init__

    def without(self: CpuBackend, *given: object) -> None:
        begin(self, *given)  # type: ignore[arg-type]
        self.merges_kernels = False

    monkeypatch.setattr(CpuBackend, "__init__", without)
    apart = nnefc.compile(path, "llvm", small=True)
    assert functions(merged) < 0.8 * functions(apart)
    results = merged.run(inputs)
    for own, other, right in zip(results.values(), apart.run(inputs).values(), expected, strict=True):
        np.testing.assert_array_equal(own, other)
        np.testing.assert_allclose(own, right, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(bool(WASM.missing), reason=f"needs: {WASM.missing}")
def test_arguments_are_as_wide_as_pointers(
    network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]],
) -> None:
    path, inputs, expected = network
    found = run_on(WASM, nnefc.compile(path, WASM.target, small=True), inputs)
    for own, right in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-4, atol=1e-5)
