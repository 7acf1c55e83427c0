"""nnefc compared with onnxruntime, OpenVINO and tract, in one run.

    python benchmarks/run.py [NETWORK ... | --all] [--threads 1 --threads 2] [--output NAME]

prints the tables; with all networks, or with --output, also writes them into results/PROCESSOR/.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
from conditions import MAX_BUSY, Watch, page
from measure import Measurement, Plan, measure
from models.networks import NAMES
from report import TITLE, markdown, write_report
from worker import EngineError

HERE = Path(__file__).resolve().parent
MODELS = HERE.parent / "build" / "models"


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
@click.option("--all", "everything", is_flag=True, help="All networks.  [default without NETWORKS]")
@click.option("--threads", type=click.IntRange(min=1), multiple=True, help="Repeatable.  [default: 1 and 2]")
@click.option("--repeats", default=Plan.repeats, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=Plan.seconds, show_default=True, help="Length of a turn.")
@click.option("--output", metavar="NAME", help="Write results/NAME.md, .csv and .json.  [default with all: cpu]")
def main(
    networks: tuple[str, ...],
    everything: bool,
    threads: tuple[int, ...],
    repeats: int,
    seconds: float,
    output: str | None,
) -> None:
    """Measure NETWORKS, or all of them."""
    if everything and networks:
        raise click.UsageError("--all measures every network: name none, or leave --all out")
    processors = len(os.sched_getaffinity(0))
    counts = threads or tuple(count for count in Plan.threads if count <= processors)
    if max(counts) > processors:
        raise click.UsageError(f"--threads {max(counts)}: this process may use {processors} processors")
    published = not networks or output is not None
    watch = Watch()
    if watch.before > MAX_BUSY:
        text = f"other programs keep {watch.before:.2f} processors busy: times say little"
        if published:
            raise click.ClickException(text)
        click.echo(text, err=True)
    plan = Plan(threads=counts, repeats=repeats, seconds=seconds)
    measurements: list[Measurement] = []
    failed: dict[str, str] = {}
    for network in networks or NAMES:
        click.echo(f"measuring {network}", err=True)
        try:
            measurements.append(measure(network, MODELS, plan))
        except (EngineError, subprocess.SubprocessError) as error:
            click.echo(f"  failed: {error}", err=True)
            failed[network] = str(error).partition("\n")[0]
            continue
        for count in counts:
            medians = ", ".join(
                f"{name} {latency.median:.2f}" for name, latency in measurements[-1].latency[count].items()
            )
            click.echo(f"  {count} thread{'s' if count > 1 else ''}: {medians} ms", err=True)
    if measurements:
        conditions = watch.end()
        click.echo(page(TITLE, conditions, markdown(measurements, plan, failed)))
        if published:
            write_report(output or "cpu", measurements, plan, conditions, failed)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    sys.exit(main())
