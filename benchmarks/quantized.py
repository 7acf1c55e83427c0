"""Networks in integers of 8 bits beside themselves in float32, and onnxruntime on the same files, in one run.

    python benchmarks/quantized.py [NETWORK ...] [--threads 1] [--rounds 4] [--seconds 0.15] [--pretrained FOLDER]

quantizes each network to ONNX with `nnefc quantize` on random inputs, and prints the time of a run of nnefc and of
onnxruntime in both forms, the megabytes of nnefc's constants, how far integers are from floats, and how often the
largest result is the same one. Without names it measures `NETWORKS` and writes results/PROCESSOR/quantized.md. With a
folder of pretrained networks (`PRETRAINED` of agreement.py), it adds how often these answer the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from agreement import PRETRAINED, agreement_table
from measure import Latency, Plan, compile_library, start, take_turns
from models.networks import input_of, write_twins
from peers import QUANTIZED
from precisions import publish, times, timing_options
from report import table

import nnefc

MODELS = Path(__file__).resolve().parents[1] / "build" / "models"
TITLE = "Integers of 8 bits"
NETWORKS = ("squeezenet", "mobilenet_v1", "mobilenet_v2", "shufflenet", "resnet50", "yolov4_tiny")
_ENGINES = ("nnefc", "onnxruntime", *QUANTIZED)
_RUNS = 4  # to quantize by
_TESTS = 8
_EXPLANATION = [
    "Medians of runs that the engines took in turns, in milliseconds. *over float32*: nnefc's time in float32 over",
    "that in integers. *over onnxruntime*: its faster form's time over that of nnefc's faster form. *noise*: the root",
    "of the mean square of what differs from float32, over that of the results. *same largest*: of other inputs.",
    "Networks have random weights, and so have inputs: deep ones lose more than trained ones do.",
    "[How](../../../docs/how-to/quantize.md).",
    "",
]
_ANSWERS = [
    "Networks with their trained values, quantized by nnefc and by onnxruntime from the same pictures with the same",
    "settings: the share of the answers on other pictures that are those of float32, and the noise of the results.",
    "",
]
_PRETRAINED = f"Where {', '.join(f'{name}.onnx' for name in PRETRAINED)} are."


@dataclass(frozen=True)
class Row:
    """What was found for one network.

    Attributes:
        latency: by number of threads, then engine.
        megabytes: nnefc's constants, in float32 and in integers.
        noise: of all results, as a share of their size.
        same: how often the largest result is the same one.
    """

    network: str
    latency: dict[int, dict[str, Latency]]
    megabytes: tuple[float, float]
    noise: float
    same: float

    def over_wide(self, threads: int) -> float:
        """How many times as fast as float32."""
        found = self.latency[threads]
        return found["nnefc"].median / found["nnefc int8"].median

    def over_peer(self, threads: int) -> float:
        """How many times as fast as onnxruntime, each in its faster form."""
        found = self.latency[threads]
        own, peer = (min(found[name].median for name in found if name.startswith(e)) for e in ("nnefc", "onnxruntime"))
        return peer / own


def measure(network: str, plan: Plan) -> Row:
    """Quantize, compile and run `network` in both forms."""
    twins = write_twins(MODELS, network)
    values = input_of(onnx.load(twins.onnx, load_external_data=False))
    inputs, narrow = twins.onnx.with_suffix(".npz"), twins.onnx.with_suffix(".int8.onnx")
    np.savez(inputs, **values)
    others = [_random(values, seed) for seed in range(_RUNS + _TESTS)]
    calibration = {name: np.stack([value, *(each[name] for each in others[:_RUNS])]) for name, value in values.items()}
    nnefc.quantize(twins.onnx, narrow, calibrate=calibration)
    models = {"nnefc": twins.onnx.with_suffix(".fp32.so"), "nnefc int8": twins.onnx.with_suffix(".int8.so")}
    wide_facts = compile_library(twins.onnx, models["nnefc"])
    facts = compile_library(narrow, models["nnefc int8"])
    noise, same = _compared(models["nnefc"], models["nnefc int8"], others[_RUNS:])
    models |= {"onnxruntime": twins.onnx, "onnxruntime int8": narrow}
    latency = {}
    for threads in plan.threads:
        workers = start(models, inputs, threads)
        try:
            latency[threads] = take_turns(workers, plan)
        finally:
            for worker in workers:
                worker.close()
    return Row(network, latency, (wide_facts["constant_bytes"] / 1e6, facts["constant_bytes"] / 1e6), noise, same)


def _random(values: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Other values of floats, the same of what is none."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(value.shape).astype(value.dtype) if value.dtype.kind == "f" else value
        for name, value in values.items()
    }


def _compared(wide: Path, narrow: Path, tests: Sequence[dict[str, np.ndarray]]) -> tuple[float, float]:
    """Noise, and how often the largest result is the same, of the last dimension of the first output."""
    noise, size, same = 0.0, 0.0, []
    with nnefc.load(wide) as exact, nnefc.load(narrow) as rounded:
        for values in tests:
            pairs = list(zip(exact.run(values).values(), rounded.run(values).values(), strict=True))
            noise += sum(float(np.square(one.astype(np.float64) - other).sum()) for one, other in pairs)
            size += sum(float(np.square(one.astype(np.float64)).sum()) for one, _ in pairs)
            same.append(float(np.mean(pairs[0][0].argmax(-1) == pairs[0][1].argmax(-1))))
    return math.sqrt(noise / size), float(np.mean(same))


def body(rows: list[Row], pretrained: Path | None) -> list[str]:
    """Tables of times, of errors and sizes, and of what pretrained networks answer."""
    ratios = {"over float32": Row.over_wide, "over onnxruntime": Row.over_peer}
    errors = [
        [row.network, f"{100 * row.noise:.2f} %", f"{100 * row.same:.0f} %", *(f"{size:.1f}" for size in row.megabytes)]
        for row in rows
    ]
    lines = [*_EXPLANATION, *times(rows, _ENGINES, ratios), "## Errors, and megabytes of constants", ""]
    lines += table(["network", "noise", "same largest", "MB float32", "MB integers"], errors)
    if pretrained is not None:
        lines += ["", "## Answers of pretrained networks", "", *_ANSWERS, *agreement_table(pretrained, MODELS)]
    return lines


@click.command()
@click.option("--pretrained", type=click.Path(path_type=Path, exists=True, file_okay=False), help=_PRETRAINED)
@timing_options
def main(networks: tuple[str, ...], plan: Plan, pretrained: Path | None) -> None:
    """Measure NETWORKS, or the usual ones."""
    publish(
        "quantized",
        TITLE,
        networks or NETWORKS,
        lambda network: measure(network, plan),
        lambda rows: body(rows, pretrained),
        not networks,
    )


if __name__ == "__main__":
    main()
