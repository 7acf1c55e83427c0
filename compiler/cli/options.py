"""Defines the click options that several commands share; those of the compiler come from the option fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from nnefc.cli.grouped import Choice, option
from nnefc.cli.values import read_values
from nnefc.driver.option_fields import documentation_of, flag_of, help_of, option_fields
from nnefc.driver.option_keywords import KINDS
from nnefc.driver.options import CompileOptions, ReadOptions

__all__ = [
    "compiler_options",
    "given",
    "model_options",
    "read_shape_options",
    "read_shapes",
    "session_options",
    "timing_options",
]

Decorator: TypeAlias = "Callable[[Callable[..., Any]], Callable[..., Any]]"


def read_shape_options(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int | str, ...]] | None:
    """Reads the values of `--shape`; the callback of the option."""
    return read_shapes(values) or None


def read_shapes(values: tuple[str, ...], minimum: int = 1) -> dict[str, tuple[int | str, ...]]:
    """Parse shapes such as `NAME=1,3,8,8`, by name; a value may have several, as in `batch=1,seq=128`.

    Args:
        values: of the options.
        minimum: of a size.

    Raises:
        click.BadParameter: a value has another form, a size is too small, or a name occurs twice.
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
            if any(isinstance(size, int) and size < minimum for size in shapes[name]):
                raise click.BadParameter(f"a size in {sizes!r} is less than {minimum}")
    return shapes


def _parts(value: str) -> list[tuple[str, str]]:
    """Split a value into pairs of a name and its sizes.

    A part between commas that has a `=` begins another pair. Names may contain commas, as exporters' formulas for
    dimensions do: a part that is not a number begins a name.

    Raises:
        click.BadParameter: the value has another form.
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
    """Parse a size; a range such as `1..64` remains a text."""
    return text.strip() if ".." in text else int(text)


def _is_size(text: str) -> bool:
    return not text.strip() or re.fullmatch(r"\s*[+-]*\d+(\.\.\d*(:\d+)?)?\s*", text) is not None


def added(*options: Decorator) -> Decorator:
    """Returns a decorator that adds all these options to a command, in their order."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(options):
            command = each(command)
        return command

    return decorated


_FIELDS = option_fields(CompileOptions) | {
    n: each for kind in KINDS.values() for n, each in option_fields(kind).items()
}
"""All options of the compiler by name."""


