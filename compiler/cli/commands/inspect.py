"""`nnefc inspect`: prints the contents of a model, or the interface of a compiled library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.dynamic_dims import range_lines, sizes_text
from nnefc.cli.grouped import Command, option
from nnefc.cli.options import given, model_options
from nnefc.cli.tables import amount, columns, interface, memory
from nnefc.driver.option_fields import given_values
from nnefc.driver.option_keywords import read_options
from nnefc.driver.options import ReadOptions
from nnefc.ir.outline import range_option, shape_option
from nnefc.support.diagnostics import CompileError
from nnefc.support.minimal_tvm import import_tvm
from nnefc.symbolic.ranges import LARGEST, DynamicSize

if TYPE_CHECKING:
    from nnefc.inspect.cost_summary import Inspection
    from nnefc.ir.outline import Allowed, Outline
    from nnefc.targets.description.library import LibraryDescription

__all__ = ["inspect_file"]

MORE_THAN_ANY = 1 << 48  # bytes

MAX_LABELS = 10  # in a line
MAX_LETTERS = 100  # of an entry of metadata
MAX_ENTRIES = 40

LIBRARIES = (".so", ".a", ".o", ".dylib", ".dll", ".wasm")


@click.command("inspect", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@model_options
@option("--flat", group="Output", is_flag=True, help="Print the flattened graph as an NNEF document instead.")
def inspect_file(file: Path, flat: bool, **options: Any) -> None:
    """Describe FILE: a model, or a library compiled by nnefc."""
    keywords = given(options)
    if is_library(file):
        if flat or keywords:
            raise click.UsageError("these options say how to read a model, and a compiled library needs none")
        lines = library_lines(file)
        click.echo("\n".join(lines))
        return
    import_tvm()
    from nnefc.driver.formats import load_operator_files

    reading = read_options("nnefc inspect", keywords)
    load_operator_files(reading.operators)
    if flat and reading.output_tensors:
        raise click.UsageError("--flat prints the whole graph: it cannot be used with --output-tensor")
    lines = flat_lines(file, reading) if flat else model_lines(file, reading)
    click.echo("\n".join(lines))


def is_library(path: Path) -> bool:
    """Return whether a file is a library by its first bytes, or by its suffix if there is no such file."""
    if path.is_dir():
        return False
    from nnefc.targets.description.library_file import file_kind

    try:
        return file_kind(path) is not None
    except FileNotFoundError:
        return path.suffix in LIBRARIES


def library_lines(path: Path) -> list[str]:
    """Return the description of a library for any machine, read from its file without loading it."""
    from nnefc.targets.description.library_file import file_kind, read_metadata

    metadata = read_metadata(path)
    if metadata is None:
        raise CompileError(f"{path} was not compiled by nnefc: it has no description inside")
    found = metadata.description
    facts = [
        ("target", found.target),
        ("file", file_kind(path) or "of an unknown kind"),
        ("needs", needs(found)),
        *(("level", f"{level.target}: {needs(level)}") for level in found.levels),
        ("compiler", found.compiler),
        ("source", found.source or "not a file"),
        ("constants", memory(found.constant_bytes) + (f" in {metadata.weights}" if metadata.weights else "")),
        ("workspace", f"{workspace(found)} a session"),
    ]
    if found.index_limits:
        facts.append(("indices", ", ".join(f"{name}: 0 to {limit - 1:,}" for name, limit in found.index_limits)))
    if found.checked:
        facts.append(("checks", "every element that its kernels read or write, and every divisor"))
    if found.reproducible:
        facts.append(("results", "the same bits on all processors, with any number of threads"))
    for name, labels in found.labels:
        facts.append(("labels", f"{name}: {shortened(labels)}"))
    facts += [("metadata", text) for text in metadata_texts(dict(found.metadata))]
    if found.states:
        facts.append(("states", f"{memory(found.state_bytes)} a session"))
    opened = range_lines(found.dimensions, {each.name: each.formula for each in found.formulas}) + special_lines(found)
    return [found.model, "", *interface(found.inputs, found.outputs, found.states), *opened, "", *columns(facts)]


def metadata_texts(metadata: Mapping[str, str]) -> list[str]:
    """Returns the metadata of a model, one line per entry, truncated to the first entries."""
    lines = [f"{on_a_line(key)}: {on_a_line(value)}" for key, value in islice(metadata.items(), MAX_ENTRIES)]
    more = len(metadata) - len(lines)
    return [*lines, f"{more:,} more"] if more else lines


def on_a_line(text: str) -> str:
    """Return a text of a model on one line, truncated and without control characters."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))
    return shown if len(shown) <= MAX_LETTERS else f"{shown[:MAX_LETTERS]}… ({len(text):,} letters in all)"


