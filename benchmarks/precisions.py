"""Pages on networks in a narrow precision, compared with themselves in float32 and compared with peers: what these have
in common."""

from __future__ import annotations

import functools
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import click
from conditions import Watch, page, write_page
from measure import Latency, Plan
from models.networks import NAMES
from report import table, time_spelled
from worker import EngineError

from nnefc.support.diagnostics import CompileError

__all__ = ["publish", "times", "timing_options"]


class Timed(Protocol):
    """What was measured of one network: the times by number of threads, then engine."""

    @property
    def network(self) -> str: ...
    @property
    def latency(self) -> Mapping[int, Mapping[str, Latency]]: ...


Row = TypeVar("Row", bound=Timed)


def times(rows: Sequence[Row], engines: Sequence[str], ratios: Mapping[str, Callable[[Row, int], float]]) -> list[str]:
    """A table for each number of threads: medians by engine, and ratios with their geometric means."""
    lines = []
    for threads in rows[0].latency:
        cells = []
        for row in rows:
            found = row.latency[threads]
            medians = [time_spelled(found[name].median) if name in found else "" for name in engines]
            cells.append([row.network, *medians, *(f"{of(row, threads):.2f}" for of in ratios.values())])
        means = [f"{statistics.geometric_mean([of(row, threads) for row in rows]):.2f}" for of in ratios.values()]
        cells.append(["geometric mean", *[""] * len(engines), *means])
        lines += [f"## {threads} thread{'s' if threads > 1 else ''}", ""]
        lines += [*table(["network", *engines, *ratios], cells), ""]
    return lines


def timing_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a program that measures networks; `command` gets their names, the plan, and what else is given."""

    @click.argument("networks", nargs=-1, type=click.Choice(NAMES))
    @click.option("--threads", type=click.IntRange(min=1), multiple=True, help="Repeatable.  [default: 1 and 2]")
    @click.option("--repeats", default=4, show_default=True, help="Turns of each engine.")
    @click.option("--seconds", default=0.15, show_default=True, help="Length of a turn.")
    @functools.wraps(command)
    def planned(
        networks: tuple[str, ...], threads: tuple[int, ...], repeats: int, seconds: float, **others: object
    ) -> None:
        command(networks, Plan(threads=threads or Plan.threads, repeats=repeats, seconds=seconds), **others)

    return planned


def publish(
    name: str,
    title: str,
    networks: Sequence[str],
    measure: Callable[[str], Row],
    body: Callable[[list[Row]], list[str]],
    whole: bool,
) -> None:
    """Measure networks and print the page; where it is the `whole` one, write it into the results as `name`.md."""
    watch = Watch()
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for network in networks:
        try:
            rows.append(measure(network))
        except (CompileError, EngineError, subprocess.SubprocessError) as error:
            failed[network] = str(error).partition("\n")[0]
            continue
        for count, found in rows[-1].latency.items():
            spelled = ", ".join(f"{engine} {latency.median:.2f}" for engine, latency in found.items())
            click.echo(f"{network}, {count} threads: {spelled} ms", err=True)
    if not rows:
        raise click.ClickException(f"not measured: {failed}")
    conditions, lines = watch.end(), body(rows)
    lines += [f"- not measured: {network}: {reason}" for network, reason in failed.items()]
    click.echo(page(title, conditions, lines))
    if whole:
        write_page(name, title, conditions, lines)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}")
