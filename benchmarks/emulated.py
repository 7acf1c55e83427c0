"""Whole networks on every target that can be run here, under its emulator, compared with peers.

    python benchmarks/emulated.py [--peers FOLDER] [NETWORK ...]

Emulators say nothing of time: results are compared, and the instructions of one inference, of peers too if FOLDER
has them, as `arm64_peers.py` makes it. Without names it takes NETWORKS and EMULATED, and, if there are peers, writes
benchmarks/results/emulated.md. Rows are computed in as many processes as there are processors: counts are the same
whatever else runs. Finished ones are kept in FOLDER/counts.json, those of peers by their versions and nnefc's by its
sources, so that a run which is ended goes on where it was.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import onnxruntime
from conditions import Conditions, commit, page, write_page
from instructions import DATA, compiled, instructions, program, quantized
from models.networks import NAMES, write_twins

import nnefc

if TYPE_CHECKING:
    from emulation import Machine

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent
sys.path[:0] = [str(_ROOT / "tests" / "targets"), str(_ROOT / "tests" / "helpers")]

NETWORKS = ("squeezenet",)
EMULATED = ("squeezenet", "mobilenet_v1", "mobilenet_v2", "shufflenet")
TITLE = "Whole networks on other machines"

_HEAD = [
    "Each network was compiled for the target and run once under the emulator named; the largest difference from",
    "onnxruntime's results on x86-64 is given as a share of the largest value.",
    "",
    "| network | target | run by | largest difference |",
    "|---|---|---|---|",
]


_EMULATED_HEAD = [
    "",
    "## Instructions",
    "",
    "Millions of instructions that one inference on one thread executes, as QEMU counts them: a measure of code, not",
    "of time. Quantized networks have weights of int8 with a scale for each channel, and data of int8; onnxruntime",
    "runs them with data of uint8, too, and what executes fewer instructions counts.",
]

_PEERS_HEAD = (
    "A peer's are the mean of {more} inferences after the first, where each count is the lesser of two programs, by its"
    " wheel for 64-bit Arm from PyPI in Python under the same emulator, of a processor with the features and the number"
    " of that core: {versions}. ncnn's networks are made by PNNX, and LiteRT's, which XNNPACK computes, by onnx2tf,"
    " both of the same ONNX files; onnxruntime has nnefc's files."
)

_EMULATED_TABLE = [
    "",
    "| network | numbers | target | nnefc | ncnn | LiteRT | onnxruntime |",
    "|---|---|---|---:|---:|---:|---:|",
]

_RV64 = "rv64,v=true,vext_spec=v1.0,vlen={}"
_ARM64 = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu")
_ARM32 = ("qemu-arm", "-L", "/usr/arm-linux-gnueabihf", "-cpu")
_RISCV = ("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu", "-cpu")
_FLOATS = ("float32",)
_EMULATED_ON: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "cortex-a76": ("cortex-a76", (*_ARM64, "cortex-a76"), ("float32", "float16", "int8")),
    "cortex-a53": ("cortex-a53", (*_ARM64, "cortex-a53"), ("float32", "int8")),
    "neoverse-v1": ("neoverse-v1", (*_ARM64, "max,sme=off,sve-default-vector-length=32"), ("float32", "int8")),
    "neoverse-v2": ("neoverse-v2", (*_ARM64, "max,sme=off"), ("int8",)),
    "cortex-x4": ("cortex-x4", (*_ARM64, "max,sme=off"), ("int8",)),
    "cortex-x925": ("cortex-x925", (*_ARM64, "max,sme=off"), ("int8",)),
    "apple-m4": ("apple-m4", (*_ARM64, "max,sme-default-vector-length=64"), ("float32", "int8")),
    "armv7": ("armv7-linux-gnueabihf", (*_ARM32, "cortex-a7"), ("float32", "int8")),
    "riscv64": ("riscv64-linux-gnu", (*_RISCV, "rv64"), _FLOATS),
    "riscv64gcv, 128 bits": ("riscv64gcv-linux-gnu", (*_RISCV, _RV64.format(128)), ("float32", "int8")),
    "riscv64gcv, 256 bits": ("riscv64gcv-linux-gnu", (*_RISCV, _RV64.format(256)), _FLOATS),
}
"""By what the page calls them: targets, their emulators, and the numbers that networks are measured with. Quantized
networks execute the same instructions where RISC-V's vectors are longer. QEMU's `max` has SME, which these cores of Arm
do not have, and which peers would use."""

_MILLION = 1e6
_MORE = 4  # inferences of peers, in Python

_PARTS = {
    "cortex-a76": "0xd0b",
    "cortex-a53": "0xd03",
    "neoverse-v1": "0xd40",
    "neoverse-v2": "0xd4f",
    "cortex-x4": "0xd82",
    "cortex-x925": "0xd85",
}
"""Arm's numbers of processors, which peers read from /proc/cpuinfo: QEMU would show them this machine's. Peers are not
run on others."""

_PEERS = {"ncnn": "ncnn", "LiteRT": "ai_edge_litert", "onnxruntime": "onnxruntime"}
"""The columns after nnefc's, and their packages."""