def shortened(labels: Sequence[int | str]) -> str:
    """Return the labels of columns in one line, the first ones if there are many."""
    more = f", … ({len(labels)} in all)" if len(labels) > MAX_LABELS else ""
    return ", ".join(map(str, labels[:MAX_LABELS])) + more


def special_lines(found: LibraryDescription) -> list[str]:
    """Return a line for each set of sizes for which the library has specialized code."""
    from nnefc.targets.description.specialized_source import sizes_spelled

    only = ", and no other sizes" if found.only_specialized else ""
    return columns([("specialized", f"{sizes}{only}") for sizes in sizes_spelled(found)])


def workspace(found: LibraryDescription) -> str:
    """Return the memory of intermediate tensors; with dynamic dimensions, at the size hints and at the maximum."""
    if not found.dimensions:
        return memory(found.workspace_bytes)
    size_hint, maximum = found.dynamic_workspaces
    greatest = memory(maximum) if maximum < MORE_THAN_ANY else "more than there can be"
    return f"{memory(size_hint)} ({sizes_text(found.dimensions, 'size_hint')}) to {greatest}"


def needs(found: LibraryDescription) -> str:
    """Returns the requirements of a library on the machine."""
    instructions = " ".join(found.cpu_features) or "no particular instructions"
    if found.device == "cpu":
        return instructions
    architectures = ", ".join(re.findall(r"sm_\d+", found.target))
    return f"{instructions}; NVIDIA's driver and a GPU: {architectures} or newer than these"


def flat_lines(path: Path, options: ReadOptions) -> list[str]:
    """Return the NNEF document after evaluation: one graph, an operation per line, with all values computed."""
    from nnefc.driver.model_format import format_of
    from nnefc.frontends.nnef import document_of, print_flat

    if format_of(path).name != "NNEF":
        raise click.UsageError("--flat is for NNEF documents only")
    keywords = given_values(options)
    for name in ("operators", "random_weights"):  # weights are not read
        keywords.pop(name, None)
    return print_flat(document_of(path, **keywords)).rstrip().split("\n")


def model_lines(path: Path, options: ReadOptions) -> list[str]:
    """Return the interface of a model, its size, the count of each operator, and options for dynamic dimensions."""
    from nnefc.driver.formats import load_outline

    found = load_outline(path, options)
    costs, refusal = counts(path, options)
    faces = (
        interface(found.inputs, found.outputs)
        if costs is None
        else interface(costs.inputs, costs.outputs, costs.states)
    )
    formulas = {each.name: each.formula for each in costs.dimensions if each.formula is not None} if costs else {}
    opened = range_lines(costs.dimensions, formulas) if costs is not None else []
    lines = [found.name, found.about, "", *faces, *opened, "", *size_lines(found, costs), "", *operation_lines(found)]
    if costs is not None and costs.metadata:
        lines += ["", *columns([("metadata", text) for text in metadata_texts(costs.metadata)])]
    lines += expression_lines(path)
    lines += shape_lines(found, costs) if not asked(options) else []
    if refusal is not None:
        lines += ["", "It cannot be compiled as it is:", *str(refusal).split("\n")]
    return lines


