"""The networks of MLPerf Tiny in int8 on microcontrollers: memory, and instructions of a run, under an emulator.

    python benchmarks/microcontrollers.py [NETWORK ...]

Without names it takes all of `tiny_networks.py` and writes benchmarks/results/microcontrollers.md. Needs QEMU's
`qemu-system-arm`, for a peer emx-onnx-cgen from PyPI, and for another one the source of CMSIS-NN, in the folder that
the environment variable CMSIS_NN names (`git clone https://github.com/ARM-software/CMSIS-NN`). Fifteen minutes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
import numpy as np
from conditions import Conditions, page, write_page
from peers import cmsis_network, emx_network
from tiny_networks import NETWORKS, input_shape, write_float, write_int8

import nnefc

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT / "tests" / "targets"))

TARGETS = ("cortex-m4", "cortex-m7", "cortex-m55")
PEER_TARGET = "cortex-m4"
CMSIS_TARGETS = ("cortex-m4", "cortex-m55")
PATCHES_TARGETS = ("cortex-m4", "cortex-m55")
TITLE = "Networks of MLPerf Tiny on microcontrollers"

_HEAD = [
    "The four networks have the published layer sizes and random weights, in int8 by onnxruntime's static quantizer;",
    "inputs and outputs are int8 (`--io int8`). Outputs are equal to those of the same network on x86-64 by nnefc, bit",
    "for bit; else the table says by how many steps they differ. *Flash* is what code and constants of the network",
    "add to a program, *RAM* the arena and, apart, the stack; inputs and outputs are the program's own, with as many",
    "bytes as *tensors* says. Instructions are those of one run, measured by the",
    "processor's timer under QEMU, whose clock advances with them: a measure of code, not of time.",
    "",
    "| network | target | flash | RAM | tensors | stack | million instructions | outputs |",
    "|---|---|---:|---:|---:|---:|---:|---|",
]

_PATCHES_HEAD = [
    "",
    "## With --patches",
    "",
    "The first layers are computed a few rows at a time, where that saves an eighth of the RAM.",
    "",
    *_HEAD[-2:],
]

_PEER_HEAD = [
    "",
    "## Compared with emx-onnx-cgen",
    "",
    "The same files as C, which it writes, compiled by the same compiler with `-O3` and run on the same board. It",
    "computes in float32, from weights that each run dequantizes. RAM is the maximum that was allocated at a time.",
    "",
    "| network | target | flash | RAM | stack | million instructions | against nnefc |",
    "|---|---|---:|---:|---:|---:|---:|",
]


_CMSIS_HEAD = [
    "",
    "## Compared with CMSIS-NN",
    "",
    "Its kernels for int8, compiled by the same compiler with `-O3` and run on the same boards: a call for each layer,",
    "as an ahead-of-time compiler would write it, with no interpreter and no format of models between. Layers have the",
    "shapes of the networks, and weights and scales of no meaning, on which the work does not depend.",
    "",
    "| network | target | flash | stack | million instructions | against nnefc |",
    "|---|---|---:|---:|---:|---:|",
]


def row(name: str, model: Path, target: str, patches: bool = False) -> tuple[str, float]:
    """A line of the table, and the instructions of a run."""
    from boards import BOARDS, run_on_board

    if BOARDS[target].missing:
        return f"| {name} | {target} | | | | | | needs {BOARDS[target].missing} |", 0.0
    artifact = nnefc.compile(model, target, io="int8", patches=patches)
    (given,) = artifact.inputs
    steps = np.rint(_data(name) / np.float32(given.scale)) + given.zero_point
    data = {given.name: np.clip(steps, -128, 127).astype(np.int8)}
    measured = run_on_board(artifact, data, flash=True)
    expected = nnefc.compile(model, io="int8").run(data)
    apart = max(int(np.abs(measured.outputs[k].astype(int) - v.astype(int)).max()) for k, v in expected.items())
    tensors = sum(int(np.prod(tensor.shape)) for tensor in (*artifact.inputs, *artifact.outputs))  # of bytes
    memory = measured.flash_bytes, artifact.description.workspace_bytes, tensors, measured.stack_bytes
    sizes = " | ".join(f"{size:,}" for size in memory)
    outputs = f"differ by {apart}" if apart else "equal"
    line = f"| {name} | {target} | {sizes} | {measured.instructions / 1e6:.3f} | {outputs} |"
    return line, measured.instructions


def peer_row(name: str, model: Path, instructions: float) -> str:
    """The same of emx-onnx-cgen, compared with nnefc's `instructions`."""
    target = PEER_TARGET
    if missing := emx_network.missing():
        return f"| {name} | {target} | | | | | needs {missing} |"
    outputs = nnefc.compile(model).outputs
    output_bytes = sum(4 * int(np.prod(output.shape)) for output in outputs)
    with tempfile.TemporaryDirectory() as folder:
        found = emx_network.run(model, target, _data(name), output_bytes, Path(folder))
    if found is None:
        return f"| {name} | {target} | | more than the board has | | | |"
    sizes = " | ".join(f"{size:,}" for size in (found.flash_bytes, found.heap_bytes, found.stack_bytes))
    times = f"{found.instructions / instructions:.1f} times" if instructions else ""
    return f"| {name} | {target} | {sizes} | {found.instructions / 1e6:.3f} | {times} |"


def cmsis_row(name: str, target: str, instructions: float) -> str:
    """The same of CMSIS-NN, compared with nnefc's `instructions`."""
    if missing := cmsis_network.missing():
        return f"| {name} | {target} | | | | needs {missing} |"
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "network.onnx"
        write_float(name, model)
        found = cmsis_network.run(model, target, Path(folder))
    times = f"{found.instructions / instructions:.1f} times" if instructions else ""
    sizes = f"{found.flash_bytes:,} | {found.stack_bytes:,}"
    return f"| {name} | {target} | {sizes} | {found.instructions / 1e6:.3f} | {times} |"


def _data(name: str) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(input_shape(name)).astype(np.float32)


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(list(NETWORKS)))
def main(networks: tuple[str, ...]) -> None:
    """Measure NETWORKS, or all."""
    lines, patches, peers, cmsis = list(_HEAD), list(_PATCHES_HEAD), list(_PEER_HEAD), list(_CMSIS_HEAD)
    if not cmsis_network.missing():
        cmsis[1] = f"## Compared with {cmsis_network.version()}"
    if not emx_network.missing():
        peers[1] = f"## Compared with {emx_network.version()}"
    with tempfile.TemporaryDirectory() as folder:
        for name in networks or NETWORKS:
            model = Path(folder) / "network.onnx"
            write_int8(name, model)
            totals = {}
            for target in TARGETS:
                line, totals[target] = row(name, model, target)
                lines.append(line)
                click.echo(line, err=True)
            for target in PATCHES_TARGETS:
                patches.append(row(name, model, target, patches=True)[0])
                click.echo(patches[-1], err=True)
            peers.append(peer_row(name, model, totals[PEER_TARGET]))
            click.echo(peers[-1], err=True)
            for target in CMSIS_TARGETS:
                cmsis.append(cmsis_row(name, target, totals[target]))
                click.echo(cmsis[-1], err=True)
    lines += [*patches, *cmsis, *peers]
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("microcontrollers", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