_ENGINES = {
    ("ncnn", "float32"): ("ncnn", ".ncnn.param"),
    ("ncnn", "float16"): ("ncnn-fp16", ".ncnn.param"),
    ("LiteRT", "float32"): ("litert", ".tflite"),
    ("LiteRT", "int8"): ("litert", ".int8.tflite"),
    ("onnxruntime", "float32"): ("onnxruntime", ""),
    ("onnxruntime", "int8"): ("onnxruntime", ""),
}
"""What of a peer computes with which numbers, see `peers/arm64_runs.py`, and the ending of its networks but ONNX's."""


def _root(folder: Path, target: str, peers: Path) -> str:
    """A folder that the emulator takes files from before it takes the machine's."""
    (folder / "proc").mkdir()
    for part in ("lib", "usr"):
        (folder / part).symlink_to(peers / "root" / part)
    lines = ["CPU implementer : 0x41", "CPU architecture: 8", f"CPU part : {_PARTS[target]}"]
    processors = ["\n".join([f"processor : {number}", *lines]) for number in range(os.cpu_count() or 1)]
    (folder / "proc" / "cpuinfo").write_text("\n\n".join(processors) + "\n", encoding="ascii")
    return str(folder)


def of_peer(network: str, source: Path, target: str, numbers: str, peers: Path, peer: str) -> str:
    """What a peer executes, in millions."""
    emulator, (engine, ending) = _EMULATED_ON[target][1], _ENGINES[peer, numbers]
    models = [peers / "models" / f"{network}{ending}"]
    if engine == "onnxruntime":
        models = [quantized(source, data) for data in DATA] if numbers == "int8" else [source]
    with tempfile.TemporaryDirectory(prefix="nnefc-root-") as folder:
        root = _root(Path(folder), target, peers)
        options = [part for each in _environment(peers) for part in ("-E", each)]
        there = (emulator[0], "-L", root, *emulator[3:], *options)
        script = _HERE / "peers" / "arm64_runs.py"
        python = peers / "root" / "usr" / "bin" / "python3.11"
        commands = [[str(python), str(script), engine, str(model)] for model in models]
        return f"{min(instructions(there, command, _MORE) for command in commands) / _MILLION:.0f}"


def _environment(peers: Path) -> tuple[str, ...]:
    """Return the environment in which a Python program executes nearly the same instructions each time: OpenBLAS has no
    threads, which would spin while they wait."""
    settings = ("PYTHONHOME=/usr", "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=0", "OPENBLAS_NUM_THREADS=1")
    return f"PYTHONPATH={peers / 'packages'}", *settings


