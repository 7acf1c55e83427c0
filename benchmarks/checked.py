"""What it costs to check every index and divisor (`--checked`): compile times, run times, and how much is proved.

    python benchmarks/checked.py [NETWORK ...] [--quick]

compiles each network with and without `--checked` and runs both in turns on one thread; their results have to be equal
to the bit. Without names it takes all networks and writes results/PROCESSOR/checked.md.
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
TITLE = "What checks of every index cost"


@dataclass(frozen=True)
class Row:
    """A network without and with checks: seconds of compilation, milliseconds of a run, accesses."""

    network: str
    compiled: tuple[float, float]
    run: tuple[float, float]
    proved: int
    checked: int
    equal: bool

    def cells(self) -> list[str]:
        """A line of the table."""
        accesses = self.proved + self.checked
        return [
            *(f"`{self.network}`", f"{accesses:,}", f"{self.proved / max(1, accesses):.2%}"),
            *(f"{seconds:.1f}" for seconds in self.compiled),
            *(time_spelled(milliseconds) for milliseconds in self.run),
            *(f"{self.run[1] / self.run[0]:.2f}", "yes" if self.equal else "NO"),
        ]


def measure(network: str, repeats: int, seconds: float) -> Row:
    """Compile and run `network` both ways."""
    twins = write_twins(MODELS, network)
    file = twins.onnx.with_suffix(".npz")
    np.savez(file, **input_of(onnx.load(twins.onnx, load_external_data=False)))
    libraries = {"unchecked": twins.onnx.with_suffix(".so"), "checked": twins.onnx.with_suffix(".checked.so")}
    facts = {
        name: compile_library(twins.nnef, path, {"checked": True} if name == "checked" else {})
        for name, path in libraries.items()
    }
    workers: dict[str, Worker] = {}
    try:
        for name, path in libraries.items():
            workers[name] = Worker("nnefc", path, file, 1)
        (unchecked,) = answers_of([workers["unchecked"]], MODELS).values()
        (own,) = answers_of([workers["checked"]], MODELS).values()
        times = in_turns(workers, repeats, seconds)
    finally:
        for worker in workers.values():
            worker.close()
    return Row(
        network,
        (facts["unchecked"]["seconds"], facts["checked"]["seconds"]),
        (times["unchecked"], times["checked"]),
        int(facts["checked"]["proved"]),
        int(facts["checked"]["checked"]),
        all(np.array_equal(one, other, equal_nan=True) for one, other in zip(unchecked, own, strict=True)),
    )


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
    ratio = statistics.geometric_mean(row.run[1] / row.run[0] for row in rows)
    head = ["network", "accesses", "proved", "compile, s", "checked", "run, ms", "checked", "ratio", "equal"]
    body = [
        "Accesses to tensors and divisions in the code of a network, and of how many of them it is proved at compile",
        "time that they cannot go wrong; the others are checked in each run. Seconds of compilation and link, and the",
        "median milliseconds of a run on one thread, without and with `--checked`; whether the results of both are",
        "equal to the bit.",
        "",
        *table(head, [row.cells() for row in rows]),
        "",
        f"Geometric mean of the ratios of run times: {ratio:.3f}.",
    ]
    if networks or quick:
        click.echo(page(TITLE, watch.end(), body))
    else:
        write_page("checked", TITLE, watch.end(), body)


if __name__ == "__main__":
    main()
