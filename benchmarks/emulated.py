"""Whole networks on every target that can be run here, under its emulator, beside onnxruntime.

    python benchmarks/emulated.py [--onnxruntime LIBRARY] [--root FOLDER] [NETWORK ...]

Emulators say nothing of time: results are compared, and instructions of one inference counted, of onnxruntime's too if
its library for 64-bit Arm is given, as in the wheel for it; what that needs, `lib/libstdc++.so.6` and the C library, is
where Debian's libstdc++6-arm64-cross puts it, or in another folder. Without names it takes NETWORKS and COUNTED, and
writes benchmarks/results/emulated.md. Rows are computed in as many processes as there are processors: counts are exact
whatever else runs.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import onnxruntime
from conditions import Conditions, page, write_page
from instructions import instructions, program, quantized
from models.networks import NAMES, write_twins

import nnefc

if TYPE_CHECKING:
    from emulation import Machine

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT / "tests" / "targets"), str(_ROOT / "tests")]

NETWORKS = ("squeezenet",)
COUNTED = ("squeezenet", "mobilenet_v1", "mobilenet_v2", "shufflenet")
TITLE = "Whole networks on other machines"

_HEAD = [
    "Each network was compiled for the target and run once under the emulator named; the largest difference from",
    "onnxruntime's results on x86-64 is given as a share of the largest value.",
    "",
    "| network | target | run by | largest difference |",
    "|---|---|---|---|",
]


_COUNTED_HEAD = [
    "",
    "## Instructions",
    "",
    "Millions of instructions that one inference on one thread executes, as QEMU counts them: a measure of code, not",
    "of time. Quantized networks have weights of int8 with a scale for each channel, and data of uint8.",
    "",
    "| network | numbers | target | nnefc | onnxruntime |",
    "|---|---|---|---|---|",
]

_RV64 = "rv64,v=true,vext_spec=v1.0,vlen=128"
_ARM64 = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu")
_ARM32 = ("qemu-arm", "-L", "/usr/arm-linux-gnueabihf", "-cpu")
_COUNTED_ON: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cortex-a76": ((*_ARM64, "cortex-a76"), ("float32", "float16", "int8")),
    "cortex-a53": ((*_ARM64, "cortex-a53"), ("float32", "int8")),
    "armv7-linux-gnueabihf": ((*_ARM32, "cortex-a7"), ("float32", "int8")),
    "riscv64gcv-linux-gnu": (("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu", "-cpu", _RV64), ("float32",)),
}
"""Targets, their emulators, and what numbers networks are counted with. QEMU 7.2 ends at some conversions of RISC-V's
vectors, which quantized networks have: "Assertion `ctx->insn_start != NULL' failed"."""

_MILLION = 1e6

_PARTS = {"cortex-a76": "0xd0b", "cortex-a53": "0xd03"}
"""Arm's numbers of processors, which onnxruntime reads from /proc/cpuinfo: QEMU would show it this machine's."""


def _root(folder: Path, target: str, libraries: str) -> str:
    """A folder that the emulator takes files from before it takes the machine's."""
    (folder / "proc").mkdir()
    (folder / "lib").symlink_to(Path(libraries) / "lib")
    lines = ["CPU implementer : 0x41", "CPU architecture: 8", f"CPU part : {_PARTS[target]}"]
    processors = ["\n".join([f"processor : {number}", *lines]) for number in range(os.cpu_count() or 1)]
    (folder / "proc" / "cpuinfo").write_text("\n\n".join(processors) + "\n", encoding="ascii")
    return str(folder)


def counted(network: str, model: Path, target: str, numbers: str, library: str | None, root: str) -> str:
    """A line of the table of instructions."""
    emulator, _ = _COUNTED_ON[target]
    source = quantized(model) if numbers == "int8" else model
    precision = " -precision=fp16" if numbers == "float16" else ""
    artifact = nnefc.compile(source, target + precision)
    zig_target = artifact.target.zig_target
    with tempfile.TemporaryDirectory(prefix="nnefc-counted-") as folder:
        path = Path(folder) / "network.so"
        artifact.export(path)
        own = instructions(emulator, [str(program("first_run", zig_target)), str(path), "1"])
    other = "–"
    if library is not None and emulator[0] == _ARM64[0] and numbers != "float16":
        command = [str(program("first_run_onnxruntime", zig_target)), library, str(source), "1"]
        with tempfile.TemporaryDirectory(prefix="nnefc-root-") as folder:
            there = (emulator[0], "-L", _root(Path(folder), target, root), *emulator[3:])
            other = f"{instructions(there, command) / _MILLION:.0f}"
    return f"| {network} | {numbers} | `{target}` | {own / _MILLION:.0f} | {other} |"


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


def row(network: str, model: Path, name: str) -> str:
    """A line of the table for a machine of `MACHINES`; one without its emulator has one too, which says so."""
    from emulation import MACHINES

    machine = next(each for each in MACHINES if each.name == name)
    command = " ".join(part for part in machine.command if not part.startswith(("/", "-L")))
    kind = "shared library" if machine.opened else "module" if command == "node" else "static program"
    found = f"not run: needs {machine.missing}" if machine.missing else f"{difference(model, machine):.1e}"
    return f"| {network} | `{machine.target}` | {command}, {kind} | {found} |"


def _made(rows: list[tuple[Callable[..., str], *tuple[object, ...]]]) -> list[str]:
    """What functions return for the arguments after them, each called in some process; in order."""
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        lines = []
        for made in [processes.submit(*each) for each in rows]:
            lines.append(made.result())
            click.echo(lines[-1], err=True)
    return lines


@click.command()
@click.option("--onnxruntime", "library", help="Its library for 64-bit Arm.")
@click.option("--root", default=_ARM64[2], help="A folder with the C and C++ libraries that it needs, in lib.")
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
def main(networks: tuple[str, ...], library: str | None, root: str) -> None:
    """Compare NETWORKS, or a choice of them, and count their instructions."""
    from emulation import MACHINES

    models = {
        network: write_twins(_ROOT / "build" / "models", network).onnx
        for network in dict.fromkeys(networks or (*NETWORKS, *COUNTED))
    }
    for network in networks or COUNTED:
        quantized(models[network])  # once, before processes want it
    runs = [(row, network, models[network], each.name) for network in networks or NETWORKS for each in MACHINES]
    counts = [
        (counted, network, models[network], target, numbers, library, root)
        for network in networks or COUNTED
        for target, (_, kinds) in _COUNTED_ON.items()
        for numbers in kinds
    ]
    lines = [*_HEAD, *_made(runs), *_COUNTED_HEAD, *_made(counts)]
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("emulated", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
