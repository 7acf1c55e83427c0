"""nnefc in 16-bit floats compared with itself in float32 and its peers, in one run.

    python benchmarks/narrow.py [NETWORK ...] [--threads 1 --threads 2] [--repeats 4] [--seconds 0.15]

prints, for each network, the time of a run of nnefc in `fp32`, `bf16` and `fp16`, of onnxruntime in float32, and of
OpenVINO with the hints bf16 and f16; what nnefc gains over the fastest of these; how far each one is from float64; and
the size of nnefc's constants. Without names it measures all networks and writes results/PROCESSOR/narrow.md.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from exact import errors, kept_outputs
from measure import Latency, Plan, answers_of, compile_library, start, take_turns
from models.networks import NAMES, input_of, write_twins
from peers import NARROW, NARROW_PEERS
from precisions import publish, times, timing_options
from report import table

MODELS = Path(__file__).resolve().parents[1] / "build" / "models"
TITLE = "16-bit floats on a processor"
_PEERS = ("onnxruntime", *NARROW_PEERS)
_ENGINES = ("nnefc", *NARROW, *_PEERS)
_EXPLANATION = [
    "Medians of runs that the engines took in turns, in milliseconds. *over fp32*: nnefc's time in float32 over that",
    "in the precision. *over peers*: the fastest peer's time, onnxruntime in float32 or OpenVINO in a 16-bit "
    "float, over",
    "that of nnefc's faster 16-bit float. Errors: the root of the mean square of what differs from float64, "
    "over that of",
    "the results, the worst output. Networks have random weights; [how precisions work](../../../docs/precision.md).",
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

    def over_peers(self, threads: int) -> float:
        """How many times as fast nnefc's faster 16-bit float is as the fastest peer."""
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
    """Tables of times, and one of errors and sizes."""
    ratios = {f"{precision} over fp32": functools.partial(_over_wide, name) for name, precision in NARROW.items()}
    errors = [
        [
            row.network,
            *(f"{row.error[name]:.1e}" if name in row.error else "" for name in _ENGINES),
            *(f"{size:.1f}" for size in row.megabytes.values()),
        ]
        for row in rows
    ]
    lines = [*_EXPLANATION, *times(rows, _ENGINES, {**ratios, "over peers": Row.over_peers})]
    lines += ["## Errors, and megabytes of constants", ""]
    return [*lines, *table(["network", *_ENGINES, "MB fp32", "MB bf16", "MB fp16"], errors)]


def _over_wide(engine: str, row: Row, threads: int) -> float:
    """How many times as fast as float32."""
    return row.latency[threads]["nnefc"].median / row.latency[threads][engine].median


@click.command()
@timing_options
def main(networks: tuple[str, ...], plan: Plan) -> None:
    """Measure NETWORKS, or all of them."""
    publish("narrow", TITLE, networks or NAMES, lambda network: measure(network, plan), body, not networks)


if __name__ == "__main__":
    main()
