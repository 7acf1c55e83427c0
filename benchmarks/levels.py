"""Libraries with code for several levels of x86-64, each level compared with a library for it alone: sizes and times.

    python benchmarks/levels.py [NETWORK ...] [--quick]

compiles each network with `--target x86-64 --multi`, and for each of its levels that this machine can run by itself,
and runs both in turns on one thread. Without names it takes all networks and writes results/PROCESSOR/levels.md.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from conditions import Watch, page, write_page
from measure import compile_library
from models.networks import input_of, write_twins
from report import table, time_spelled
from worker import Worker

import nnefc

MODELS = Path(__file__).resolve().parent.parent / "build" / "models"
TITLE = "One library for several levels of x86-64"
NETWORKS = ("squeezenet", "mobilenet_v2", "resnet50", "bert_base")
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
_LEVEL = "NNEFC_LEVEL"


@dataclass(frozen=True)
class LevelTimes:
    """A level's library, and the level in that of all: milliseconds, and bytes without and with the constants."""

    name: str
    own: float
    shared: float
    own_code: float
    own_bytes: int


@contextlib.contextmanager
def on_level(name: str) -> Iterator[None]:
    """What is started meanwhile runs the code of this level."""
    os.environ[_LEVEL] = name
    try:
        yield
    finally:
        del os.environ[_LEVEL]


def runs_here(library: Path, level: str) -> bool:
    """Whether this machine has the level's instructions."""
    with on_level(level), nnefc.load(library, threads=1) as model:
        return model.target == level


def in_turns(workers: Mapping[str, Worker], repeats: int, seconds: float) -> dict[str, float]:
    """The median milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(repeats):
        for name, worker in workers.items():
            times[name] += worker.time(seconds, 1)
    return {name: 1e3 * statistics.median(found) for name, found in times.items()}


def measure(network: str, repeats: int, seconds: float) -> tuple[Path, float, list[LevelTimes]]:
    """The library of all levels, the bytes of it that are no constants, and its levels."""
    twins = write_twins(MODELS, network)
    library, file = MODELS / f"{network}_levels.so", twins.onnx.with_suffix(".npz")
    facts = compile_library(twins.nnef, library, {"target": "x86-64", "multi": True})
    code = library.stat().st_size - facts["constant_bytes"]
    np.savez(file, **input_of(onnx.load(twins.onnx, load_external_data=False)))
    levels = []
    for level in LEVELS:
        if not runs_here(library, level):
            continue
        own = MODELS / f"{network}_{level}.so"
        alone = compile_library(twins.nnef, own, {"target": level})
        workers: dict[str, Worker] = {}
        try:
            with on_level(level):
                workers["shared"] = Worker("nnefc", library, file, 1)
            workers["own"] = Worker("nnefc", own, file, 1)
            found = in_turns(workers, repeats, seconds)
        finally:
            for worker in workers.values():
                worker.close()
        size = own.stat().st_size
        levels.append(LevelTimes(level, found["own"], found["shared"], size - alone["constant_bytes"], size))
    return library, code, levels


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NETWORKS))
@click.option("--quick", is_flag=True, help="Short turns; nothing is written.")
def main(networks: tuple[str, ...], quick: bool) -> None:
    """Measure NETWORKS, or all of them."""
    repeats, seconds = (2, 0.2) if quick else (8, 0.5)
    watch, sizes, times = Watch(0.2 if quick else 5.0), [], []
    for network in networks or NETWORKS:
        library, code, levels = measure(network, repeats, seconds)
        name, whole = f"`{network}`", library.stat().st_size
        last = levels[-1]
        sizes.append(
            [
                *(name, f"{code / 1024:.0f}", f"{last.own_code / 1024:.0f}", f"{code / last.own_code:.2f}"),
                *(f"{whole / 2**20:.1f}", f"{last.own_bytes / 2**20:.1f}", f"{whole / last.own_bytes:.2f}"),
            ]
        )
        for level in levels:
            both = time_spelled(level.shared), time_spelled(level.own)
            times.append([name, f"`{level.name}`", *both, f"{level.shared / level.own:.3f}"])
            click.echo("  ".join(times[-1]), err=True)
    body = [
        "Median milliseconds of a run on one thread, in turns: the level in the library of all levels, and the",
        "library for the level alone.",
        "",
        *table(["network", "level", "all levels", "alone", "ratio"], times),
        "",
        "Sizes compared with the library for the last of these levels. *Code* is all but the constants.",
        "",
        *table(["network", "code, KiB", "alone", "ratio", "file, MiB", "alone", "ratio"], sizes),
    ]
    if networks or quick:
        click.echo(page(TITLE, watch.end(), body))
    else:
        write_page("levels", TITLE, watch.end(), body)


if __name__ == "__main__":
    main()
