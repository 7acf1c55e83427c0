"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from nnefc.cli.values import read_values

__all__ = [
    "code_options",
    "given",
    "model_options",
    "read_shape_options",
    "read_shapes",
    "session_options",
    "timing_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])


def read_shape_options(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int | str, ...]] | None:
    """The callback of the `--shape` option."""
    return read_shapes(values) or None


def read_shapes(values: tuple[str, ...], least: int = 1) -> dict[str, tuple[int | str, ...]]:
    """Each `NAME=1,3,8,8`, by name; several in one go with commas between them, as in `batch=1,seq=128`.

    Raises:
        click.BadParameter: a value of another form.
    """
    shapes: dict[str, tuple[int | str, ...]] = {}
    for value in values:
        for name, sizes in _parts(value):
            if name in shapes:
                raise click.BadParameter(f"{name!r} is given twice")
            try:
                shapes[name] = tuple(map(_size, sizes.split(","))) if sizes.strip() else ()
            except ValueError:
                raise click.BadParameter(f"{sizes!r} is not a list of integers such as 1,3,8,8") from None
            if any(isinstance(size, int) and size < least for size in shapes[name]):
                raise click.BadParameter(f"a size in {sizes!r} is less than {least}")
    return shapes


def _parts(value: str) -> list[tuple[str, str]]:
    """Names and sizes in the order given: what follows a comma and has a `=` begins a further name.

    A name may have commas of its own, as exporters' formulas for dimensions do: what is no number after a comma is the
    beginning of the next name.
    """
    parts: list[tuple[str, str]] = []
    begun = ""  # a name up to its comma
    for text in value.split(","):
        name, equals, size = text.rpartition("=")
        if equals and begun + name:
            parts.append((begun + name, size))
            begun = ""
        elif parts and not equals and not begun and _is_size(text):
            parts[-1] = (parts[-1][0], f"{parts[-1][1]},{text}")
        else:
            begun += f"{text},"
    if begun and parts and value.partition("=")[2].lstrip().startswith(("[", "(")):
        raise click.BadParameter(f"{value!r} has brackets: write a shape as NAME=1,3,8,8")
    if begun and parts:
        raise click.BadParameter(f"{begun.rstrip(',')!r} is not an integer, nor of the form NAME=1,3,8,8")
    if begun:
        raise click.BadParameter(f"{value!r} is not of the form NAME=1,3,8,8")
    return parts


def _size(text: str) -> int | str:
    """A number; a range such as 1..64 as it is."""
    return text.strip() if ".." in text else int(text)


def _is_size(text: str) -> bool:
    return not text.strip() or re.fullmatch(r"\s*[+-]*\d+(\.\.\d*(:\d+)?)?\s*", text) is not None


def model_options(command: Command, registries: tuple[str, ...] = ("--registry",)) -> Command:
    """The options that say how a model is to be read; the command gets them as keywords, see :func:`given`.

    `registries` are further names of the option for files that register operators.
    """
    for option in reversed(
        (
            click.option(
                "--random-weights", type=int, metavar="SEED", help="Use random values for weights that have no file."
            ),
            click.option(
                "--shape",
                multiple=True,
                callback=read_shape_options,
                metavar="NAME=1,3,8,8",
                help="The shape of an input, or the sizes of ONNX's named dimensions: batch=1,seq=128, or "
                "ranges for sizes that stay open: batch=1..64,height=32..1280:32. What is not given stays open "
                "(repeatable).",
            ),
            click.option(
                "--value",
                "values",
                multiple=True,
                callback=read_values,
                metavar="NAME=VALUE",
                help="Make an input of an ONNX model a constant: a number, true or false, a list such as 1,2,3 or "
                "[[1,2],[3,4]], or a .npy file. The library does not have this input (repeatable).",
            ),
            click.option("--graph", metavar="NAME", help="The graph to compile, if an NNEF document has several."),
            click.option(
                "--dialect",
                type=click.Choice(["provisional", "final"]),
                help="The dialect of an NNEF document.  [default: told from the document]",
            ),
            click.option(
                "--pedantic",
                is_flag=True,
                default=None,
                help="Refuse an NNEF document that breaks a rule, even where it is clear what is meant.",
            ),
            click.option(
                "--scan-states",
                type=click.Choice(["keep", "anew"]),
                help="Whether scans of tract's dialect of NNEF go on in a run where the last one ended.  "
                "[default: in models that tract made for pieces of streams]",
            ),
            click.option(
                "--entry",
                metavar="NAME",
                help="The part of an ONNX model to compile: training:0 is one step of its first training.",
            ),
            click.option(
                "--overridable/--not-overridable",
                default=None,
                help="Whether initializers of an ONNX model that are also its inputs are inputs of the library.",
            ),
            click.option(
                "--output-tensor",
                "output_tensors",
                multiple=True,
                metavar="NAME",
                help="A tensor to return instead of the network's outputs (repeatable).",
            ),
            click.option(
                "--operators",
                *registries,
                "operators",
                multiple=True,
                type=click.Path(path_type=Path),
                metavar="FILE.py",
                help="A Python file that registers operators of your own (repeatable). It is run.",
            ),
            click.option(
                "--max-depth",
                type=click.IntRange(min=1),
                metavar="N",
                help="How deep fragments of an NNEF document may be nested.  [default: 2000]",
            ),
            click.option(
                "--max-operations",
                type=click.IntRange(min=1),
                metavar="N",
                help="How many operations an NNEF document may have when flattened.  [default: 100000]",
            ),
        )
    ):
        command = option(command)
    return command


