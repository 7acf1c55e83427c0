"""What it costs to keep subnormal numbers: pretrained networks, run with both settings of the loader.

    python benchmarks/subnormals.py FOLDER [NETWORK ...] [--quick]

compiles FOLDER/NETWORK.onnx for those named, or for all of `real_networks.NETWORKS`, and runs each library in two
processes, one that treats subnormal numbers as zero and one that keeps them, in turns on one thread: with random
inputs, and with zeros for all float inputs of several elements (a silent microphone or a black image, after which
states decay). Without names it writes results/PROCESSOR/subnormals.md.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from conditions import Watch, page, write_page
from levels import in_turns
from measure import compile_library
from peers import SUBNORMALS
from real_networks import LIBRARIES, NETWORKS, values_of
from report import table, time_spelled
from worker import EngineError, Worker

TITLE = "What keeping subnormal numbers costs"
_ENGINES = ("nnefc", SUBNORMALS)


@dataclass(frozen=True)
class Row:
    """Median milliseconds of a run that flushes subnormal numbers and of one that keeps them, for both inputs."""

    network: str
    random: Mapping[str, float]
    zeros: Mapping[str, float]

    def cells(self) -> list[str]:
        """A line of the table."""
        cells = [f"`{self.network}`"]
        for times in (self.random, self.zeros):
            flushed, kept = (times[engine] for engine in _ENGINES)
            cells += [time_spelled(flushed), time_spelled(kept), f"{kept / flushed:.3f}"]
        return cells


def measure(network: str, model: Path, repeats: int, seconds: float) -> Row:
    """Compile `model` for the shapes of its inputs and run it with both settings, with both inputs.

    Raises:
        EngineError: the model is not there, or nnefc refuses it.
    """
    if not model.exists():
        raise EngineError(f"no file {model.name}")
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    library = LIBRARIES / f"{network}.so"
    values = values_of(network, model)
    numbers = {name: value.item() for name, value in values.items() if value.ndim == 0}  # choose a part of the network
    shapes = {name: value.shape for name, value in values.items() if name not in numbers}
    compile_library(model, library, {"shape": shapes, "values": numbers} if numbers else {"shape": shapes})
    zeros = {name: _silent(value) for name, value in values.items()}
    times = [_times_of(library, given, repeats, seconds) for given in (values, zeros)]
    return Row(network, *times)


def _silent(value: np.ndarray) -> np.ndarray:
    """Zeros for an array of floats; single numbers, as of a speed, and integers as they are."""
    return np.zeros_like(value) if value.dtype.kind == "f" and value.size > 1 else value


def _times_of(library: Path, values: Mapping[str, np.ndarray], repeats: int, seconds: float) -> dict[str, float]:
    """The median milliseconds of each setting."""
    file = library.with_suffix(".npz")
    np.savez(file, **values)
    workers: dict[str, Worker] = {}
    try:
        for engine in _ENGINES:
            workers[engine] = Worker(engine, library, file, 1)
        return in_turns(workers, repeats, seconds)
    finally:
        for worker in workers.values():
            worker.close()


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("networks", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option("--quick", is_flag=True, help="Short turns; nothing is written.")
def main(folder: Path, networks: tuple[str, ...], quick: bool) -> None:
    """Measure NETWORKS of FOLDER, or all."""
    repeats, seconds = (2, 0.1) if quick else (7, 0.2)
    watch, rows = Watch(0.2 if quick else 5.0), []
    failed: dict[str, str] = {}
    for network in networks or NETWORKS:
        try:
            rows.append(measure(network, folder / f"{network}.onnx", repeats, seconds))
        except (EngineError, subprocess.SubprocessError) as error:
            failed[network] = str(error).partition("\n")[0]
            click.echo(f"{network} failed: {failed[network]}", err=True)
            continue
        click.echo("  ".join(rows[-1].cells()), err=True)
    conditions, lines = watch.end(), body(rows, failed)
    click.echo(page(TITLE, conditions, lines))
    if not networks and not quick:
        write_page("subnormals", TITLE, conditions, lines)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}")


def body(rows: list[Row], failed: Mapping[str, str]) -> list[str]:
    """The lines of the page."""
    ratios = {
        name: [times[SUBNORMALS] / times["nnefc"] for times in found]
        for name, found in {"random": [r.random for r in rows], "zeros": [r.zeros for r in rows]}.items()
    }
    head = ["network", "random: flushed", "kept", "kept/flushed", "zeros: flushed", "kept", "kept/flushed"]
    lines = [
        "Median milliseconds of a run on one thread, with subnormal numbers as zero (the default) and kept",
        "(`load(…, flush_subnormals=False)`): with random inputs of the shapes in",
        "[`real_networks.py`](../../real_networks.py), and with zeros for all float inputs. Each setting runs in a",
        "process of its own, in turns.",
        "",
        *table(head, [row.cells() for row in rows]),
        "",
    ]
    for name, found in ratios.items():
        if found:
            slower = sum(ratio > 1.02 for ratio in found)
            lines.append(
                f"With {name} inputs keeping them takes {statistics.geometric_mean(found):.3f} of the time (geometric"
                f" mean), {max(found):.3f} at most; more than 2 % longer in {slower} of {len(found)} networks.",
            )
    return [*lines, *(f"\nNot measured: `{network}`: {reason}" for network, reason in failed.items())]


if __name__ == "__main__":
    main()