def _names(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Split names at commas. The callback of an option."""
    return None if value is None else tuple(filter(None, value.split(",")))


def _sizes_of_specializations(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[Any, ...]:
    """Parse sizes by name, or return the name of a scenario unchanged. The callback of `--specialize`."""
    return tuple(read_shapes((value,), minimum=0) if "=" in value else value for value in values)


def known_targets(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Returns the named targets that begin with the typed text, for completion in shells."""
    from nnefc.targets.machine.target_rows import target_rows

    return [CompletionItem(row.name, help=row.about) for row in target_rows() if row.name.startswith(begun)]


_PATH = click.Path(path_type=Path)

_VALUES: Mapping[str, Mapping[str, Any]] = {
    "target": {"shell_complete": known_targets},
    "random_weights": {"type": int, "metavar": "SEED"},
    "shape": {"multiple": True, "callback": read_shape_options, "metavar": "NAME=1,3,8,8"},
    "values": {"multiple": True, "callback": read_values, "metavar": "NAME=VALUE"},
    "graph": {"metavar": "NAME"},
    "entry": {"metavar": "NAME"},
    "overridable": {"default": None},
    "output_tensors": {"multiple": True, "metavar": "NAME"},
    "operators": {"multiple": True, "type": _PATH, "metavar": "FILE.py"},
    "memory_budget": {"type": float, "metavar": "FACTOR"},
    "specialize": {"multiple": True, "callback": _sizes_of_specializations, "metavar": "NAME=640,NAME=640"},
    "keep_wide": {"callback": _names, "metavar": "first,last,NAME"},
    "max_error": {"type": float, "metavar": "SHARE"},
    "calibrate": {"type": _PATH, "metavar": "NPZ"},
    "dump": {"type": _PATH, "metavar": "DIR"},
    "dump_after": {"multiple": True, "metavar": "PASS"},
}
"""How click parses the values of options; options that are missing here are flags, choices or integers."""

_SPELLINGS = {
    "target": ("-t", "--target"),
    "overridable": ("--overridable/--not-overridable",),
    "operators": ("--operators", "--registry"),
}
"""The names on the command line of options that have several, or other ones than their flag."""


def compiler_options(names: Iterable[str], spellings: Mapping[str, Sequence[str]] = _SPELLINGS) -> Decorator:
    """Return a decorator that adds options of the compiler to a command; their values are passed as keywords
    (:func:`given`).

    Args:
        names: of the options in Python.
        spellings: names on the command line that differ from the flag.
    """
    return added(*(_option(name, spellings.get(name)) for name in names))


def _option(name: str, spellings: Sequence[str] | None) -> Decorator:
    words = documentation_of(_FIELDS[name])
    attributes: dict[str, Any] = dict(_VALUES.get(name, {}))
    if words.choices:
        attributes["type"] = Choice(words.choices, tuple(words.renamed))
    elif words.minimum is not None:
        attributes |= {"type": click.IntRange(min=words.minimum), "metavar": "N"}
    elif not attributes:
        attributes |= {"is_flag": True, "default": None}
    text = help_of(name, _FIELDS[name], _FLAGS)
    return option(*(spellings or [_FLAGS[name]]), name, group=words.group, common=words.common, help=text, **attributes)


_FLAGS = {name: flag_of(name, each) for name, each in _FIELDS.items()}
"""The names of options on the command line, by their names in Python."""

model_options = compiler_options(option_fields(ReadOptions))
"""Adds the options that say how a model is read."""


session_options = added(
    option(
        "--input",
        "inputs",
        group="Inputs",
        multiple=True,
        metavar="NAME=FILE",
        help="A .npy file for an input, or an .npz file for all inputs that it names (repeatable; NAME= may be omitted "
        "for an .npz file, or if there is only one input).",
    ),
    option(
        "--shape",
        group="Inputs",
        multiple=True,
        callback=read_shape_options,
        metavar="NAME=3",
        help="For random values: the size of a dynamic dimension, or the shape of an input: batch=3 (repeatable).  "
        "[default: size hints]",
    ),
    option(
        "--weights",
        group="Loading",
        type=_PATH,
        metavar="FILE",
        help="The weights file of a library compiled with --weights separate.  [default: next to the library]",
    ),
    option(
        "--weights-key",
        group="Loading",
        type=_PATH,
        metavar="FILE",
        help="The key of a library compiled with --encrypt.",
    ),
    option(
        "--key",
        group="Loading",
        type=_PATH,
        metavar="FILE.pem",
        help="A public key: reject a library that was not signed with its private key, by nnefc sign.",
    ),
    option(
        "--device",
        group="Loading",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="The number of the GPU.  [default: 0]",
    ),
    option(
        "--flush-subnormals/--no-flush-subnormals",
        group="Loading",
        default=None,
        help="Treat numbers smaller than about 1e-38 as zero, which is faster.  [default: flush]",
    ),
)
"""Adds the options for the inputs of a library and for loading it."""

timing_options = added(
    option(
        "--random",
        group="Inputs",
        type=click.IntRange(min=0),
        default=0,
        metavar="SEED",
        help="Seed of the random values for inputs that have no file.  [default: 0]",
    ),
    option(
        "--seconds",
        group="Timing",
        type=click.FloatRange(min=0, min_open=True),
        default=2.0,
        help="How long each library runs.  [default: 2]",
    ),
    option(
        "--runs", group="Timing", type=click.IntRange(min=1), metavar="N", help="Run N times in each session instead."
    ),
    option("--json", "as_json", group="Output", is_flag=True, help="Print JSON, with all times in seconds."),
)
"""Adds the options for random inputs, for how long a library is timed, and for the format of the result."""


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the user gave; the Python functions have the defaults of the others."""
    return {name: value for name, value in options.items() if value is not None and value != ()}
