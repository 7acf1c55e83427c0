"""The GPU of this machine, for tests that need one.

    with on_device(precision="fp16"):                # what is compiled for a CPU meanwhile is compiled for the GPU
        nnefc.compile(path).load().run(inputs)

    agree(model, inputs)                             # the same results as by code for this CPU

The stand-in for NVIDIA's driver has the driver's name, and a process has one library of a name: these tests have
processes of their own, see `tests/cuda/test_on_device.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import bundle
import numpy as np
from emulated_networks import differences
from present_gpu import architecture

import nnefc
from nnefc.backends.cuda import CudaBackend
from nnefc.driver import artifact as artifacts
from nnefc.driver import compile as compiler
from nnefc.driver.artifact import Artifact
from nnefc.ir.network import Network
from nnefc.loader import Model, load
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.cuda.target import CudaTarget, parse_cuda_target

__all__ = ["TOLERANCES", "agree", "on_device", "results", "target"]

TOLERANCES = {"fp32": 1e-5, "tf32": 3e-3, "bf16": 3e-2, "fp16": 1e-2}
"""How far results may be from those of code for a CPU, as a part of an output's largest value."""


def target(precision: str = "fp32") -> CudaTarget:
    """This GPU, and this processor."""
    return parse_cuda_target(f"cuda -arch=sm_{architecture()}").with_precision(precision)


@contextmanager
def on_device(precision: str = "fp32") -> Iterator[list[Artifact]]:
    """Compile for the GPU instead of CPUs; yields what was compiled meanwhile, in order."""
    if bundle.FOLDER is not None:
        with bundle.recorded(precision) as made:
            yield made
        return
    made: list[Artifact] = []
    build = compiler.build

    def backend(_: Target) -> CudaBackend:
        return CudaBackend(target(precision))

    def build_for_gpu(network: Network, cpu: Target, *tail: Any) -> Artifact:
        made.append(build(network, backend(cpu).target, *tail))
        return made[-1]

    def loaded(artifact: Artifact, *, threads: int | None = None) -> Model:
        with tempfile.TemporaryDirectory(prefix="nnefc-") as folder:
            path = Path(folder) / "network.so"
            artifact.export(path)
            return load(path, threads=threads)

    with (
        mock.patch.object(compiler, "backend_of", backend),
        mock.patch.object(compiler, "build", build_for_gpu),
        mock.patch.object(artifacts.Artifact, "load", loaded),
    ):
        yield made


def agree(
    model: Path | Network, inputs: Mapping[str, np.ndarray], precision: str = "fp32", runs: int = 3, **options: Any
) -> Artifact:
    """Run a model as code for the GPU and for this CPU, and compare; returns the former.

    Args:
        model: a model's file, or a front end's network.
        inputs: by name.
        runs: how often it runs on the GPU: the second time launches a graph.
        options: of `nnefc.compile`, for a file.
    """
    wanted = results(model, inputs, 1, **options)[0]
    with on_device(precision) as made:
        found = results(model, inputs, runs, **options)
    wrong = [
        f"run {run}: {line}"
        for run, result in enumerate(found)
        for name in wanted
        for line in differences(name, result[name], wanted[name], TOLERANCES[precision])
    ]
    assert not wrong, "\n".join(wrong)
    return made[-1]


def results(
    model: Path | Network, inputs: Mapping[str, np.ndarray], runs: int, **options: Any
) -> list[dict[str, np.ndarray]]:
    """What each of some runs gives, in a session of their own."""
    if isinstance(model, Network):
        made = compiler.compile_network(model, parse_target("llvm"))
    else:
        made = nnefc.compile(model, **options)
    with made.load(threads=1) as network:
        return [dict(network.run(inputs)) for _ in range(runs)]
