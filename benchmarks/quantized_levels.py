"""Networks in integers of 8 bits on processors without AVX-512: nnefc compared with OpenVINO limited to a level.

    python benchmarks/quantized_levels.py [NETWORK ...] [--repeats 6] [--seconds 0.15]

compiles each network for each of `LEVELS` that this machine can run, and runs it in turns with OpenVINO, whose oneDNN
is kept to the same instructions by `ONEDNN_MAX_CPU_ISA`, and with onnxruntime, which cannot be kept to any. Weights
have 8 bits, from nnefc's quantizer, and 7, from onnxruntime's, which advises these for such processors. Without names
it measures `NETWORKS` on one thread and writes results/PROCESSOR/quantized_levels.md.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from integer_models import NETWORKS as ALL
from integer_models import IntegerModels, prepared
from measure import Latency, Plan, answers_of, compile_library, difference, reference_answers, start, take_turns
from peers import INT7, INT8, INT8_PEERS
from precisions import publish
from report import table, time_spelled
from worker import Worker

from nnefc.targets.machine.cpu.parsing import parse_target

TITLE = "Integers of 8 bits without AVX-512"
NETWORKS = (
    "densenet121",
    "inception_v1",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "mobilenet_v1",
    "mobilenet_v2",
    "efficientnet_b0",
    "yolov4_tiny",
    "bert_base",
)
_ONNXRUNTIME, _OPENVINO = INT8_PEERS
_ISA = "ONEDNN_MAX_CPU_ISA"
_AT_A_TIME = 2  # networks that are quantized and compiled
_EXPLANATION = [
    "Milliseconds of a run on one thread: the minimum of all runs, which the engines took in turns. *Ratio*: the time",
    "of OpenVINO over that of nnefc; above 1 nnefc is faster. OpenVINO runs the faster file, of nnefc's quantizer",
    "(weights of 8 bits) or of onnxruntime's (7 bits); its oneDNN uses no instructions above the level (kernels that",
    "OpenVINO generates itself, such as means over axes, ask the processor and may use AVX-512). onnxruntime cannot be",
    "limited: its column is for the whole processor.",
    "",
    "*Error*: the largest difference from exact sums, over the largest value, with weights of 8 bits. OpenVINO adds up",
    "two products of bytes in 16 bits where there is no VNNI, which saturates; nnefc's sums are exact.",
    "",
]


@dataclass(frozen=True)
class Level:
    """A level of x86-64.

    Attributes:
        name: that tables show.
        target: of nnefc.
        isa: oneDNN's name of it.
        needs: the feature, as LLVM names it, that this machine has to have.
    """

    name: str
    target: str
    isa: str
    needs: str

    def runs_here(self) -> bool:
        return self.needs in parse_target("llvm").features


_VNNI = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -mattr=+avxvnni"
LEVELS = (
    Level("x86-64-v3", "x86-64-v3", "AVX2", "avx2"),
    Level("x86-64-v3 with AVX-VNNI", _VNNI, "AVX2_VNNI", "avxvnni"),
)


@dataclass(frozen=True)
class Row:
    """What was found for a network on a level: times by number of threads, then engine, and errors by engine."""

    network: str
    level: Level
    latency: dict[int, dict[str, Latency]]
    error: dict[str, float]

    def ratio(self, engine: str) -> float | None:
        """How many times as fast as OpenVINO; None where it refuses the network."""
        found = self.latency[1]
        return found[_OPENVINO].minimum / found[engine].minimum if _OPENVINO in found else None


def compiled(network: str) -> tuple[IntegerModels, dict[tuple[Level, str], Path]]:
    """Quantize `network`, and compile both of its files for each level: the libraries by level and engine."""
    models, libraries = prepared(network, reduced=True), {}
    for level in filter(Level.runs_here, LEVELS):
        for engine, model in ((INT8, models.own), (INT7, models.theirs)):
            library = libraries[level, engine] = model.with_suffix(f".{level.isa}.so")
            compile_library(model, library, {"target": level.target})
    return models, libraries


def measure(
    network: str, level: Level, made: tuple[IntegerModels, Mapping[tuple[Level, str], Path]], plan: Plan
) -> Row:
    """Run `network` in all engines."""
    models, libraries = made
    own = {engine: libraries[level, engine] for engine in (INT8, INT7)}
    os.environ[_ISA] = level.isa
    try:
        workers = start({**own, **dict.fromkeys(INT8_PEERS, models.both)}, models.inputs, 1)
        errors = errors_of({INT8: own[INT8], "openvino": models.own}, models)
    finally:
        del os.environ[_ISA]
    try:
        return Row(network, level, {1: take_turns(workers, plan)}, errors)
    finally:
        for worker in workers:
            worker.close()


def errors_of(engines: Mapping[str, Path], models: IntegerModels) -> dict[str, float]:
    """The error of each engine on the network with weights of 8 bits."""
    with np.load(models.inputs) as values:
        exact = reference_answers(models.own, dict(values))
    workers = [Worker(engine, file, models.inputs, 1) for engine, file in engines.items()]
    try:
        return {engine: difference(found, exact) for engine, found in answers_of(workers, models.own.parent).items()}
    finally:
        for worker in workers:
            worker.close()


def body(rows: list[Row]) -> list[str]:
    """A table for each level, and which levels this machine does not have."""
    engines = (INT8, INT7, _OPENVINO, _ONNXRUNTIME)
    lines = list(_EXPLANATION)
    for level in LEVELS:
        own = [row for row in rows if row.level == level]
        if not own:
            lines += [f"`{level.name}` is not measured: this processor has no {level.needs}.", ""]
            continue
        cells = []
        for row in own:
            found = row.latency[1]
            times = [time_spelled(found[name].minimum) if name in found else "" for name in engines]
            ratios = ["" if (ratio := row.ratio(name)) is None else f"{ratio:.2f}" for name in (INT8, INT7)]
            errors = [f"{row.error[name]:.1e}" if name in row.error else "" for name in (INT8, "openvino")]
            cells.append([row.network, *times, *ratios, *errors])
        of_both = [[ratio for row in own if (ratio := row.ratio(name)) is not None] for name in (INT8, INT7)]
        means = [f"{statistics.geometric_mean(ratios):.2f}" if ratios else "" for ratios in of_both]
        cells.append(["geometric mean", *[""] * len(engines), *means, "", ""])
        ratios = ["ratio, 8 bits", "ratio, 7 bits"]
        lines += [f"## `{level.name}`", ""]
        lines += [*table(["network", *engines, *ratios, "error of nnefc", "error of openvino"], cells), ""]
    return lines


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(ALL))
@click.option("--repeats", default=6, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.15, show_default=True, help="Length of a turn.")
def main(networks: tuple[str, ...], repeats: int, seconds: float) -> None:
    """Measure NETWORKS, or ten of them."""
    plan = Plan(threads=(1,), repeats=repeats, seconds=seconds)
    names = networks or NETWORKS
    cases = {f"{name} on {level.name}": (name, level) for level in LEVELS if level.runs_here() for name in names}
    with ThreadPoolExecutor(_AT_A_TIME) as pool:  # of processes: all is made before anything is measured
        made = {name: pool.submit(compiled, name) for name in names}

    def measured(case: str) -> Row:
        name, level = cases[case]
        return measure(name, level, made[name].result(), plan)

    publish("quantized_levels", TITLE, list(cases), measured, body, not networks)


if __name__ == "__main__":
    main()
