"""`nnefc view`: a model as a graph in a page, as its file says it and after passes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.options import code_options, given, model_options
from nnefc.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.pages.graph import Graph

__all__ = ["view_model", "write_page"]


@click.command("view")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.html",
    help="The page to write. It needs no network and no other file.",
)
@click.option(
    "--after",
    multiple=True,
    metavar="PASS",
    help="Show the network after this pass too, by the name that --dump of nnefc compile gives it; compiled is the "
    "last one, whose boxes are kernels (repeatable).",
)
@code_options
@model_options
def view_model(model: Path, output: Path, after: tuple[str, ...], **options: Any) -> None:
    """Write a page that shows MODEL (NNEF, ONNX or PNNX) as a graph, to be opened in a browser."""
    check_page(output)
    from nnefc.cli.tvm_alone import import_tvm

    import_tvm()
    from nnefc.views import graphs_of

    keywords = given(options)
    if keywords.pop("calibrate", None) is not None or keywords.get("precision") in ("auto", "int8"):
        raise click.UsageError("networks in integers, and --precision auto, need runs: nnefc compile has these options")
    write_page(output, model.name, graphs_of(model, after, **keywords))


def check_page(output: Path) -> None:
    """Say before the work that a page could not be written."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise CompileError(f"{output} is not the name of a page", hint=f"such as {output.with_suffix('.html')}")
    if not output.parent.is_dir():
        raise CompileError(f"cannot write {output}: there is no folder {output.parent}", hint="make it first")


def write_page(output: Path, title: str, graphs: list[Graph], report: str = "") -> None:
    """Write a page whole."""
    from nnefc.pages.page import page

    output.write_text(page(title, graphs, report), encoding="utf-8")
