"""nnefc in half floats beside itself in float32 and its peers, in one run.

    python benchmarks/narrow.py [NETWORK ...] [--threads 1 --threads 2] [--rounds 4] [--seconds 0.15]

prints, for each network, the time of a run of nnefc in `fp32`, `bf16` and `fp16`, of onnxruntime in float32, and of
OpenVINO with the hints bf16 and f16; what nnefc gains over the fastest of these; how far each one is from float64; and
the size of nnefc's constants. Without names it measures all networks and writes benchmarks/results/narrow.md.
"""

from __future__ import annotations

import math
import subprocess
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from conditions import RESULTS, Watch, page, write_page
from exact import errors, kept_outputs
from measure import Latency, Plan, answers_of, compile_library, start, take_turns
from models.networks import NAMES, input_of, write_twins
from peers import NARROW, NARROW_PEERS
from worker import EngineError

MODELS = Path(__file__).resolve().parents[1] / "build" / "models"
TITLE = "Half floats on a processor"
_PEERS = ("onnxruntime", *NARROW_PEERS)
_ENGINES = ("nnefc", *NARROW, *_PEERS)
_EXPLANATION = [
    "Medians of runs that the engines took in turns, in milliseconds. *over fp32*: nnefc's time in float32 over that",
    "in the precision. *over peers*: the fastest peer's time, onnxruntime in float32 or OpenVINO in a half float, over",
    "that of nnefc's faster half float. Errors: the root of the mean square of what differs from float64, over that of",
    "the results, the worst output. Networks have random weights; [how precisions work](../../docs/precision.md).",
    "",
]


@dataclass(frozen=True)
class Row:
    """What was found for one network.

    Attributes:
        latency: by number of threads, then engine.
        error: by engine, of the worst output.
        megabytes: nnefc's constants, by engine.
    """

    network: str
    latency: dict[int, dict[str, Latency]]
    error: dict[str, float]
    megabytes: dict[str, float]

    def over_wide(self, threads: int, engine: str) -> float:
        """How many times as fast as float32."""
        return self.latency[threads]["nnefc"].median / self.latency[threads][engine].median

    def over_peers(self, threads: int) -> float:
        """How many times as fast nnefc's faster half float is as the fastest peer."""
        found = self.latency[threads]
        peers = min(found[name].median for name in _PEERS if name in found)
        return peers / min(found[name].median for name in NARROW)


def measure(network: str, plan: Plan) -> Row:
    """Compile and run `network` in all precisions."""
    twins = write_twins(MODELS, network)
    values = input_of(onnx.load(twins.onnx, load_external_data=False))
    inputs = twins.onnx.with_suffix(".npz")
    np.savez(inputs, **values)
    models: dict[str, Path] = {}
    megabytes = {}
    for name in ("nnefc", *NARROW):
        precision = NARROW.get(name, "fp32")
        models[name] = twins.onnx.with_suffix(f".{precision}.so")
        facts = compile_library(twins.nnef, models[name], {"precision": precision})
        megabytes[name] = facts["constant_bytes"] / 1e6
    models |= dict.fromkeys(_PEERS, twins.onnx)
    latency: dict[int, dict[str, Latency]] = {}
    error: dict[str, float] = {}
    for threads in plan.threads:
        workers = start(models, inputs, threads)
        try:
            if not error:
                exact = kept_outputs(twins.onnx, values)
                for name, found in answers_of(workers, MODELS).items():
                    error[name] = max(errors(array, wanted)[1] for array, wanted in zip(found, exact, strict=True))
            latency[threads] = take_turns(workers, plan)
        finally:
            for worker in workers:
                worker.close()
    return Row(network, latency, error, megabytes)


def body(rows: list[Row]) -> list[str]:
    """A table of times for each number of threads, and one of errors and sizes."""
    lines = list(_EXPLANATION)
    for threads in rows[0].latency:
        lines += [f"## {threads} thread{'s' if threads > 1 else ''}", ""]
        lines += [f"| network | {' | '.join(_ENGINES)} | bf16 over fp32 | fp16 over fp32 | over peers |"]
        lines += ["|---" + "|---:" * (len(_ENGINES) + 3) + "|"]
        for row in rows:
            found = row.latency[threads]
            cells = [f"{found[name].median:.2f}" if name in found else "" for name in _ENGINES]
            cells += [f"{row.over_wide(threads, name):.2f}" for name in NARROW] + [f"{row.over_peers(threads):.2f}"]
            lines.append(f"| {row.network} | {' | '.join(cells)} |")
        means = [_mean([row.over_wide(threads, name) for row in rows]) for name in NARROW]
        means.append(_mean([row.over_peers(threads) for row in rows]))
        lines += [f"| geometric mean |{' |' * len(_ENGINES)} {' | '.join(f'{mean:.2f}' for mean in means)} |", ""]
    lines += ["## Errors, and megabytes of constants", ""]
    lines += [f"| network | {' | '.join(_ENGINES)} | MB fp32 | MB bf16 | MB fp16 |"]
    lines += ["|---" + "|---:" * (len(_ENGINES) + 3) + "|"]
    for row in rows:
        cells = [f"{row.error[name]:.1e}" if name in row.error else "" for name in _ENGINES]
        cells += [f"{size:.1f}" for size in row.megabytes.values()]
        lines.append(f"| {row.network} | {' | '.join(cells)} |")
    return lines


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
@click.option("--threads", type=click.IntRange(min=1), multiple=True, help="Repeatable.  [default: 1 and 2]")
@click.option("--rounds", default=4, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.15, show_default=True, help="Length of a turn.")
def main(networks: tuple[str, ...], threads: tuple[int, ...], rounds: int, seconds: float) -> None:
    """Measure NETWORKS, or all of them."""
    watch = Watch()
    plan = Plan(threads=threads or Plan.threads, rounds=rounds, seconds=seconds)
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for network in networks or NAMES:
        try:
            rows.append(measure(network, plan))
        except (EngineError, subprocess.SubprocessError) as error:
            failed[network] = str(error).partition("\n")[0]
            continue
        for count, found in rows[-1].latency.items():
            times = ", ".join(f"{name} {latency.median:.2f}" for name, latency in found.items())
            click.echo(f"{network}, {count} threads: {times} ms", err=True)
    if not rows:
        raise click.ClickException(f"not measured: {failed}")
    conditions, lines = watch.end(), body(rows)
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page(RESULTS / "narrow.md", TITLE, conditions, lines)
    if failed:
        raise click.ClickException(f"not measured: {failed}")


if __name__ == "__main__":
    main()
