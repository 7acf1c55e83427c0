"""Networks in integers of 8 bits compared with themselves in float32 and compared with peers in integers, in one run.

    python benchmarks/quantized.py [NETWORK ...] [--threads 1 --threads 2] [--repeats 4] [--seconds 0.15]

quantizes each network to ONNX with `nnefc quantize` and with onnxruntime's quantizer, on the same random inputs, and
prints the time of a run of nnefc in both forms, of onnxruntime in both, and of OpenVINO in integers. Each peer runs the
file of the quantizer that is faster in it. Without names it measures `NETWORKS` and writes
results/PROCESSOR/quantized.md.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
from integer_models import LEFT_OUT, NETWORKS, IntegerModels, prepared
from measure import Latency, Plan, compile_library, start, take_turns
from peers import INT8, INT8_PEERS
from precisions import publish, times, timing_options
from worker import EngineError, Worker

TITLE = "Integers of 8 bits"
_PEERS = ("onnxruntime", *INT8_PEERS)
_ENGINES = ("nnefc", INT8, *_PEERS)
_AT_A_TIME = 2  # networks that are quantized and compiled
_EXPLANATION = [
    "Medians of runs that the engines took in turns, in milliseconds. *over float32*: nnefc's time in float32 over",
    "that in integers. *over peers*: the time of the fastest peer, onnxruntime in float32 or either one in integers,",
    "over that of nnefc in integers. Each peer in integers runs the file that is faster in it, of nnefc's quantizer or",
    "of onnxruntime's, and OpenVINO what is left of floats in float32 or bfloat16, whichever is faster; nnefc runs",
    "that of its own. What a peer fails with is below. [How exact they are](../network_accuracy.md);",
    "[how to quantize](../../../docs/how-to/quantize.md).",
    "",
]


@dataclass(frozen=True)
class Row:
    """What was found for one network: times by number of threads, then engine; what peers fail with."""

    network: str
    latency: dict[int, dict[str, Latency]]
    failures: list[str]

    def over_wide(self, threads: int) -> float:
        """How many times as fast as float32."""
        found = self.latency[threads]
        return found["nnefc"].median / found[INT8].median

    def over_peers(self, threads: int) -> float:
        """How many times as fast as the fastest peer."""
        found = self.latency[threads]
        return min(found[name].median for name in _PEERS if name in found) / found[INT8].median


def compiled(network: str) -> tuple[IntegerModels, dict[str, Path]]:
    """Quantize `network`, and compile both of its forms: the libraries by engine."""
    models = prepared(network)
    libraries = {"nnefc": models.wide.with_suffix(".fp32.so"), INT8: models.wide.with_suffix(".int8.so")}
    for model, library in zip((models.wide, models.own), libraries.values(), strict=True):
        compile_library(model, library)
    return models, libraries


def measure(network: str, made: tuple[IntegerModels, dict[str, Path]], plan: Plan) -> Row:
    """Run `network` in all engines."""
    models, libraries = made
    files = {**libraries, "onnxruntime": models.wide, **dict.fromkeys(INT8_PEERS, models.both)}
    latency: dict[int, dict[str, Latency]] = {}
    failures: list[str] = []
    for threads in plan.threads:
        workers = start(files, models.inputs, threads)
        started = {worker.peer for worker in workers}
        for peer in [name for name in INT8_PEERS if files.get(name) == models.both and name not in started]:
            file, failure = without_failing(peer, network, models)
            failures.append(failure)
            del files[peer]
            if file is not None:
                files[peer] = file
                workers += start({peer: file}, models.inputs, threads)
        try:
            latency[threads] = take_turns(workers, plan)
        finally:
            for worker in workers:
                worker.close()
    return Row(network, latency, failures)


def without_failing(peer: str, network: str, models: IntegerModels) -> tuple[Path | None, str]:
    """The list of the one file that a peer runs, if there is one, and a sentence on what it fails with."""
    works, runs, reasons = None, "", []
    for quantizer, file in (("nnefc", models.own), ("onnxruntime", models.theirs)):
        listed = models.both.with_suffix(f".{quantizer}.json")
        listed.write_text(json.dumps([file.name]))
        try:
            worker = Worker(peer, listed, models.inputs, 1)
        except EngineError as error:
            reasons.append(f"from {quantizer}'s, {error}")
        else:
            worker.close()
            works, runs = listed, f"version {worker.version} runs the file from {quantizer}'s quantizer"
    what = " and ".join(reasons) or "both failed at once"
    return works, f"{network}: {peer} {runs or 'runs neither file'}; {what}."


def body(rows: list[Row]) -> list[str]:
    """Tables of times, what peers did not run, and which networks have no form in integers."""
    left_out = [f"- {network} has no form in integers: {reason}." for network, reason in LEFT_OUT.items()]
    return [
        *_EXPLANATION,
        *times(rows, _ENGINES, {"over float32": Row.over_wide, "over peers": Row.over_peers}),
        *(f"- {failure}" for row in rows for failure in row.failures),
        *left_out,
    ]


@click.command()
@timing_options
def main(networks: tuple[str, ...], plan: Plan) -> None:
    """Measure NETWORKS, or all that have a form in integers."""
    names = networks or NETWORKS
    with ThreadPoolExecutor(_AT_A_TIME) as pool:  # of processes: all is made before anything is measured
        made = {name: pool.submit(compiled, name) for name in names}
    publish("quantized", TITLE, names, lambda name: measure(name, made[name].result(), plan), body, not networks)


if __name__ == "__main__":
    main()
