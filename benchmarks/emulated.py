"""Whole networks on every target that can be run here, under its emulator, beside onnxruntime.

    python benchmarks/emulated.py squeezenet.onnx [densenet121.onnx ...] [--output benchmarks/results/emulated.md]

Emulators say nothing of speed: only results are compared.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

import nnefc

if TYPE_CHECKING:
    from emulation import Machine

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS / "targets"), str(_TESTS)]

_HEAD = """# Whole networks on other machines

Written by `benchmarks/emulated.py`. Each network was compiled for the target and run once under the emulator named; the
largest difference from onnxruntime's results on x86-64 is given as a share of the largest value.

| network | target | run by | largest difference |
|---|---|---|---|
"""


def difference(model: Path, machine: Machine) -> float:
    """The largest difference from onnxruntime, as a share of the largest value."""
    from emulation import run_on

    artifact = nnefc.compile(model, machine.target)
    rng = np.random.default_rng(1)
    inputs = {tensor.name: rng.random(tensor.shape, np.float32) for tensor in artifact.inputs}
    outputs = run_on(machine, artifact, inputs)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected = session.run([tensor.name for tensor in artifact.outputs], inputs)
    return max(
        float(np.abs(outputs[tensor.name] - array).max() / np.abs(array).max())
        for tensor, array in zip(artifact.outputs, expected, strict=True)
    )


def main() -> None:
    from emulation import MACHINES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, help="a Markdown file")
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models:
        for machine in MACHINES:
            if machine.missing:
                print(f"{machine.name}: needs {machine.missing}", file=sys.stderr)
                continue
            command = " ".join(part for part in machine.command if not part.startswith(("/", "-L")))
            kind = "shared library" if machine.opened else "module" if command == "node" else "static program"
            rows.append(f"| {model.stem} | `{machine.target}` | {command}, {kind} | {difference(model, machine):.1e} |")
            print(rows[-1], flush=True)
    if arguments.output is not None:
        arguments.output.write_text(_HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
