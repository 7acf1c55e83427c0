"""Random graphs through the compiler: `python tests/fuzz/graphs [--minutes 60] [--seed 0] [--way NAME …]`.

Each seed makes one graph of ONNX's operators (:mod:`spaces`). Graphs of several seeds are compiled into one library, in
a way that is drawn for them (:mod:`ways`), run, and compared with float64 within bounds that follow from each graph
(:mod:`bounds`). What differs is made small and written to a folder (--found): the model as text, its inputs, and what
was found. Graphs run in a process of their own, so that one that crashes is a finding as well.

Any number of these may run at the same time with seeds of their own, some millions apart, and add to one record
(--record). `python tests/fuzz/record.py FILE` moves what is in another one to that of the documentation.
"""

from __future__ import annotations

import collections
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx

TESTS = Path(__file__).resolve().parents[2]
sys.path += [str(TESTS / part) for part in ("helpers", "targets", "fuzz", "cuda/emulator", "cuda/driver")]

from comparison import Finding, compare  # noqa: E402
from dynamic_dims import may_be_dynamic  # noqa: E402
from record import Record  # noqa: E402
from seeds import graph_of, libraries  # noqa: E402
from shrinking import shrunk  # noqa: E402
from spaces import SPACES  # noqa: E402
from states import kept_of  # noqa: E402
from ways import WAYS, Way  # noqa: E402

_BATCH = 1600
"""Graphs that a process runs: what compilers leave behind goes with it."""
_PATIENCE = 600.0
"""Seconds for the graphs of a library, and for making one small if something is found."""


def work(seeds: range, steps: int, ways: Sequence[Way], alone: bool, found: Path) -> None:
    """Run the graphs of some seeds, and print two lines of JSON for each library: what it is, what became of it."""
    warnings.simplefilter("ignore")
    os.environ["NNEFC_VERIFY"] = "1"
    gc.freeze()  # what was imported stays
    gc.disable()
    for part, way in libraries(seeds, ways, alone):
        about: dict[str, Any] = {"seeds": [part.start, part.stop], "way": way.name}
        print(json.dumps(about), flush=True)
        graphs = [graph_of(seed, steps, way) for seed in part]
        outcome = compare(graphs, way)
        until = time.monotonic() + _PATIENCE / 2
        written = [write(finding, found, until) for finding in outcome.findings]
        findings = list(itertools.compress(outcome.findings, written))
        errors = [f.graph for f, kept in zip(outcome.findings, written, strict=True) if not kept]
        about |= {
            "operators": collections.Counter(kind for graph in graphs for kind in graph.operators()),
            "agreed": outcome.agreed,
            "refused": outcome.refused,
            "doubtful": [graph.operators() for graph in (*outcome.doubtful, *errors)],
            "findings": [[f.graph.seed, f.what, f.peer] for f in findings],
            "validated": collections.Counter(outcome.validated),
            "counts": outcome.counts,
        }
        print(json.dumps(about), flush=True)
        gc.collect()


def write(finding: Finding, folder: Path, until: float) -> bool:
    """Make a graph small and write it with what was found; False if it is the reference that errs in the small one.

    Args:
        until: when nothing smaller is tried any more, in seconds of the monotonic clock.
    """
    way = finding.way
    small = shrunk(finding.graph, lambda one: time.monotonic() < until and bool(compare([one], way).findings))
    again = compare([small], way)
    if again.doubtful:
        return False
    if not again.findings:  # it is not found each time, or only with these sizes open
        small = finding.graph
    folder.mkdir(parents=True, exist_ok=True)
    name = folder / f"{small.seed}-{way.name.replace(' ', '-')}"
    lines = [
        f"{way.name}: {finding.what}",
        *(f"small: {f.what}; peer: {f.peer or 'not asked'}" for f in again.findings),
    ]
    lines += [f"states: {' '.join(f'{x}={y}' for x, y in kept_of(small).items())}"] if way.states else []
    opened = may_be_dynamic(small) if small.opened is None else small.opened
    model = small.model(opened if way.dynamic_sizes else ())
    name.with_suffix(".txt").write_text("\n".join([*lines, "", onnx.printer.to_text(model), ""]))
    onnx.save(model, name.with_suffix(".onnx"))
    np.savez(name.with_suffix(".npz"), **small.feeds())
    return True


