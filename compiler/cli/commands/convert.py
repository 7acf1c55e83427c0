"""`nnefc convert`: converts a model of any format to NNEF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nnefc.cli.grouped import Command, option
from nnefc.cli.options import compiler_options, given
from nnefc.driver.option_keywords import ReadKeywords

__all__ = ["convert_model"]


@click.command("convert", cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@option(
    "-o",
    "--output",
    group="Output",
    type=click.Path(path_type=Path),
    required=True,
    help="What to write: a folder, model.nnef, or an archive of one, model.nnef.tgz. An existing one is "
    "replaced when the new one is complete.",
)
@option(
    "--registry",
    group="Output",
    type=click.Choice(["tract_core"]),
    help="Write in tract's dialect, with the operators of this registry: for tract, and for what the standard lacks.",
)
@compiler_options(ReadKeywords.__annotations__, spellings={})  # here, --registry is a dialect
@option("-v", "--verbose", group="Debugging", is_flag=True, help="Say what was written.")
def convert_model(model: Path, output: Path, registry: str | None, verbose: bool, **options: Any) -> None:
    """Write MODEL (NNEF, ONNX, TFLite or PNNX) as a model of NNEF 1.0.

    The document is flat and has the standard's operations alone; the tensors are in files next to it. What NNEF cannot
    express is an error that names it.
    """
    from nnefc.support.minimal_tvm import import_tvm

    import_tvm()
    from nnefc.driver.conversion import convert

    convert(model, output, registry=registry, **given(options))
    if verbose:
        click.echo(f"wrote {output}", err=True)
