"""What it costs that results have the same bits on all processors (`--reproducible`).

    python benchmarks/reproducible.py [NETWORK ...] [--quick]

compiles each network as it is, with `--strict` and with `--reproducible`, and runs all three in turns on one thread.
The reproducible one is compiled for the oldest x86-64 too, whose results have to be equal to the bit. Without names it
takes all networks and writes results/PROCESSOR/reproducible.md.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from conditions import Watch, page, write_page
from levels import in_turns
from measure import answers_of, compile_library
from models.networks import NAMES, input_of, write_twins
from report import table, time_spelled
from worker import Worker

MODELS = Path(__file__).resolve().parent.parent / "build" / "models"
TITLE = "What reproducible results cost"
WAYS: dict[str, dict[str, object]] = {
    "default": {},
    "strict": {"strict": True},
    "reproducible": {"reproducible": True},
}
OLDEST = "oldest"
"""The name of what runs on every x86-64."""


@dataclass(frozen=True)
class Row:
    """A network: milliseconds of a run by way, and whether the oldest processors get the same bits."""

    network: str
    run: dict[str, float]
    equal: bool

    @property
    def ratio(self) -> float:
        return self.run["reproducible"] / self.run["default"]

    def cells(self) -> list[str]:
        """A line of the table."""
        times = [time_spelled(self.run[way]) for way in (*WAYS, OLDEST)]
        return [f"`{self.network}`", *times, f"{self.ratio:.2f}", "yes" if self.equal else "NO"]


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have the same bits; NaN has no bits that count."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    numbers = ~np.isnan(one)
    return np.array_equal(numbers, ~np.isnan(other)) and one[numbers].tobytes() == other[numbers].tobytes()


def measure(network: str, repeats: int, seconds: float) -> Row:
    """Compile and run `network` in all ways."""
    twins = write_twins(MODELS, network)
    file = twins.onnx.with_suffix(".npz")
    np.savez(file, **input_of(onnx.load(twins.onnx, load_external_data=False)))
    options = {**WAYS, OLDEST: {"reproducible": True, "target": "x86-64"}}
    workers: dict[str, Worker] = {}
    try:
        for name, own in options.items():
            library = twins.onnx.with_suffix(f".{name}.so")
            compile_library(twins.onnx, library, own)
            workers[name] = Worker("nnefc", library, file, 1)
        answers = [next(iter(answers_of([workers[name]], MODELS).values())) for name in ("reproducible", OLDEST)]
        times = in_turns(workers, repeats, seconds)
    finally:
        for worker in workers.values():
            worker.close()
    equal = all(same_bits(one, other) for one, other in zip(*answers, strict=True))
    return Row(network, times, equal)


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
@click.option("--quick", is_flag=True, help="Short turns; nothing is written.")
def main(networks: tuple[str, ...], quick: bool) -> None:
    """Measure NETWORKS, or all of them."""
    repeats, seconds = (2, 0.2) if quick else (5, 0.5)
    watch, rows = Watch(0.2 if quick else 5.0), []
    for network in networks or NAMES:
        rows.append(measure(network, repeats, seconds))
        click.echo("  ".join(rows[-1].cells()), err=True)
    head = ["network", "default, ms", "`--strict`", "`--reproducible`", "the same, x86-64", "ratio", "equal"]
    body = [
        "Median milliseconds of a run on one thread: as networks are compiled, with `--strict`, and with",
        "`--reproducible`, for this processor and for every x86-64, with SSE2 alone. The ratio is that of reproducible",
        "runs to the default; and whether both reproducible libraries give the same bits.",
        "",
        *table(head, [row.cells() for row in rows]),
        "",
        f"Geometric mean of the ratios: {statistics.geometric_mean(row.ratio for row in rows):.3f}.",
    ]
    if networks or quick:
        click.echo(page(TITLE, watch.end(), body))
    else:
        write_page("reproducible", TITLE, watch.end(), body)


if __name__ == "__main__":
    main()
