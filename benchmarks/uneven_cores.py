"""Two threads on processors that are not equally fast, nnefc compared with onnxruntime.

    python benchmarks/uneven_cores.py [NETWORK ...] [--quick]

runs each network on two threads: on two processors; while another program keeps one of the two busy; on one
processor, as `taskset` has it; and in a control group with the time of one processor and a half, where such a group can
be made. Without names it measures all networks and writes results/PROCESSOR/uneven_cores.md.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import click
import numpy as np
import onnx
from conditions import Watch, page, write_page
from measure import REFERENCE, Latency, Plan, answers_of, compile_library, difference, start, take_turns
from models.networks import input_of, write_twins
from report import table, time_spelled
from worker import Worker

MODELS = Path(__file__).resolve().parent.parent / "build" / "models"
TITLE = "Two threads on processors that are not equally fast"
NETWORKS = ("squeezenet", "mobilenet_v2", "resnet50", "bert_base")
MAX_DIFFERENT = 1e-3
"""Of an output's largest value: outputs that differ more from onnxruntime's are another answer."""

_GROUPS = Path("/sys/fs/cgroup")
_PERIOD = 100_000  # microseconds


@contextlib.contextmanager
def on(processors: Sequence[int]) -> Iterator[None]:
    """What is started meanwhile runs on these processors alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def busy(processor: int) -> Iterator[None]:
    """Another program that wants all time of a processor."""
    with on([processor]):
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


@contextlib.contextmanager
def quota(workers: Sequence[Worker], processors: float) -> Iterator[None]:
    """The workers, one after the other, may use the time of so many processors.

    Raises:
        OSError: no control group can be made here.
    """
    of_second_version = (_GROUPS / "cgroup.controllers").exists()
    group = (_GROUPS if of_second_version else _GROUPS / "cpu") / f"nnefc-{os.getpid()}"
    group.mkdir()
    try:
        time = round(processors * _PERIOD)
        if of_second_version:
            (group / "cpu.max").write_text(f"{time} {_PERIOD}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(time))
        for worker in workers:
            (group / "cgroup.procs").write_text(str(worker.process_id))
        yield
    finally:
        for worker in workers:
            (group.parent / "cgroup.procs").write_text(str(worker.process_id))
        group.rmdir()


Surroundings = Callable[[Sequence[Worker]], AbstractContextManager[None]]
CONDITIONS: Mapping[str, Surroundings] = {
    "two processors": lambda workers: contextlib.nullcontext(),
    "one of the two shared": lambda workers: busy(processors()[1]),
    "one processor": lambda workers: contextlib.nullcontext(),
    "time of one and a half": lambda workers: quota(workers, 1.5),
}


def processors() -> list[int]:
    """The two processors that all is measured on."""
    return sorted(os.sched_getaffinity(0))[:2]


def measure(network: str, plan: Plan) -> Iterator[tuple[str, Mapping[str, Latency]]]:
    """The times of each engine under each condition that can be had here.

    Raises:
        click.ClickException: an engine gives another answer.
    """
    twins = write_twins(MODELS, network)
    library, file = twins.onnx.with_suffix(".so"), twins.onnx.with_suffix(".npz")
    compile_library(twins.nnef, library)
    np.savez(file, **input_of(onnx.load(twins.onnx, load_external_data=False)))
    for condition, surroundings in CONDITIONS.items():
        with on(processors()[:1] if condition == "one processor" else processors()):
            workers = start({"nnefc": library, REFERENCE: twins.onnx}, file, 2)
        try:
            answers = answers_of(workers, MODELS)
            if difference(answers["nnefc"], answers[REFERENCE]) > MAX_DIFFERENT:
                raise click.ClickException(f"{network}: other results than onnxruntime's")
            with surroundings(workers):
                yield condition, take_turns(workers, plan)
        except OSError as error:
            click.echo(f"without {condition}: {error}", err=True)
        finally:
            for worker in workers:
                worker.close()


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NETWORKS))
@click.option("--quick", is_flag=True, help="Short turns; nothing is written.")
def main(networks: tuple[str, ...], quick: bool) -> None:
    """Measure NETWORKS, or all of them."""
    if len(processors()) < 2:
        raise click.ClickException("this needs two processors")
    plan = Plan(threads=(2,), repeats=2, seconds=0.2) if quick else Plan(threads=(2,), repeats=8, seconds=0.5)
    watch, rows = Watch(0.2 if quick else 5.0), []
    for network in networks or NETWORKS:
        for condition, found in measure(network, plan):
            own, other = found["nnefc"].median, found[REFERENCE].median
            rows.append([f"`{network}`", condition, time_spelled(own), time_spelled(other), f"{other / own:.2f}"])
            click.echo("  ".join(rows[-1]), err=True)
    body = [
        "Median milliseconds of a run on two threads, in turns. *Shared*: another program wants all time of one",
        "of the two processors. *One processor*: both threads have one. *Time of one and a half*: a control group's",
        "quota.",
        "",
        *table(["network", "condition", "nnefc", "onnxruntime", "ratio"], rows),
    ]
    if networks or quick:
        click.echo(page(TITLE, watch.end(), body))
    else:
        write_page("uneven_cores", TITLE, watch.end(), body)


if __name__ == "__main__":
    main()
