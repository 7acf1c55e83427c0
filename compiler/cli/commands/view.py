"""`nnefc view`: writes a page with the graph of a model, as read from its file and after passes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.commands.inspect import is_library
from nnefc.cli.grouped import Command, option
from nnefc.cli.options import compiler_options, given
from nnefc.driver.option_keywords import LowerKeywords, compile_options
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.inspect.html.graph import BoxGraph
    from nnefc.targets.description.library import LibraryDescription

__all__ = ["check_page", "described_library", "description_of", "view_model"]


@click.command("view", cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@option(
    "-o",
    "--output",
    group="Output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.html",
    help="The page to write. It needs no network and no other file.",
)
@option(
    "--after",
    group="Output",
    multiple=True,
    metavar="PASS",
    help="Show the network after this pass too, by the name that --dump of nnefc compile gives it; compiled is the "
    "last one, whose boxes are kernels (repeatable).",
)
@compiler_options(["target", *LowerKeywords.__annotations__])
def view_model(model: Path, output: Path, after: tuple[str, ...], **options: Any) -> None:
    """Write a page that shows MODEL (NNEF, ONNX, TFLite or PNNX) as a graph, to be opened in a browser.

    Of a library that was compiled with --profile its kernels are shown.
    """
    check_page(output)
    if is_library(model):
        if after or given(options):
            raise click.UsageError("these options say how to read and compile a model, and a library is compiled")
        from nnefc.inspect.library_graph import graph_of_library

        write_page(output, model.name, [graph_of_library(described_library(model))])
        return
    from nnefc.support.minimal_tvm import import_tvm

    import_tvm()
    from nnefc.inspect.views import graphs_of

    keywords = given(options)
    if keywords.get("precision") in ("auto", "int8"):
        raise click.UsageError("networks in integers, and --precision auto, need runs: nnefc compile has these options")
    chosen = compile_options("nnefc view", keywords, keywords.pop("target", "llvm"), LowerKeywords)
    write_page(output, model.name, graphs_of(model, after, chosen))


def described_library(library: Path, target: str | None = None, content: Path | None = None) -> LibraryDescription:
    """Return the description of a library with its kernels, of the ISA level for `target` if it has several levels.

    Args:
        library: the file, for messages.
        target: of the wanted ISA level; None: the main one.
        content: the file to read, a copy; None: `library`.

    Raises:
        CompileError: the library does not describe its kernels.
    """
    found = description_of(library, target, content)
    if not found.kernels:
        raise CompileError(
            f"the library {library} does not describe its kernels", hint="compile the model with --profile"
        )
    return found


def description_of(library: Path, target: str | None = None, content: Path | None = None) -> LibraryDescription:
    """Return the description of a library; arguments as in :func:`described_library`.

    Raises:
        CompileError: the library was not compiled by nnefc.
    """
    from nnefc.targets.description.library_file import read_metadata

    metadata = read_metadata(content or library)
    if metadata is None:
        raise CompileError(f"{library} was not compiled by nnefc: it has no description inside")
    return next((level for level in metadata.description.levels if level.target == target), metadata.description)


def check_page(output: Path) -> None:
    """Check, before any work, that a page can be written.

    Raises:
        CompileError: it cannot.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise CompileError(f"{output} is not the name of a page", hint=f"such as {output.with_suffix('.html')}")
    if not output.parent.is_dir():
        raise CompileError(f"cannot write {output}: there is no folder {output.parent}", hint="make it first")
    from nnefc.support.output_files import scratch_next_to

    with scratch_next_to(output):  # which fails where nothing can be written
        pass


def write_page(output: Path, title: str, graphs: list[BoxGraph], report: str = "") -> None:
    """Write a page with graphs; an interrupted write leaves no partial file."""
    from nnefc.inspect.html.page import page
    from nnefc.support.output_files import write_text

    write_text(output, page(title, graphs, report))
