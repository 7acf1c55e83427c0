"""What a deployed network costs besides its runs: bytes on disk, time until the first result, resident memory.

    python benchmarks/deployment.py [NETWORK ...] [--threads 2] [--processes 7]

measures nnefc, with the weights in the library and in a file of their own, and onnxruntime, with the model as it is and
optimized beforehand, in turns, each time in a fresh process: programs in C compared with programs in C, Python compared
with Python. Without names it measures NETWORKS and writes results/PROCESSOR/deployment.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import onnxruntime
from conditions import Watch, page, write_page
from models.networks import NAMES, write_twins
from report import table

import nnefc
from nnefc.targets.link.toolchain import RUNTIME

HERE = Path(__file__).resolve().parent
MODELS = HERE.parent / "build" / "models"
NETWORKS = ("resnet50", "mobilenet_v1", "squeezenet", "vgg19", "bert_base", "mlp")
TITLE = "What a deployed network costs besides its runs"
MEGABYTE = 1e6


@dataclass(frozen=True)
class Way:
    """A way to run a network.

    Attributes:
        name: of the engine, its form, and the language of the program.
        command: the program that makes a session and runs it once, with its arguments.
        code_bytes: of the files besides the trained values: the library, or the engine's shared library.
        value_bytes: of the trained values, or of the model.
    """

    name: str
    command: tuple[str, ...]
    code_bytes: int
    value_bytes: int


@dataclass(frozen=True)
class Cost:
    """Of one way; the minimum of several processes, each number by itself.

    Attributes:
        create_ms, wall_ms, processor_ms: until there is a session, until its first result; the last of all processors.
        resident_bytes: what the process gained; of it `anonymous_bytes` are no pages of files.
    """

    way: Way
    create_ms: float
    wall_ms: float
    processor_ms: float
    resident_bytes: int
    anonymous_bytes: int


def ways(network: str, threads: int) -> list[Way]:
    """Compile one network both ways, and prepare its ONNX twin both ways."""
    twins = write_twins(MODELS, network)
    artifact = nnefc.compile(twins.nnef)
    values = artifact.description.constant_bytes
    in_c, in_python = build_program("first_run"), (sys.executable, str(HERE / "first_run.py"))
    found = []
    for weights in ("embedded", "separate"):
        library = MODELS / f"{network}.{weights}.so"
        artifact.export(library, weights=weights)
        files = [library, *([library.with_suffix(".weights")] if weights == "separate" else [])]
        code = sum(file.stat().st_size for file in files) - values
        tail = (str(library), str(threads))
        found.append(Way(f"nnefc, weights {weights}, C", (str(in_c), *tail), code, values))
        found.append(Way(f"nnefc, weights {weights}, Python", (*in_python, "nnefc", *tail), code, values))
    engine = engine_library()
    in_c = build_program("first_run_onnxruntime")
    for form, model in (("", twins.onnx), (", optimized beforehand", optimized(twins.onnx))):
        sizes = (engine.stat().st_size, model.stat().st_size)
        tail = (str(model), str(threads))
        found.append(Way(f"onnxruntime{form}, C", (str(in_c), str(engine), *tail), *sizes))
        found.append(Way(f"onnxruntime{form}, Python", (*in_python, "onnxruntime", *tail), *sizes))
    return sorted(found, key=lambda way: not way.name.endswith(", C"))


def build_program(name: str) -> Path:
    """One of the programs in C next to this file."""
    program = MODELS / name
    command = [sys.executable, "-m", "ziglang", "cc", "-O2", "-std=gnu17", f"-I{RUNTIME}"]
    # Functions of onnxruntime's table have no prototypes here.
    command += ["-Wno-deprecated-non-prototype", str(HERE / f"{name}.c"), "-ldl", "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def engine_library() -> Path:
    """onnxruntime's shared library for programs in C."""
    return next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))


def optimized(model: Path) -> Path:
    """The model after onnxruntime's graph optimizations for this machine, in its own file format."""
    result = model.with_suffix(".ort")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(result)
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return result


def measure(network: str, threads: int, processes: int) -> list[Cost]:
    """Let every way run in turns, `processes` times."""
    compared = ways(network, threads)
    runs: dict[str, list[Mapping[str, float]]] = {way.name: [] for way in compared}
    for _ in range(processes):
        for way in compared:
            done = subprocess.run(way.command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
            runs[way.name].append(json.loads(done.stdout))
    return [cost_of(way, runs[way.name]) for way in compared]


def cost_of(way: Way, runs: Sequence[Mapping[str, float]]) -> Cost:
    """The minimum of each number."""
    lowest = {name: min(run[name] for run in runs) for name in runs[0]}
    return Cost(
        way,
        lowest["create_ms"],
        lowest["wall_ms"],
        lowest["processor_ms"],
        int(lowest["resident_bytes"]),
        int(lowest["anonymous_bytes"]),
    )


def costs_table(costs: Mapping[str, Sequence[Cost]]) -> list[str]:
    """A row for each network and way."""
    columns = ["network", "way", "code, KB", "values, MB", "session, ms", "first result, ms", "processors, ms"]
    columns += ["resident, MB", "not of files, MB"]
    lines = []
    for network, rows in costs.items():
        for cost in rows:
            cells = [f"{cost.way.code_bytes / 1e3:,.0f}", f"{cost.way.value_bytes / MEGABYTE:.1f}"]
            cells += [f"{ms:.1f}" for ms in (cost.create_ms, cost.wall_ms, cost.processor_ms)]
            cells += [f"{size / MEGABYTE:.1f}" for size in (cost.resident_bytes, cost.anonymous_bytes)]
            lines.append([network, cost.way.name, *cells])
    return table(columns, lines, names=2)


def body(costs: Mapping[str, Sequence[Cost]], threads: int, processes: int) -> list[str]:
    """How it was measured, and the table."""
    return [
        f"onnxruntime {onnxruntime.__version__}. The minimum of {processes} fresh processes, in turns, on {threads}"
        " threads; the files were in the system's cache.",
        "",
        "*Code* is what is on disk besides the values: of onnxruntime its shared library for C, without the Python"
        " package. *Values* are the trained values or the model's file; they are more than parameters where a 3 × 3"
        " convolution has transformed filters. *Session* is the time until there is one, *first result* until its first"
        " run is done, both from the opening of the library (in Python: the engine's import, with NumPy there already)"
        " on the clock; *processors* is the latter in time of all processors. *Resident* is what the process gained,"
        " *not of files* the part of it that is no page of a file: pages of files are shared by processes and can be"
        " dropped.",
        "",
        *costs_table(costs),
    ]


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
@click.option("--threads", default=min(2, len(os.sched_getaffinity(0))), show_default=True)
@click.option("--processes", default=7, show_default=True, help="Fresh processes for each way.")
def main(networks: tuple[str, ...], threads: int, processes: int) -> None:
    """Measure NETWORKS, or a choice of them."""
    watch = Watch()
    costs = {}
    for network in networks or NETWORKS:
        click.echo(f"measuring {network}", err=True)
        costs[network] = measure(network, threads, processes)
    conditions, lines = watch.end(), body(costs, threads, processes)
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("deployment", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
