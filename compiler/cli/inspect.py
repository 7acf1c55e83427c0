"""`nnefc inspect`: what is in a model, or the face of a compiled library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.options import given, model_options
from nnefc.cli.text import amount, columns, face, memory
from nnefc.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.inspection import Inspection
    from nnefc.targets.description import LibraryDescription

__all__ = ["inspect_file"]

LIBRARIES = (".so", ".a", ".o", ".dylib", ".dll", ".wasm")


@click.command("inspect")
@click.argument("file", type=click.Path(path_type=Path))
@model_options
@click.option("--flat", is_flag=True, help="Print the flattened graph, as an NNEF document, instead.")
def inspect_file(file: Path, flat: bool, **options: Any) -> None:
    """Describe FILE: a model, or a library that nnefc compiled."""
    keywords = given(options)
    if is_library(file):
        if flat or keywords:
            raise click.UsageError("a compiled library takes no options: they say how to read a model")
        lines = library_lines(file)
    elif flat:
        if "output_tensors" in keywords:
            raise click.UsageError("--flat prints the graph as it is: --output-tensor has no part in it")
        keywords.pop("random_weights", None)  # weights are not read
        lines = flat_lines(file, keywords)
    else:
        lines = model_lines(file, keywords)
    click.echo("\n".join(lines))


def is_library(path: Path) -> bool:
    """By the first bytes of the file, or by its name where there is no such file."""
    if path.is_dir():
        return False
    from nnefc.targets.library_file import file_kind

    try:
        return file_kind(path) is not None
    except FileNotFoundError:
        return path.suffix in LIBRARIES


def library_lines(path: Path) -> list[str]:
    """What the library says of itself, on whatever machine it runs: nothing of it is loaded."""
    from nnefc.targets.library_file import file_kind, read_record

    record = read_record(path)
    if record is None:
        raise CompileError(f"{path} is no network that nnefc compiled: it has no description inside")
    found = record.description
    facts = [
        ("target", found.target),
        ("file", file_kind(path) or "of an unknown kind"),
        ("needs", needs(found)),
        ("compiler", found.compiler),
        ("source", found.source or "not a file"),
        ("constants", memory(found.constant_bytes) + (f" in {record.weights}" if record.weights else "")),
        ("workspace", f"{memory(found.workspace_bytes)} a session"),
    ]
    if found.states:
        facts.append(("states", f"{memory(found.state_bytes)} a session"))
    return [found.model, "", *face(found.inputs, found.outputs, found.states), "", *columns(facts)]


def needs(found: LibraryDescription) -> str:
    """What a machine must have for a library."""
    instructions = " ".join(found.cpu_features) or "no particular instructions"
    if found.device == "cpu":
        return instructions
    architectures = ", ".join(re.findall(r"sm_\d+", found.target))
    return f"{instructions}; NVIDIA's driver and a GPU: {architectures} or newer than these"


def flat_lines(path: Path, keywords: dict[str, Any]) -> list[str]:
    """The document after evaluation: one graph, one operation a line, every value known."""
    from nnefc.formats import format_of
    from nnefc.frontends.nnef import document_of, print_flat

    if format_of(path).name != "NNEF":
        raise click.UsageError("--flat prints NNEF documents only")
    return print_flat(document_of(path, **keywords)).rstrip().split("\n")


def model_lines(path: Path, keywords: dict[str, Any]) -> list[str]:
    """The face of the model, then its size and how often each operation occurs."""
    from nnefc.formats import load_network
    from nnefc.inspection import inspect_network

    found = inspect_network(load_network(path, **keywords))
    operations = columns([(str(count), name) for name, count in found.operations.items()], right=(0,))
    faces = face(found.inputs, found.outputs, found.states)
    return [found.name, "", *faces, "", *size_lines(found), "", *operations, *expression_lines(path)]


def expression_lines(path: Path) -> list[str]:
    """The expressions of a PNNX network, each as infix and as a tree."""
    from nnefc.formats import format_of

    if format_of(path).name != "PNNX":
        return []
    from nnefc.frontends.pnnx import describe_expression, expressions_of

    lines = []
    for name, text in expressions_of(path):
        infix, *tree = describe_expression(text).split("\n")
        lines += ["", f"{name} = {infix}", *(f"  {line}" for line in tree)]
    return lines


def size_lines(found: Inspection) -> list[str]:
    """Parameters, work and memory."""
    return columns(
        [
            ("parameters", f"{amount(found.parameters)} ({memory(found.parameter_bytes)})"),
            ("multiply-adds", f"{amount(found.multiply_adds)} (convolutions and matrix products)"),
            ("memory", f"{memory(found.live_bytes)} (the most activations alive at once)"),
            ("operations", f"{sum(found.operations.values()):,}"),
        ]
    )
