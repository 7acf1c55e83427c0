"""How exact networks are in each precision, how large their constants, and how often trained ones answer the same.

    python benchmarks/network_accuracy.py [NETWORK ...] [--pretrained FOLDER]

compiles the networks of the benchmarks in `fp32`, `bf16`, `fp16` and `int8` for this machine, and compares their
results with those in float64; integers are scaled by random inputs, as the networks' own values are random. Trained
networks, `PRETRAINED` of agreement.py, tell more of integers: with their folder, the page says how often each
precision
answers as float32 does. Without names it measures all networks and writes results/network_accuracy.md.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from agreement import PRETRAINED, agreement_table, digits_table
from conditions import Conditions, page, write_page
from exact import errors, kept_outputs
from integer_models import LEFT_OUT, MODELS, IntegerModels, prepared
from measure import compile_library
from models.networks import NAMES
from report import table

import nnefc

TITLE = "How exact networks are in each precision"
PRECISIONS = ("fp32", "bf16", "fp16", "int8")
_AT_A_TIME = 2  # networks; they are quantized and compiled in processes of their own
_EXPLANATION = [
    "Against float64: the largest error over the largest value, and the root of the mean square error over that of the",
    "values; of the worst output. Weights and inputs are random, so that deep networks in integers lose more than",
    "trained ones do (below). Nothing is timed, so that this page is in no processor's folder; which 16-bit floats are",
    "multiplied, and so how exact they are, depends on the processor all the same.",
    "[How precisions work](../../docs/precision.md); [how to quantize](../../docs/how-to/quantize.md).",
    "",
]
_MEGABYTES = [
    "",
    "## Constants",
    "",
    "Megabytes that a library holds, as it is compiled by default: filters in the forms of several algorithms, and in",
    "`bf16`, `fp16` and `int8` what stays in float32, count.",
    "",
]
_ANSWERS = [
    "",
    "## Answers of trained networks",
    "",
    "The share of the answers on other images that are those of float32, and the noise of the results: the root of",
    "the mean square of what differs, over that of the results. Integers by nnefc's quantizer and by onnxruntime's, of",
    "the same 16 images with the same settings.",
    "",
]
_DIGITS = ["", "Digits that the network of `examples/digits` reads, of 360 that it was not trained on:", ""]


@dataclass(frozen=True)
class Row:
    """What was found for one network, by precision: the largest and the mean error, and megabytes of constants."""

    network: str
    error: dict[str, tuple[float, float]]
    megabytes: dict[str, float]


def measure(network: str) -> Row:
    """Compile and run `network` in all precisions that it has a form in."""
    has_integers = network not in LEFT_OUT
    models = prepared(network) if has_integers else IntegerModels.of(network)
    with np.load(models.inputs) as arrays:
        values = dict(arrays)
    exact = kept_outputs(models.wide, values)
    error, megabytes = {}, {}
    for precision in PRECISIONS if has_integers else PRECISIONS[:-1]:
        is_wide = precision != "int8"
        library = models.wide.with_suffix(f".{precision}.so")
        facts = compile_library(
            models.wide if is_wide else models.own, library, {"precision": precision} if is_wide else {}
        )
        with nnefc.load(library) as model:
            found = list(model.run(values).values())
        pairs = [errors(own, wanted) for own, wanted in zip(found, exact, strict=True)]
        error[precision] = max(largest for largest, _ in pairs), max(mean for _, mean in pairs)
        megabytes[precision] = facts["constant_bytes"] / 1e6
    return Row(network, error, megabytes)


def body(rows: list[Row], pretrained: Path | None) -> list[str]:
    """Tables of errors, of sizes, and of what trained networks answer."""
    found = [
        [row.network, *("{:.1e} ({:.1e})".format(*row.error[p]) if p in row.error else "" for p in PRECISIONS)]
        for row in rows
    ]
    sizes = [
        [row.network, *(f"{row.megabytes[p]:.1f}" if p in row.megabytes else "" for p in PRECISIONS)] for row in rows
    ]
    lines = [*_EXPLANATION, *table(["network", *PRECISIONS], found), ""]
    lines += [f"- {network} has no form in integers: {reason}." for network, reason in LEFT_OUT.items()]
    lines += [*_MEGABYTES, *table(["network", *PRECISIONS], sizes)]
    if pretrained is not None:
        lines += [*_ANSWERS, *agreement_table(pretrained, MODELS)]
    return [*lines, *_DIGITS, *digits_table()]


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
@click.option(
    "--pretrained",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help=f"Where {', '.join(f'{name}.onnx' for name in PRETRAINED)} are.",
)
def main(networks: tuple[str, ...], pretrained: Path | None) -> None:
    """Compare NETWORKS, or all of them."""
    rows = []
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for row in pool.map(measure, networks or NAMES):
            rows.append(row)
            click.echo(f"{row.network}: {row.error}", err=True)
    conditions, lines = Conditions.now(), body(rows, pretrained)
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("network_accuracy", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
