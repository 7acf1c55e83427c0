"""The networks of MLPerf Tiny in int8 on microcontrollers: memory, and instructions of a run, under an emulator.

    python benchmarks/microcontrollers.py [NETWORK ...]

Without names it takes all of `tiny_networks.py` and writes benchmarks/results/microcontrollers.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
import numpy as np
from conditions import Conditions, page, write_page
from tiny_networks import NETWORKS, input_shape, write_int8

import nnefc

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT / "tests" / "targets"))

TARGETS = ("cortex-m4", "cortex-m7", "cortex-m55")
TITLE = "Networks of MLPerf Tiny on microcontrollers"

_HEAD = [
    "The four networks have the published layer sizes and random weights, in int8 by onnxruntime's static quantizer.",
    "Outputs are equal to those of the same network on x86-64 by nnefc, bit for bit; else the table says by how much",
    "they differ. *Flash* is what code and constants of the network add to a program, *RAM* the arena and, apart, the",
    "stack. Instructions are those of one run, counted by the processor's timer under QEMU, which advances with them:",
    "a measure of code, not of time.",
    "",
    "| network | target | flash | RAM | stack | million instructions | outputs |",
    "|---|---|---:|---:|---:|---:|---|",
]


def row(name: str, model: Path, target: str) -> str:
    """A line of the table."""
    from boards import BOARDS, run_on_board

    if BOARDS[target].missing:
        return f"| {name} | {target} | | | | | needs {BOARDS[target].missing} |"
    data = {"input": np.random.default_rng(3).standard_normal(input_shape(name)).astype(np.float32)}
    artifact = nnefc.compile(model, target)
    measured = run_on_board(artifact, data)
    apart = max(float(np.abs(measured.outputs[k] - v).max()) for k, v in nnefc.compile(model).run(data).items())
    memory = measured.flash_bytes, artifact.description.workspace_bytes, measured.stack_bytes
    sizes = " | ".join(f"{size:,}" for size in memory)
    outputs = f"differ by {apart:.2g}" if apart else "equal"
    return f"| {name} | {target} | {sizes} | {measured.instructions / 1e6:.2f} | {outputs} |"


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(list(NETWORKS)))
def main(networks: tuple[str, ...]) -> None:
    """Measure NETWORKS, or all."""
    lines = list(_HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for name in networks or NETWORKS:
            model = Path(folder) / "network.onnx"
            write_int8(name, model)
            for target in TARGETS:
                lines.append(row(name, model, target))
                click.echo(lines[-1], err=True)
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("microcontrollers", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
