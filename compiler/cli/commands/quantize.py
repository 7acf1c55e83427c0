"""`nnefc quantize`: quantizes a model of any format to 8-bit integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nnefc.cli.grouped import Command, option
from nnefc.cli.options import compiler_options, given
from nnefc.driver.option_keywords import ReadKeywords

__all__ = ["quantize_model"]


@click.command("quantize", cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@option(
    "-o",
    "--output",
    group="Output",
    type=click.Path(path_type=Path),
    required=True,
    help="What to write: model.onnx with QuantizeLinear and DequantizeLinear, or a model of NNEF with a graph.quant: a "
    "folder, model.nnef, or an archive of one, model.nnef.tgz.",
)
@option(
    "--calibrate",
    group="Precision",
    type=click.Path(path_type=Path),
    metavar="NPZ",
    required=True,
    help="Typical values of the inputs, by name. Several samples are stacked along an additional first dimension, or "
    "along the first one.",
)
@compiler_options(["method"])
@option(
    "--per-channel/--per-tensor",
    group="Precision",
    default=None,
    help="One scale for each output channel of the weights, or one for all.  [default: per-channel]",
)
@option(
    "--exclude", group="Precision", multiple=True, metavar="NAME", help="A layer that stays in float32 (repeatable)."
)
@compiler_options(["keep_wide", *ReadKeywords.__annotations__], spellings={})
def quantize_model(model: Path, output: Path, calibrate: Path, **options: Any) -> None:
    """Write MODEL (NNEF, ONNX, TFLite or PNNX) with layers in 8-bit integers, quantized by its values on sample data.

    Prints the signal-to-noise ratio of each layer's result. Layers with the lowest ratio are better left in float32,
    with --exclude.
    """
    from nnefc.support.minimal_tvm import import_tvm

    import_tvm()
    from nnefc.driver.quantize_model import quantize

    click.echo(quantize(model, output, calibrate=calibrate, **given(options)))
