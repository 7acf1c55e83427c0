"""Compile ONNX models and their NNEF twins, and print them side by side: both should come to the same network.

    python tests/conformance/onnx/twin_pairs.py FOLDER             all pairs NAME.onnx and NAME.nnef in the folder
    python tests/conformance/onnx/twin_pairs.py FOLDER resnet50    some

For each: the calls of kernels in a run, the processor seconds that compiling takes, the processor milliseconds of a run
in one thread (the smallest of several, the twins in turns), and the greatest difference from onnxruntime as a part of
the greatest value: `inf` where random weights make a softmax choose one class with certainty, which shows nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from pass_runs import lower

from nnefc.backends import backend_of
from nnefc.driver.compile import compile_network
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.loader import Model
from nnefc.passes.plan.program import Step
from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["Measured", "measure"]

_RUNS = 5
_TARGET = "llvm"


@dataclass
class Measured:
    """One model compiled: see the text of this file."""

    kernels: int
    compiling: float
    running: float
    difference: float


def measure(path: Path, *, shape: dict[str, tuple[int, ...]] | None = None) -> tuple[Measured, Model]:
    """Compile a model; the run and the difference are left open. The library is loaded, and to be closed."""
    target = parse_target(_TARGET)
    network = load_network(path, ReadOptions(shape=shape))
    lowered = lower(network, backend_of(target))
    begin = time.process_time()
    artifact = compile_network(load_network(path, ReadOptions(shape=shape)), target)
    compiling = time.process_time() - begin
    kernels = sum(isinstance(action, Step) for action in lowered.plan.actions)
    return Measured(kernels, compiling, np.inf, np.inf), artifact.load(threads=1)


def compare(twins: Sequence[Path], reference: Path) -> list[Measured]:
    """Measure models that have one input each, and compare them with onnxruntime on `reference`."""
    session = onnxruntime.InferenceSession(str(reference), providers=["CPUExecutionProvider"])
    border = session.get_inputs()[0]
    value = np.random.default_rng(0).standard_normal(border.shape).astype(np.float32)
    (expected,) = session.run(None, {border.name: value})
    made = [measure(path) for path in twins]
    try:
        for _ in range(_RUNS):
            for measured, library in made:
                begin = time.process_time()
                (found,) = library.run({library.inputs[0].name: value}).values()
                measured.running = min(measured.running, time.process_time() - begin)
                if np.count_nonzero(expected) > 1:
                    measured.difference = float(np.abs(found - expected).max() / np.abs(expected).max())
    finally:
        for _, library in made:
            library.close()
    return [measured for measured, _ in made]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = options.names or sorted(p.stem for p in options.folder.glob("*.onnx") if p.with_suffix(".nnef").exists())
    print(f"{'':16}{'kernels':>14}{'compiling, s':>16}{'running, ms':>18}{'difference':>20}")
    print(f"{'':16}" + "".join(f"{'ONNX':>{w - 7}}{'NNEF':>7}" for w in (14, 16, 18)) + f"{'ONNX':>11}{'NNEF':>9}")
    for name in names:
        twin = options.folder / f"{name}.onnx"
        onnx, nnef = compare([twin, twin.with_suffix(".nnef")], twin)
        print(
            f"{name:16}{onnx.kernels:7}{nnef.kernels:7}{onnx.compiling:9.1f}{nnef.compiling:7.1f}"
            f"{onnx.running * 1e3:11.1f}{nnef.running * 1e3:7.1f}{onnx.difference:11.1e}{nnef.difference:9.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
