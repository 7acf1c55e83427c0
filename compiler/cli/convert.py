"""`nnefc convert`: a model of any format to one of NNEF."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from nnefc.cli.options import given, model_options

__all__ = ["convert_model"]


@click.command("convert")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="What to write: a folder, model.nnef, or an archive of one, model.nnef.tgz. What is there is replaced when "
    "all is written.",
)
@click.option(
    "--registry",
    type=click.Choice(["tract_core"]),
    help="Write in tract's dialect, with the operators of this registry: for tract, and for what the standard lacks.",
)
@partial(model_options, registries=())  # the name is that of the dialect here
@click.option("-v", "--verbose", is_flag=True, help="Say what was written.")
def convert_model(model: Path, output: Path, registry: str | None, verbose: bool, **options: Any) -> None:
    """Write MODEL (NNEF, ONNX or PNNX) as a model of NNEF 1.0.

    The document is flat and has the standard's operations alone; the tensors are in files beside it. What NNEF cannot
    say is an error that names it.
    """
    from nnefc.cli.tvm_alone import import_tvm

    import_tvm()
    from nnefc.conversion import convert

    convert(model, output, registry=registry, **given(options))
    if verbose:
        click.echo(f"wrote {output}", err=True)