def outcomes_of(seeds: range, ways: Sequence[str], alone: bool, options: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What processes say of these seeds; a library in which one ends, or that takes too long, is a finding."""
    while seeds:
        command = [sys.executable, str(Path(__file__).parent), *options, *(f"--way={name}" for name in ways)]
        command += ["--worker", f"{seeds.start}:{seeds.stop}", *["--alone"] * alone]
        last: dict[str, Any] | None = None
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            assert process.stdout is not None
            patience = threading.Timer(_PATIENCE, process.kill)
            patience.start()
            try:
                for line in process.stdout:
                    patience.cancel()
                    patience = threading.Timer(_PATIENCE, process.kill)
                    patience.start()
                    last = json.loads(line)
                    if "agreed" in last:
                        seeds = range(last["seeds"][1], seeds.stop)
                        yield last
            except GeneratorExit:
                process.kill()
                raise
            finally:
                patience.cancel()
            process.wait()
            errors.seek(0)
            text = errors.read()[-2000:]
        if not seeds:
            return
        if last is None or "agreed" in last:
            raise click.ClickException(f"a process ended between graphs, with {process.returncode}: {text}")
        first, end = last["seeds"]
        nothing = {"operators": {}, "agreed": 0, "refused": [], "doubtful": [], "validated": {}, "counts": {}}
        what = f"ended with {process.returncode}: {text[-600:]}"
        if end - first > 1:
            lines = list(outcomes_of(range(first, end), [last["way"]], True, options))
            if not any(line["findings"] for line in lines):  # the graphs count by themselves
                together = [first, f"together with those to {end - 1}: {what}", ""]
                lines.append(last | nothing | {"seeds": [end, end], "findings": [together]})
            yield from sorted(lines, key=lambda line: not line["findings"])  # who reads them may stop after any
        else:
            yield last | nothing | {"findings": [[first, what, ""]]}
        seeds = range(end, seeds.stop)


@click.command()
@click.option("--minutes", default=10.0, show_default=True)
@click.option("--seed", default=0, show_default=True, help="The first.")
@click.option("--steps", default=12, show_default=True, help="Nodes of a graph, at most.")
@click.option("--way", "ways", multiple=True, type=click.Choice(list(WAYS)), help="[default: all that can be run]")
@click.option("--alone", is_flag=True, help="A library for each graph.")
@click.option("--found", default="out/graphs", type=click.Path(path_type=Path), show_default=True)
@click.option("--record", type=click.Path(path_type=Path), help="A file of counts that this run is added to.")
@click.option("--worker", hidden=True)
def main(
    minutes: float,
    seed: int,
    steps: int,
    ways: tuple[str, ...],
    alone: bool,
    found: Path,
    record: Path | None,
    worker: str | None,
) -> None:
    """Run random graphs for some minutes."""
    for way in WAYS.values():
        if not ways and way.missing and not worker:
            click.echo(f"without {way.name}: it needs {way.missing}", err=True)
    ways = ways or tuple(name for name, way in WAYS.items() if not way.missing)
    if worker:
        first, _, end = worker.partition(":")
        work(range(int(first), int(end)), steps, [WAYS[name] for name in ways], alone, found)
        return
    started, record_ = time.monotonic(), Record()
    refusals: collections.Counter[str] = collections.Counter()
    doubtful: collections.Counter[str] = collections.Counter()
    options = ["--steps", str(steps), "--found", str(found)]

    def lines() -> Iterator[dict[str, Any]]:
        for first in range(seed, sys.maxsize, _BATCH):
            yield from outcomes_of(range(first, first + _BATCH), ways, alone, options)

    for line in lines():
        tried = line["seeds"][1] - line["seeds"][0]
        counts = {
            "graphs": tried,
            "runs": (tried - len(line["refused"]) - line["counts"].get("not run", 0)) * WAYS[line["way"]].runs
            + line["counts"].get("of other sizes", 0),
            "refused": len(line["refused"]),
            "doubtful": len(line["doubtful"]),
            "found": len(line["findings"]),
            **line["counts"],
        }
        added = Record({"graphs": {line["way"]: counts}, "nodes": line["operators"], "validated": line["validated"]})
        record_ += added
        if record is not None:
            added.add_to(record)
        refusals.update(f"{line['way']}: {reason}" for reason in line["refused"])
        doubtful.update(kind for kinds in line["doubtful"] for kind in kinds)
        for number, what, peer in line["findings"]:
            click.echo(f"seed {number}, {line['way']}, peer {peer or 'not asked'}: {what[:300]}")
        if time.monotonic() - started > 60 * minutes:
            break
    spent = time.monotonic() - started
    _say(record_, spent / 60)
    click.echo(f"in graphs where onnxruntime and nnefc agree against the reference: {dict(doubtful.most_common(8))}")
    for reason, count in refusals.most_common(25):
        click.echo(f"  refused {count} times: {reason[:200]}")
    raise SystemExit(bool(record_.total("graphs", "found")))


def _say(record: Record, minutes: float) -> None:
    nodes, graphs = record["nodes"], record.total("graphs", "graphs")
    findings = record.total("graphs", "found")
    click.echo(f"{graphs} graphs, {graphs / minutes:.0f} a minute, {findings} findings, {sum(nodes.values())} nodes")
    for way, counts in record["graphs"].items():
        click.echo(f"  {way}: {', '.join(f'{count} {what}' for what, count in counts.items() if count)}")
    if record["validated"]:
        click.echo(f"passes and steps of kernels validated: {sum(record['validated'].values())}, {record['validated']}")
    click.echo(f"never tried: {', '.join(sorted(SPACES.keys() - nodes.keys())) or 'none'}")


if __name__ == "__main__":
    main()
