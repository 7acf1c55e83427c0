"""Attention as exporters, converters and optimizers spell it: of dynamic sizes, in ranges, and of known sizes.

    python benchmarks/attention_spellings.py [SPELLING ...] [--quick]

compiles each model of `models/attention_spellings.py` without any range, with ranges, and for the sizes that it is
measured at, and runs the three libraries compared with onnxruntime on one thread. Without names it measures all and
writes results/PROCESSOR/attention_spellings.md.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np
import onnx
from conditions import Watch, page, write_page
from measure import REFERENCE, Latency, Plan, answers_of, compile_library, difference, start, take_turns
from models.attention_spellings import RANGES, SIZES, SPELLINGS
from peers import LIMITED, STATIC
from report import table, time_spelled
from worker import EngineError

FOLDER = Path(__file__).resolve().parent.parent / "build" / "attention_spellings"
TITLE = "Spellings of attention"
MAX_DIFFERENT = 1e-4
"""Of an output's largest value: outputs that differ more from onnxruntime's are another answer."""


def measure(name: str, plan: Plan) -> dict[str, Latency]:
    """The times of the libraries and of onnxruntime for one spelling.

    Raises:
        EngineError: nnefc refuses the model, or an output is not onnxruntime's.
    """
    spelling = SPELLINGS[name]
    FOLDER.mkdir(parents=True, exist_ok=True)
    model = FOLDER / f"{name}.onnx"
    onnx.save(spelling.model(), model)
    own = spelling.names()
    options: Mapping[str, Mapping[str, object]] = {
        "nnefc": {},
        LIMITED: {"shape": {dimension: RANGES[dimension] for dimension in own}},
        STATIC: {"shape": {dimension: SIZES[dimension] for dimension in own}},
    }
    engines = {REFERENCE: model}
    for number, (engine, given) in enumerate(options.items()):
        engines[engine] = model.with_suffix(f".{number}.so")
        compile_library(model, engines[engine], given)
    values = model.with_suffix(".npz")
    np.savez(values, **spelling.values(SIZES))
    workers = start(engines, values, 1)
    try:
        answers = answers_of(workers, FOLDER)
        for engine, found in answers.items():
            if difference(found, answers[REFERENCE]) > MAX_DIFFERENT:
                raise EngineError(f"other results of {engine}")
        return take_turns(workers, plan)
    finally:
        for worker in workers:
            worker.close()


@click.command()
@click.argument("spellings", nargs=-1, type=click.Choice(list(SPELLINGS)))
@click.option("--repeats", default=6, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.1, show_default=True, help="Length of a turn.")
@click.option("--quick", is_flag=True, help="Short turns; nothing is written.")
def main(spellings: tuple[str, ...], repeats: int, seconds: float, quick: bool) -> None:
    """Measure SPELLINGS, or all of them."""
    plan = Plan(threads=(1,), repeats=2 if quick else repeats, seconds=0.03 if quick else seconds)
    watch = Watch()
    found: dict[str, dict[str, Latency]] = {}
    failed: dict[str, str] = {}
    for name in spellings or SPELLINGS:
        try:
            found[name] = measure(name, plan)
            click.echo(" ".join(_cells(name, found[name])), err=True)
        except (EngineError, subprocess.SubprocessError) as error:
            click.echo(f"{name} failed: {error}", err=True)
            failed[name] = str(error).partition("\n")[0]
    conditions, lines = watch.end(), body(found, plan, failed)
    click.echo(page(TITLE, conditions, lines))
    if not spellings and not quick:
        write_page("attention_spellings", TITLE, conditions, lines)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}")


def body(found: Mapping[str, Mapping[str, Latency]], plan: Plan, failed: Mapping[str, str]) -> list[str]:
    """The lines of the page."""
    sizes = ", ".join(f"{name} {size}" for name, size in SIZES.items())
    ratios = [_ratio(latency, "nnefc") for latency in found.values()]
    mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
    return [
        f"One attention of four heads of 32 numbers, on one thread, with {sizes}. *Open*: a library compiled without"
        " any range. *Ranges*: with ranges. *Static*: for these sizes. onnxruntime has the model of dynamic sizes."
        f" Each in a process of its own; warmed up, then in turns, {plan.repeats} of at least {plan.seconds} s."
        " Milliseconds: shortest run. *Ahead*: onnxruntime's time over the library's; below 1 onnxruntime is faster.",
        "",
        f"Open libraries are ahead by {mean} (geometric mean); {sum(ratio < 1 for ratio in ratios)} of {len(ratios)}"
        " are below 1.",
        "",
        *table(
            ["spelling", "open", "ranges", "static", REFERENCE, "ahead: open", "ranges", "static"],
            [
                *(_cells(name, latency) for name, latency in found.items()),
                *([name, f"failed: {reason}"] for name, reason in failed.items()),
            ],
        ),
    ]


def _ratio(latency: Mapping[str, Latency], engine: str) -> float:
    return latency[REFERENCE].minimum / latency[engine].minimum


def _cells(name: str, latency: Mapping[str, Latency]) -> Sequence[str]:
    own = ("nnefc", LIMITED, STATIC)
    times = [time_spelled(latency[engine].minimum) for engine in (*own, REFERENCE)]
    return [name, *times, *(f"{_ratio(latency, engine):.2f}" for engine in own)]


if __name__ == "__main__":
    sys.exit(main())
