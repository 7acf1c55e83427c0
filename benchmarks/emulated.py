"""Whole networks on every target that can be run here, under its emulator, beside onnxruntime.

    python benchmarks/emulated.py [NETWORK ...]

Emulators say nothing of speed: only results are compared. Without names it takes NETWORKS and writes
benchmarks/results/emulated.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import onnxruntime
from conditions import RESULTS, Conditions, page, write_page
from models.networks import NAMES, write_twins

import nnefc

if TYPE_CHECKING:
    from emulation import Machine

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT / "tests" / "targets"), str(_ROOT / "tests")]

NETWORKS = ("squeezenet",)
TITLE = "Whole networks on other machines"

_HEAD = [
    "Each network was compiled for the target and run once under the emulator named; the largest difference from",
    "onnxruntime's results on x86-64 is given as a share of the largest value.",
    "",
    "| network | target | run by | largest difference |",
    "|---|---|---|---|",
]


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


def row(network: str, model: Path, machine: Machine) -> str:
    """A line of the table; a target without its emulator has one too, which says so."""
    command = " ".join(part for part in machine.command if not part.startswith(("/", "-L")))
    kind = "shared library" if machine.opened else "module" if command == "node" else "static program"
    found = f"not run: needs {machine.missing}" if machine.missing else f"{difference(model, machine):.1e}"
    return f"| {network} | `{machine.target}` | {command}, {kind} | {found} |"


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
def main(networks: tuple[str, ...]) -> None:
    """Compare NETWORKS, or a choice of them."""
    from emulation import MACHINES

    lines = list(_HEAD)
    for network in networks or NETWORKS:
        model = write_twins(_ROOT / "build" / "models", network).onnx
        for machine in MACHINES:
            lines.append(row(network, model, machine))
            click.echo(lines[-1], err=True)
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page(RESULTS / "emulated.md", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
