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
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import onnx
from comparison import WAYS, Finding, Way, compare
from shrinking import shrunk
from spaces import SPACES
from walk import Graph, Walk

_BATCH = 20
_PATIENCE = 300.0


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


def lines_of(first: int, count: int, steps: int, ways: tuple[str, ...], found: Path) -> Iterator[dict[str, object]]:
    """What the process of a batch says, and a finding for the graph in which it ended."""
    command = [sys.executable, str(Path(__file__).parent), "--batch", f"{first}:{count}", "--steps", str(steps)]
    command += [f"--way={name}" for name in ways] + ["--found", str(found)]
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        seed, done = first, first
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            found_line = json.loads(line)
            seed = found_line["seed"]
            if "operators" in found_line:
                done = seed + 1
                yield found_line
            if time.monotonic() - started > _PATIENCE:
                process.kill()
        errors = process.stderr.read()[-600:]
    if done < first + count and time.monotonic() - started <= _PATIENCE:
        yield {
            "seed": seed,
            "operators": [],
            "agreed": [],
            "refused": {},
            "doubtful": [],
            "findings": [["", f"crash: {errors}", ""]],
        }
        yield from lines_of(seed + 1, first + count - seed - 1, steps, ways, found) if seed + 1 < first + count else ()


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
    while time.monotonic() - started < 60 * minutes:
        for line in lines_of(seed, _BATCH, steps, tuple(way.name for way in chosen), found):
            graphs += 1
            agreed.update(line["agreed"])  # type: ignore[arg-type]
            operators.update(line["operators"])  # type: ignore[arg-type]
            doubtful.update(line["operators"] if line["doubtful"] else ())  # type: ignore[arg-type]
            refusals.update(f"{way}: {reason}" for way, reason in line["refused"].items())  # type: ignore[attr-defined]
            for way, what, peer in line["findings"]:  # type: ignore[attr-defined]
                findings += 1
                seen = line["seed"]
                click.echo(f"seed {seen}, {way}, peer {peer or 'refuses'}: {what[:300]}")
        seed += _BATCH
    click.echo(f"{graphs} graphs, {findings} findings, {len(operators)} operators, {sum(operators.values())} nodes")
    click.echo(f"agreed: {dict(agreed)}")
    click.echo(f"never tried: {', '.join(sorted(SPACES.keys() - operators.keys())) or 'none'}")
    click.echo(f"in graphs where onnxruntime and nnefc agree against the reference: {dict(doubtful.most_common(8))}")
    for reason, count in refusals.most_common(25):
        click.echo(f"  refused {count} times: {reason[:200]}")
    raise SystemExit(bool(findings))


if __name__ == "__main__":
    main()
