"""Whole networks for CUDA without a GPU: libraries as they are, on the fake driver and with emulated kernels.

    with on_cuda():                                  # what is compiled for a CPU meanwhile is compiled for a GPU that
        nnefc.compile(path).load().run(inputs)       # this CPU plays; the caller that compiles and loads knows nothing
        of it

    agree(model, inputs)                             # the same results as by code for this CPU

There is no machine code for GPUs in these libraries, which would take seconds for each: other tests compile it. With
`checks=True` the emulator watches all accesses to device memory; see `emulate.py` for what it finds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from emulate import emulate
from fake_driver import FakeDriver

import nnefc
from nnefc.backends import cuda
from nnefc.backends.cuda import CudaBackend
from nnefc.driver import artifact as artifacts
from nnefc.driver import compile as compiler
from nnefc.driver.artifact import Artifact
from nnefc.ir.network import Network
from nnefc.loader import Model, load
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import DeviceImage
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.cuda.target import CudaTarget
from nnefc.targets.machine.named_targets import DEFAULT_GPUS

__all__ = ["agree", "differences", "on_cuda", "without_machine_code"]

TOLERANCE = 1e-5  # of an output's largest value


@contextmanager
def on_cuda(
    *,
    checks: bool = False,
    precision: str = "fp32",
    architectures: tuple[int, ...] = DEFAULT_GPUS,
    capability: int = 0,
) -> Iterator[list[Artifact]]:
    """Compile for GPUs instead of CPUs, and load on the fake driver.

    Args:
        checks: whether accesses to device memory are checked; ten times slower.
        precision, architectures: see `CudaTarget`.
        capability: that of the device; 0 is for the newest of the architectures, at least 90.

    Yields:
        What was compiled meanwhile, in order.

    Raises:
        AssertionError: at the end; the driver was misused, or something of its was left behind.
    """
    made: list[Artifact] = []
    build = compiler.build

    def backend(target: Target) -> CudaBackend:
        return CudaBackend(CudaTarget("cuda", target, architectures, precision))

    def build_for_gpu(network: Network, target: Target, *tail: Any) -> Artifact:
        made.append(build(network, backend(target).target, *tail))
        return made[-1]

    def load_emulated(artifact: Artifact, *, threads: int | None = None) -> Model:
        return _load(artifact, threads, checks, capability)

    fake = FakeDriver.install()
    fake.machine(capability=divmod(capability or max(90, *architectures), 10))
    fake.clear()
    with (
        mock.patch.object(compiler, "backend_of", backend),
        mock.patch.object(compiler, "build", build_for_gpu),
        without_machine_code(),
        mock.patch.object(artifacts.Artifact, "load", load_emulated),
    ):
        yield made
    assert not fake.complaints, fake.complaints
    assert not fake.objects, fake.objects


@contextmanager
def without_machine_code() -> Iterator[None]:
    """Compile libraries for GPUs without machine code for these, which the fake driver does not need."""

    def image(_source: str, architectures: Sequence[int], _compiler: object = None) -> DeviceImage:
        return DeviceImage(b"no machine code", tuple(architectures), (), "none")

    with mock.patch.object(cuda, "compile_image", image), mock.patch.object(cuda, "find_compiler", lambda: None):
        yield


def _load(artifact: Artifact, threads: int | None, checks: bool, capability: int) -> Model:
    with tempfile.TemporaryDirectory(prefix="nnefc-") as folder:
        path = Path(folder) / f"network{artifact.target.format.suffix}"
        artifact.export(path)
        assert isinstance(artifact.code, CudaCode)
        if not artifact.code.kernels.launches:
            return load(path, threads=threads)
        kernels = emulate(artifact.code.kernels.source, Path(folder), checks=checks, capability=capability)
        with FakeDriver.install().kernels(kernels.path):
            return load(path, threads=threads)


def agree(
    model: Path | Network,
    inputs: Mapping[str, np.ndarray],
    *,
    checks: bool = False,
    tolerance: float = TOLERANCE,
    precision: str = "fp32",
    **options: Any,
) -> Artifact:
    """Run a model as code for CUDA and for this CPU, and compare; returns the former.

    Args:
        model: a model's file, or a front end's network.
        inputs: by name.
        checks: whether accesses to device memory are checked.
        tolerance: of an output's largest value.
        precision: on the GPU.
        options: of `nnefc.compile`, for a file.
    """
    wanted = _results(model, inputs, options)
    with on_cuda(checks=checks, precision=precision) as made:
        found = _results(model, inputs, options)
    wrong = [line for name in wanted for line in differences(name, found[name], wanted[name], tolerance)]
    assert not wrong, "\n".join(wrong)
    return made[-1]


def _results(model: Path | Network, inputs: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(model, Network):
        artifact = compiler.compile_network(model, parse_target("llvm"))
    else:
        artifact = nnefc.compile(model, **options)
    with artifact.load(threads=1) as network:
        return dict(network.run(inputs))


def differences(name: str, found: np.ndarray, wanted: np.ndarray, tolerance: float) -> Sequence[str]:
    """In what two results differ: nothing, or a line."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return [f"{name}: {found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"]
    if found.dtype.kind not in "fV":  # V: bfloat16
        return [] if np.array_equal(found, wanted) else [f"{name}: {np.sum(found != wanted)} values differ"]
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return [f"{name}: other infinities"]
    largest, error = np.abs(b[finite]).max(initial=0.0), np.abs(a[finite] - b[finite]).max(initial=0.0)
    return [] if error <= tolerance * max(largest, 1e-30) else [f"{name}: error {error:.3g}, largest {largest:.3g}"]
