"""Time against size: a network compiled within several budgets of memory for faster algorithms.

    python benchmarks/memory_budget.py [NETWORK ...] [--budget FACTOR ...]

prints, for each network and budget, the size of the constants over that of the model's, and the minimum processor time
of a run on one thread over that without such algorithms. Libraries of one network run in turns, so that what else the
machine does meets all of them. Without names it measures all networks of the benchmark and writes
results/PROCESSOR/memory_budget.md.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from conditions import Watch, page, write_page
from models.networks import NAMES, write_twins

import nnefc

MODELS = Path(__file__).resolve().parents[1] / "build" / "models"
BUDGETS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, math.inf)
TITLE = "Time against size"
_EXPLANATION = [
    "Columns are values of `--memory-budget`. In each field: the time of a run over that with a budget of 1, and the",
    "size of the constants over that with a budget of 1. The minimum processor time of several runs on one thread.",
    "",
]
_SECONDS = 1.0  # for each library
_MIN_ITERATIONS = 5


@dataclass(frozen=True)
class Point:
    """What one budget gives.

    Attributes:
        seconds: of processor time, for one run on one thread: the smallest of several.
        bytes: of the constants.
    """

    seconds: float
    bytes: int


def curve(model: Path, budgets: Sequence[float]) -> dict[float, Point]:
    """A network within each budget; libraries that would be equal are compiled and measured once."""
    artifacts = _artifacts(model, budgets)
    sizes = {budget: artifact.description.constant_bytes for budget, artifact in artifacts.items()}
    rng = np.random.default_rng(0)
    inputs = {i.name: rng.standard_normal(i.shape).astype(i.dtype) for i in artifacts[budgets[0]].inputs}
    with ExitStack() as stack:
        networks = {sizes[b]: stack.enter_context(artifacts[b].load(threads=1)) for b in reversed(budgets)}
        best = dict.fromkeys(networks, math.inf)
        spent, repeats = 0.0, 0
        while repeats < _MIN_ITERATIONS or spent < _SECONDS * len(networks):
            for size, network in networks.items():
                start = time.process_time()
                network.run(inputs)
                took = time.process_time() - start
                best[size] = min(best[size], took)
                spent += took
            repeats += 1
    return {budget: Point(best[sizes[budget]], sizes[budget]) for budget in budgets}


def _artifacts(model: Path, budgets: Sequence[float]) -> dict[float, nnefc.Artifact]:
    """A network within each of several budgets, in rising order. Where two budgets give the same, so do those between
    them: they cannot save more than the larger one, and not less than the smaller."""

    @functools.cache
    def compiled(budget: float) -> nnefc.Artifact:
        return nnefc.compile(model, random_weights=0, memory_budget=budget)

    def between(first: int, last: int) -> dict[float, nnefc.Artifact]:
        low, high = compiled(budgets[first]), compiled(budgets[last])
        if low.description.constant_bytes == high.description.constant_bytes:
            return dict.fromkeys(budgets[first : last + 1], low)
        if last - first == 1:
            return {budgets[first]: low, budgets[last]: high}
        middle = (first + last) // 2
        return between(first, middle) | between(middle, last)

    return between(0, len(budgets) - 1)


def body(curves: Mapping[str, Mapping[float, Point]]) -> list[str]:
    """A table of networks by budgets."""
    budgets = list(next(iter(curves.values())))
    lines = ["| network | " + " | ".join(f"{budget:g}" for budget in budgets) + " |"]
    lines.append("|---" + "|---:" * len(budgets) + "|")
    for name, points in curves.items():
        baseline = points[budgets[0]]
        cells = [f"{p.seconds / baseline.seconds:.2f}, {p.bytes / baseline.bytes:.2f} ×" for p in points.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*_EXPLANATION, *lines]


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
@click.option("--budget", "budgets", type=float, multiple=True, help="Repeatable.  [default: seven from 1 to inf]")
def main(networks: tuple[str, ...], budgets: tuple[float, ...]) -> None:
    """Measure NETWORKS, or all."""
    watch = Watch()
    wanted = sorted({1.0, *(budgets or BUDGETS)})
    curves = {}
    for name in networks or NAMES:
        curves[name] = curve(write_twins(MODELS, name).nnef, wanted)
        click.echo(f"{name}: {body({name: curves[name]})[-1]}", err=True)
    conditions, lines = watch.end(), body(curves)
    click.echo(page(TITLE, conditions, lines))
    if not networks and not budgets:
        write_page("memory_budget", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
