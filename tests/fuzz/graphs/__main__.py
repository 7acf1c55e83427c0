"""Random graphs through the compiler: `python tests/fuzz/graphs [--minutes 60] [--seed 0] [--way NAME …]`.

Each seed makes one graph of ONNX's operators (:mod:`spaces`), which is compiled in two ways (:mod:`comparison`), run,
and compared with float64 within bounds that follow from the graph (:mod:`bounds`). What differs is made small and
written to a folder (--found): the model as text, its inputs, and what was found. Graphs run in processes of their own,
so that one that crashes is a finding as well.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from comparison import WAYS, Finding, Way, compare
from shrinking import shrunk
from spaces import SPACES
from walk import Graph, Walk

_BATCH = 20
_PATIENCE = 600.0
"""Seconds for a graph, and for making it small if something is found."""


def graph_of(seed: int, steps: int) -> Graph:
    """The graph of a seed."""
    walk = Walk(seed)
    walk.take(SPACES, 1 + seed % steps)
    return walk.graph()


def run_batch(first: int, count: int, steps: int, ways: list[Way], found: Path) -> None:
    """Run the graphs of some seeds, and print one line of JSON for each."""
    warnings.simplefilter("ignore")
    for seed in range(first, first + count):
        print(json.dumps({"seed": seed}), flush=True)
        graph = graph_of(seed, steps)
        outcome = compare(graph, [ways[seed % len(ways)], ways[(seed // len(ways)) % len(ways)]][: len(ways)])
        findings = [finding for finding in outcome.findings if write(graph, finding, found)]
        print(
            json.dumps(
                {
                    "seed": seed,
                    "operators": graph.operators(),
                    "agreed": outcome.agreed,
                    "refused": outcome.refused,
                    "doubtful": [*outcome.doubtful, *(f.way for f in outcome.findings if f not in findings)],
                    "findings": [[f.way, f.what, f.peer] for f in findings],
                    "validated": outcome.validated,
                }
            ),
            flush=True,
        )


def write(graph: Graph, finding: Finding, folder: Path) -> bool:
    """Make a graph small and write it with what was found; False if it is the reference that errs in the small one."""
    way = WAYS[finding.way]
    small = shrunk(graph, lambda candidate: bool(compare(candidate, [way]).findings))
    again = compare(small, [way])
    if again.doubtful or len(small.outputs) > 1:  # no output shows a difference alone: the reference errs in one
        return False
    folder.mkdir(parents=True, exist_ok=True)
    name = folder / f"{graph.seed}-{way.name.replace(' ', '-')}"
    lines = [f"{finding.way}: {finding.what}", *(f"small: {f.what}; peer: {f.peer or 'none'}" for f in again.findings)]
    model = small.model(way.open_sizes)
    name.with_suffix(".txt").write_text("\n".join([*lines, "", onnx.printer.to_text(model), ""]))
    onnx.save(model, name.with_suffix(".onnx"))
    np.savez(name.with_suffix(".npz"), **small.feeds())
    return True


def lines_of(first: int, count: int, steps: int, ways: tuple[str, ...], found: Path) -> Iterator[dict[str, Any]]:
    """What the processes of a batch say; a graph in which one ends, or is not done in time, is a finding."""
    options = ["--steps", str(steps), *(f"--way={name}" for name in ways), "--found", str(found)]
    last = first + count
    while first < last:
        command = [sys.executable, str(Path(__file__).parent), "--batch", f"{first}:{last - first}", *options]
        seed = first
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            assert process.stdout is not None
            patience = threading.Timer(_PATIENCE, process.kill)
            patience.start()
            for line in process.stdout:
                patience.cancel()
                patience = threading.Timer(_PATIENCE, process.kill)
                patience.start()
                said = json.loads(line)
                seed = said["seed"]
                if "operators" in said:
                    first = seed + 1
                    yield said
            patience.cancel()
            process.wait()
            errors.seek(0)
            text = errors.read()[-600:]
        if first < last:
            what = f"ended with {process.returncode}: {text}"
            nothing = {"operators": [], "agreed": [], "refused": {}, "doubtful": [], "validated": []}
            yield {"seed": seed, **nothing, "findings": [["", what, ""]]}
            first = seed + 1


@click.command()
@click.option("--minutes", default=10.0, show_default=True)
@click.option("--seed", default=0, show_default=True, help="The first.")
@click.option("--steps", default=12, show_default=True, help="Nodes of a graph, at most.")
@click.option("--way", "ways", multiple=True, type=click.Choice(list(WAYS)), help="[default: all]")
@click.option("--found", default="out/graphs", type=click.Path(path_type=Path), show_default=True)
@click.option("--batch", hidden=True)
def main(minutes: float, seed: int, steps: int, ways: tuple[str, ...], found: Path, batch: str | None) -> None:
    """Run random graphs for some minutes."""
    chosen = [WAYS[name] for name in ways or WAYS]
    if batch:
        first, _, count = batch.partition(":")
        run_batch(int(first), int(count), steps, chosen, found)
        return
    started, graphs, findings = time.monotonic(), 0, 0
    agreed: collections.Counter[str] = collections.Counter()
    operators: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()
    doubtful: collections.Counter[str] = collections.Counter()
    validated: collections.Counter[str] = collections.Counter()
    while time.monotonic() - started < 60 * minutes:
        for line in lines_of(seed, _BATCH, steps, tuple(way.name for way in chosen), found):
            graphs += 1
            agreed.update(line["agreed"])
            operators.update(line["operators"])
            validated.update(line["validated"])
            doubtful.update(line["operators"] if line["doubtful"] else ())
            refusals.update(f"{way}: {reason}" for way, reason in line["refused"].items())
            for way, what, peer in line["findings"]:
                findings += 1
                seen = line["seed"]
                click.echo(f"seed {seen}, {way}, peer {peer or 'refuses'}: {what[:300]}")
        seed += _BATCH
    click.echo(f"{graphs} graphs, {findings} findings, {len(operators)} operators, {sum(operators.values())} nodes")
    click.echo(f"agreed: {dict(agreed)}")
    if validated:
        click.echo(f"passes and steps of kernels validated: {validated.total()}, {dict(validated.most_common())}")
    click.echo(f"never tried: {', '.join(sorted(SPACES.keys() - operators.keys())) or 'none'}")
    click.echo(f"in graphs where onnxruntime and nnefc agree against the reference: {dict(doubtful.most_common(8))}")
    for reason, count in refusals.most_common(25):
        click.echo(f"  refused {count} times: {reason[:200]}")
    raise SystemExit(bool(findings))


if __name__ == "__main__":
    main()
