"""What a deployed network costs besides its runs: bytes on disk, time until the first result, resident memory.

    python benchmarks/deployment.py [NETWORK ...] [--threads 2] [--processes 7]

measures nnefc, with the weights in the library and in a file of their own, and onnxruntime in turns, each time in a
fresh process, and writes benchmarks/results/deployment.md when no network is named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from models.networks import NAMES, write_twins
from report import machine

import nnefc
from nnefc.targets.toolchain import RUNTIME

HERE = Path(__file__).resolve().parent
MODELS = HERE.parent / "build" / "models"
RESULTS = HERE / "results"
CHOSEN = ("resnet50", "mobilenet_v1", "squeezenet", "vgg19", "bert_base", "mlp")
MEGABYTE = 1e6


@dataclass(frozen=True)
class Cost:
    """Of one way to run a network; the least of several processes, each number by itself.

    Attributes:
        disk_bytes: of the file or files without what the values take, which is `values_bytes`.
        create_ms: on the clock, until there is a session.
        wall_ms, processor_ms: until the first result is there, on the clock and of all processors.
        resident_bytes: of the process at the end, but for what it had before anything was loaded.
        needed_bytes: trained values and workspace; None where that is not known.
    """

    name: str
    disk_bytes: int
    values_bytes: int
    create_ms: float
    wall_ms: float
    processor_ms: float
    resident_bytes: int
    needed_bytes: int | None


@dataclass(frozen=True)
class Way:
    """A way to run a network: its command, and what is known before it runs."""

    name: str
    command: tuple[str, ...]
    disk_bytes: int
    values_bytes: int
    needed_bytes: int | None


def build_program(folder: Path) -> Path:
    """The C program that opens a library."""
    program = folder / "first_run"
    command = [sys.executable, "-m", "ziglang", "cc", "-O2", f"-I{RUNTIME}", str(HERE / "first_run.c")]
    subprocess.run([*command, "-ldl", "-o", str(program)], check=True)
    return program


def ways(network: str, threads: int) -> list[Way]:
    """Compile one network both ways, beside its ONNX twin."""
    twins = write_twins(MODELS, network)
    program = str(build_program(MODELS))
    artifact = nnefc.compile(twins.nnef)
    values = artifact.description.constant_bytes
    needed = values + artifact.description.workspace_bytes
    found = []
    for weights in ("embedded", "separate"):
        library = MODELS / f"{network}.{weights}.so"
        artifact.export(library, weights=weights)
        files = [library, *([library.with_suffix(".weights")] if weights == "separate" else [])]
        size = sum(file.stat().st_size for file in files)
        command = (program, str(library), str(threads))
        found.append(Way(f"nnefc, weights {weights}", command, size - values, values, needed))
    command = (sys.executable, str(HERE / "first_run.py"), str(twins.onnx), str(threads))
    return [*found, Way("onnxruntime", command, runtime_bytes(), twins.onnx.stat().st_size, None)]


def runtime_bytes() -> int:
    """onnxruntime's shared libraries, which a deployment takes along."""
    import onnxruntime

    folder = Path(onnxruntime.__file__).parent
    return sum(file.stat().st_size for file in folder.rglob("*.so*"))


def measure(network: str, threads: int, processes: int) -> list[Cost]:
    """Let every way run in turns, `processes` times."""
    compared = ways(network, threads)
    runs: dict[str, list[dict[str, float]]] = {way.name: [] for way in compared}
    for _ in range(processes):
        for way in compared:
            done = subprocess.run(way.command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
            runs[way.name].append(json.loads(done.stdout))
    return [cost_of(way, runs[way.name]) for way in compared]


def cost_of(way: Way, runs: Sequence[dict[str, float]]) -> Cost:
    """The least of each number."""
    return Cost(
        way.name,
        way.disk_bytes,
        way.values_bytes,
        min(run["create_ms"] for run in runs),
        min(run["wall_ms"] for run in runs),
        min(run["processor_ms"] for run in runs),
        int(min(run["after_bytes"] - run["before_bytes"] for run in runs)),
        way.needed_bytes,
    )


def table(costs: dict[str, list[Cost]]) -> list[str]:
    """A row for each network and way."""
    lines = [
        "| network | way | code, KB | values, MB | session, ms | first result, ms | processors, ms | resident, MB "
        "| more than values and workspace, MB |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for network, rows in costs.items():
        for cost in rows:
            rest = "" if cost.needed_bytes is None else f"{(cost.resident_bytes - cost.needed_bytes) / MEGABYTE:.1f}"
            lines.append(
                f"| {network} | {cost.name} | {cost.disk_bytes / 1e3:,.0f} | {cost.values_bytes / MEGABYTE:.1f} "
                f"| {cost.create_ms:.1f} | {cost.wall_ms:.1f} | {cost.processor_ms:.1f} "
                f"| {cost.resident_bytes / MEGABYTE:.1f} | {rest} |"
            )
    return lines


def page(costs: dict[str, list[Cost]], threads: int, processes: int, load: float) -> str:
    """The page of results."""
    return "\n".join(
        [
            "# What a deployed network costs besides its runs",
            "",
            f"{machine()}. Load of the machine in the minute before: {load:.2f}.",
            "",
            f"The least of {processes} fresh processes, in turns, on {threads} threads; the files were in the system's "
            "cache. *Code* is what is on disk beside the values: of onnxruntime its shared libraries. *Session* is the "
            "time until there is one, *first result* until its first run is done, both from the opening of the library "
            "(of onnxruntime: its import) on the clock; *processors* is the latter in time of all processors. "
            "*Resident* is what the process gained; the values are pages of the file, which processes share. Values "
            "are more than parameters where a 3 × 3 convolution has transformed filters.",
            "",
            *table(costs),
            "",
        ]
    )


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
@click.option("--threads", default=min(2, len(os.sched_getaffinity(0))), show_default=True)
@click.option("--processes", default=7, show_default=True, help="Fresh processes for each way.")
def main(networks: tuple[str, ...], threads: int, processes: int) -> None:
    """Measure NETWORKS, or a choice of them."""
    load = os.getloadavg()[0]
    costs = {}
    for network in networks or CHOSEN:
        click.echo(f"measuring {network}", err=True)
        costs[network] = measure(network, threads, processes)
    text = page(costs, threads, processes, load)
    click.echo(text)
    if not networks:
        (RESULTS / "deployment.md").write_text(text)


if __name__ == "__main__":
    main()
