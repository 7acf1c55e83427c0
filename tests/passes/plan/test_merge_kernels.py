"""Kernels that differ in numbers alone are one function in libraries that shall be small."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emulation import MACHINES, Machine, run_on
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


@pytest.fixture
def compiled_apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], nnefc.Artifact]:
    """Compiles with a function for each kernel."""
    begin = CpuBackend.__init__

    def without(self: CpuBackend, *given: object) -> None:
        begin(self, *given)  # type: ignore[arg-type]
        self.merges_kernels = False

    def compiled(path: Path, target: str) -> nnefc.Artifact:
        with monkeypatch.context() as changed:
            changed.setattr(CpuBackend, "__init__", without)
            return nnefc.compile(path, target, small=True)

    return compiled


def test_results_are_those_of_functions_of_their_own(
    network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]],
    compiled_apart: Callable[[Path, str], nnefc.Artifact],
) -> None:
    path, inputs, expected = network
    merged, apart = nnefc.compile(path, "llvm", small=True), compiled_apart(path, "llvm")
    assert functions(merged) < 0.8 * functions(apart)
    results = merged.run(inputs)
    for own, other, right in zip(results.values(), apart.run(inputs).values(), expected, strict=True):
        np.testing.assert_array_equal(own, other)
        np.testing.assert_allclose(own, right, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(bool(WASM.missing), reason=f"needs: {WASM.missing}")
def test_arguments_are_as_wide_as_pointers(
    network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]],
    compiled_apart: Callable[[Path, str], nnefc.Artifact],
) -> None:
    path, inputs, expected = network
    merged = nnefc.compile(path, WASM.target, small=True)
    assert functions(merged) < 0.8 * functions(compiled_apart(path, WASM.target))
    found = run_on(WASM, merged, inputs)
    for own, right in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-4, atol=1e-5)


INTEGERS = {"large": (10**10, 10**10 + 1), "negative": (-7, -10), "smallest": (-(2**63) + 1, -(2**62))}
"""What is added to int64."""


@pytest.mark.parametrize("machine", [None, WASM], ids=["host", "wasm32"])
@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.sample(3)
def test_integers_that_are_added_are_kept(
    kind: str, machine: Machine | None, tmp_path: Path, compiled_apart: Callable[[Path, str], nnefc.Artifact]
) -> None:
    if machine is not None and machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    net = Net(3)
    x = net.given(np.arange(-20, 20, dtype=np.int64))
    sums = [net.do("Add", x, net.constant(np.array(value, np.int64))) for value in INTEGERS[kind]]
    path = tmp_path / "integers.onnx"
    onnx.save(net.model([net.do("Mul", total, total) for total in sums]), path)
    target = "llvm" if machine is None else machine.target
    merged = nnefc.compile(path, target, small=True)
    found = merged.run(net.inputs) if machine is None else run_on(machine, merged, net.inputs)
    with np.errstate(over="ignore"):
        totals = [np.arange(-20, 20, dtype=np.int64) + np.int64(value) for value in INTEGERS[kind]]
        for own, total in zip(found.values(), totals, strict=True):
            np.testing.assert_array_equal(own, total * total)
    saved = functions(compiled_apart(path, target)) - functions(merged)
    assert saved == (machine is None or kind == "negative")