def instructions_of(network: str, model: Path, target: str, numbers: str) -> str:
    """What nnefc executes, in millions."""
    name, emulator, _ = _EMULATED_ON[target]
    artifact = compiled(model, name, numbers)
    with tempfile.TemporaryDirectory(prefix="nnefc-emulated-") as folder:
        path = Path(folder) / "network.so"
        artifact.export(path)
        command = [str(program("first_run", artifact.target.zig_target)), str(path), "1"]
        return f"{instructions(emulator, command) / _MILLION:.0f}"


def _versions(peers: Path) -> str:
    """Of the peers' packages, as their folders say."""
    found = {path.name.split("-")[0]: path.name.split("-")[1] for path in (peers / "packages").glob("*.dist-info")}
    return ", ".join(f"{peer} {found[package].removesuffix('.dist')}" for peer, package in _PEERS.items())


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


def _sources() -> str:
    """The compiler's sources as Git names them; where files differ from their commit, what no other run has."""
    if len(commit()) != 12:
        return str(time.time())
    git = ["git", "-C", str(_ROOT), "rev-parse", *(f"HEAD:{part}" for part in ("compiler", "passes", "targets"))]
    return "-".join(
        name[:12] for name in subprocess.run(git, capture_output=True, text=True, check=True).stdout.split()
    )


def _made(tasks: Mapping[str, tuple[Callable[..., str], *tuple[object, ...]]], file: Path | None) -> dict[str, str]:
    """What functions return for the arguments after them, each called in some process.

    Args:
        file: where results are kept by their names, those of runs that were ended before too; None: nowhere.
    """
    kept: dict[str, str] = json.loads(file.read_text()) if file is not None and file.exists() else {}
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        left = {processes.submit(*task): name for name, task in tasks.items() if name not in kept}
        for made in as_completed(left):
            kept[left[made]] = made.result()
            click.echo(f"{left[made]}: {kept[left[made]]}", err=True)
            if file is not None:
                file.write_text(json.dumps(kept, indent=1))
    return kept


@click.command()
@click.option("--peers", type=click.Path(exists=True, path_type=Path), help="A folder that arm64_peers.py has made.")
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
def main(networks: tuple[str, ...], peers: Path | None) -> None:
    """Compare NETWORKS, or a choice of them, and count their instructions."""
    from emulation import MACHINES

    models = {
        network: write_twins(_ROOT / "build" / "models", network).onnx
        for network in dict.fromkeys(networks or (*NETWORKS, *EMULATED))
    }
    for network in networks or EMULATED:
        for data in DATA:
            quantized(models[network], data)  # once, before processes want it
    peers = peers and peers.absolute()
    versions, sources = _versions(peers) if peers else "", _sources()
    compared = {
        f"{sources}: {network} on {each.name}": (row, network, models[network], each.name)
        for network in networks or NETWORKS
        for each in MACHINES
    }
    counts: dict[str, tuple[Callable[..., str], *tuple[object, ...]]] = {}
    rows: list[tuple[list[str], list[str]]] = []  # cells, and names of counts
    for network in networks or EMULATED:
        for target, (_, _, kinds) in _EMULATED_ON.items():
            for numbers in kinds:
                arguments = network, models[network], target, numbers
                names = [f"{sources}: {network}, {numbers}, {target}"]
                counts[names[0]] = instructions_of, *arguments
                for peer in _PEERS:
                    names.append(f"{versions}: {network}, {numbers}, {target}, {peer}")
                    if peers and target in _PARTS and (peer, numbers) in _ENGINES:
                        counts[names[-1]] = of_peer, *arguments, peers, peer
                rows.append(([network, numbers, target], names))
    found = _made(compared | counts, peers and peers / "counts.json")
    of_peers = ["", *textwrap.wrap(_PEERS_HEAD.format(more=_MORE, versions=versions), 120)] if peers else []
    lines = [*_HEAD, *(found[name] for name in compared), *_EMULATED_HEAD, *of_peers, *_EMULATED_TABLE]
    for cells, names in rows:
        lines.append(f"| {' | '.join([*cells, *(found[name] if name in counts else '–' for name in names)])} |")
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if peers and not networks:
        write_page("emulated", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
