"""`nnefc quantize`: a model of any format to one of integers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from nnefc.cli.options import given, method_option, model_options

__all__ = ["quantize_model"]


@click.command("quantize")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="What to write: model.onnx with QuantizeLinear and DequantizeLinear, or a model of NNEF with a graph.quant: a "
    "folder, model.nnef, or an archive of one, model.nnef.tgz.",
)
@click.option(
    "--calibrate",
    type=click.Path(path_type=Path),
    metavar="NPZ",
    required=True,
    help="Typical values of the inputs, by name, several along a dimension more or along the first one.",
)
@method_option("How")
@click.option(
    "--per-channel/--per-tensor",
    default=None,
    help="One scale for each output channel of the weights, or one for all.  [default: per-channel]",
)
@click.option("--exclude", multiple=True, metavar="NAME", help="A layer that stays in floats (repeatable).")
@click.option(
    "--keep-wide",
    metavar="first,last",
    callback=lambda _context, _option, value: None if value is None else tuple(filter(None, value.split(","))),
    help="Layers at the ends that stay in floats.",
)
@partial(model_options, registries=())
def quantize_model(model: Path, output: Path, calibrate: Path, **options: Any) -> None:
    """Write MODEL (NNEF, ONNX or PNNX) with layers in integers of 8 bits, by what is seen of it on data.

    Prints what each layer loses, the signal to the noise of its result. Those that lose most are better left in floats,
    with --exclude.
    """
    from nnefc.cli.tvm_alone import import_tvm

    import_tvm()
    from nnefc.quantization import quantize

    click.echo(quantize(model, output, calibrate=calibrate, **given(options)))