def known_targets(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The named targets that what is typed may become, for shells."""
    from nnefc.targets.machine.documentation import target_rows

    return [CompletionItem(row.name, help=row.about) for row in target_rows() if row.name.startswith(begun)]


def method_option(how: str) -> Callable[[Command], Command]:
    """`--method`; its help begins with `how`."""
    return click.option(
        "--method",
        type=click.Choice(["minmax", "percentile", "entropy"]),
        help=f"{how} ranges follow from the data: all values, all but the rarest, or those that integers tell "
        "most of.  [default: minmax]",
    )


def code_options(command: Command) -> Command:
    """The options that say what code a network becomes; the command gets them as keywords, see :func:`given`."""
    for option in reversed(
        (
            click.option(
                "-t",
                "--target",
                shell_complete=known_targets,
                help="The machine that the library is for.  [default: llvm, this machine]",
            ),
            click.option(
                "--strict",
                is_flag=True,
                default=None,
                help="Use no algorithm that rounds differently from a plain sum.",
            ),
            click.option(
                "--memory-budget",
                type=float,
                metavar="FACTOR",
                help="How large the constants may become for faster algorithms, as a factor of their size (counted as "
                "8 MiB at least): 1 for no larger, inf for no limit.  [default: 1.25]",
            ),
            click.option(
                "--precision",
                type=click.Choice(["fp32", "tf32", "bf16", "fp16", "int8", "auto"]),
                help="The type that convolutions and matrix products multiply; sums are float32. On CPUs fp32, bf16 or "
                "fp16, on GPUs tf32 besides; int8 quantizes the network by the data of --calibrate; auto is the "
                "fastest of those for this machine within --max-error.  [default: fp32]",
            ),
            click.option(
                "--keep-wide",
                metavar="first,last,NAME",
                callback=lambda _context, _option, value: (
                    None if value is None else tuple(filter(None, value.split(",")))
                ),
                help="Convolutions and matrix products that multiply float32 whatever --precision says: at the ends, "
                "or by the names of their results, with * for any letters.",
            ),
            click.option(
                "--calibrate",
                type=click.Path(path_type=Path),
                metavar="NPZ",
                help="For --precision int8 and auto: values of the inputs, by name, with one dimension more if there "
                "are several of each, or along the first one.  [default: for auto, random ones]",
            ),
            method_option("For --precision int8 and auto: how"),
        )
    ):
        command = option(command)
    return command


def session_options(command: Command) -> Command:
    """The options that say what a compiled library is run on and how; the command gets them as keywords."""
    for option in reversed(
        (
            click.option(
                "--input",
                "inputs",
                multiple=True,
                metavar="NAME=FILE",
                help="A .npy file for an input, or an .npz file for all inputs that it names (repeatable; NAME= may be "
                "omitted for an .npz file, or if there is only one input).",
            ),
            click.option(
                "--shape",
                multiple=True,
                callback=read_shape_options,
                metavar="NAME=3",
                help="The size of an open dimension, or the shape of an input, for random values: batch=3 "
                "(repeatable).  [default: typical sizes]",
            ),
            click.option(
                "--weights",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="The weights file of a library compiled with --weights separate.  [default: beside the library]",
            ),
            click.option(
                "--weights-key",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="The key of a library compiled with --encrypt.",
            ),
            click.option(
                "--key",
                type=click.Path(path_type=Path),
                metavar="FILE.pem",
                help="A public key: refuse a library that was not signed with its private one, by nnefc sign.",
            ),
            click.option(
                "--device", type=click.IntRange(min=0), default=0, metavar="N", help="The GPU's number.  [default: 0]"
            ),
            click.option(
                "--flush-subnormals/--no-flush-subnormals",
                default=None,
                help="Treat numbers smaller than about 1e-38 as zero, which is faster.  [default: flush]",
            ),
        )
    ):
        command = option(command)
    return command


def timing_options(command: Command) -> Command:
    """The options that say how long a library is timed, on which random values, and for whom the times are printed."""
    for option in reversed(
        (
            click.option(
                "--random",
                type=click.IntRange(min=0),
                default=0,
                metavar="SEED",
                help="The seed of the random values for inputs that have no file.  [default: 0]",
            ),
            click.option(
                "--seconds",
                type=click.FloatRange(min=0, min_open=True),
                default=2.0,
                help="How long each library runs.  [default: 2]",
            ),
            click.option(
                "--runs", type=click.IntRange(min=1), metavar="N", help="Run N times in each session instead."
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON, with all times in seconds."),
        )
    ):
        command = option(command)
    return command


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Only what the user gave, as the keywords of the Python functions: their defaults stay theirs."""
    return {name: value for name, value in options.items() if value is not None and value != ()}