def allowed_sizes(costs: Inspection) -> Allowed:
    """Return the sizes of each axis of the inputs that the operators allow; a dimension that is computed from others
    has its size hint as the likely size.
    """
    sizes = {}
    for each in costs.dimensions:
        if each.formula is None:
            sizes[each.name] = DynamicSize(each.minimum, each.maximum, each.multiple)
    size_hint = {each.name: each.size_hint for each in costs.dimensions}
    found: dict[tuple[str, int], DynamicSize] = {}
    for tensor in costs.inputs:
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, int):
                found[tensor.name, axis] = DynamicSize(size, size)
            elif size in size_hint:
                own = sizes.get(size, DynamicSize(0))
                likely = size_hint[size]
                found[tensor.name, axis] = replace(
                    own, maximum=None if (own.maximum or 0) > LARGEST - own.multiple else own.maximum, likely=likely
                )
    return found


def shape_lines(found: Outline, costs: Inspection | None) -> list[str]:
    """Return example options that set the model's dynamic dimensions to sizes or ranges."""
    if not found.option:
        return []
    stay = ", and stay so: the library takes any size in these ranges" if costs is not None else ""
    allowed = allowed_sizes(costs) if costs is not None else {}
    return [
        "",
        f"Dimensions are open{stay}. To give them, with numbers of your own:",
        "",
        f"  {shape_option(found.tensors, allowed)}",
        "",
        "or ranges, for a library that takes every size in them:",
        "",
        f"  {range_option(found.tensors, allowed)}",
    ]


def asked(options: ReadOptions) -> bool:
    """Returns whether the options choose which network of the model is described."""
    return any((options.shape, options.values, options.output_tensors, options.entry))


def counts(path: Path, options: ReadOptions) -> tuple[Inspection | None, CompileError | None]:
    """Return the costs of a network, or the error because of which it cannot be compiled as it is in the file.

    Raises:
        CompileError: the network cannot be read with the shapes or other options that the user gives.
    """
    from nnefc.driver.formats import load_network
    from nnefc.driver.model_format import format_of
    from nnefc.inspect.cost_summary import inspect_network

    if format_of(path).name == "NNEF" and options.random_weights is None:  # for weights that have no file
        options = replace(options, random_weights=0)
    try:
        return inspect_network(load_network(path, options)), None
    except CompileError as error:
        if asked(options):
            raise
        return None, error


def operation_lines(found: Outline) -> list[str]:
    """Return a line for each operator with its count, the most frequent first, by the names in the model's format."""
    rows = [
        (str(count), name, "not supported" if name in found.unsupported else "")
        for name, count in found.operations.items()
    ]
    return columns(rows, right=(0,))


def expression_lines(path: Path) -> list[str]:
    """Return the expressions of a PNNX network, each in infix notation and as a tree."""
    from nnefc.driver.model_format import format_of

    if format_of(path).name != "PNNX":
        return []
    from nnefc.frontends.pnnx import describe_expression, expressions_of

    lines = []
    for name, text in expressions_of(path):
        infix, *tree = describe_expression(text).split("\n")
        lines += ["", f"{name} = {infix}", *(f"  {line}" for line in tree)]
    return lines


def size_lines(found: Outline, costs: Inspection | None) -> list[str]:
    """Return lines with the parameters, the arithmetic and the memory of a network, at the size hints of dynamic
    dimensions.
    """
    rows = [("parameters", f"{amount(found.parameters)} ({memory(found.parameter_bytes)})")]
    if costs is not None:
        at = f"; {sizes_text(costs.dimensions, 'size_hint')}" if costs.dimensions else ""
        rows.append(("multiply-adds", f"{amount(costs.multiply_adds)} (convolutions and matrix products{at})"))
        rows.append(("memory", f"{memory(costs.live_bytes)} (the largest activations alive at once{at})"))
    return columns([*rows, ("operations", f"{found.count:,}")])
