"""Makes fields of dataclasses options: each is documented once, and checked against its type.

random_weights: int | None = documented("Model", "Seed for random values of weights whose file is missing.")
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from operator import index
from types import MappingProxyType
from typing import Any

from nnefc.support.diagnostics import CompileError, warn_of_deprecation

__all__ = [
    "GROUPS",
    "Documentation",
    "UnknownOption",
    "check_options",
    "default_text",
    "documentation_of",
    "documented",
    "flag_of",
    "given_values",
    "help_of",
    "option_fields",
    "python_help",
]

GROUPS = ("Model", "Sizes", "Language models", "Precision", "Output", "Speed against size", "Debugging")
"""The headings of the compiler's options, in order."""


class UnknownOption(CompileError, TypeError):
    """An unknown option; it is also a `TypeError`, as for any unknown keyword."""


@dataclass(frozen=True)
class Documentation:
    """The documentation of an option.

    Attributes:
        group: its heading, one of `GROUPS`.
        meaning: sentences; text between backticks is the name of an option or a value.
        command_line: how the value is written on the command line, if `meaning` does not say it.
        python: how the value is written in Python, if `meaning` does not say it.
        default_words: the default, if the field's default value does not say it.
        choices: the accepted values.
        renamed: old names of values, which are still accepted, and their new names.
        minimum: of a number.
        flag: its name on the command line without dashes, if it differs from the field's.
        common: whether `--help` shows it; `--help-all` shows all options.
    """

    group: str
    meaning: str
    command_line: str
    python: str
    default_words: str
    choices: tuple[str, ...]
    renamed: Mapping[str, str]
    minimum: int | None
    flag: str
    common: bool


_KEY = "nnefc.documentation"


def documented(
    group: str,
    meaning: str,
    *,
    default: Any = None,
    default_words: str = "",
    choices: tuple[str, ...] = (),
    renamed: Mapping[str, str] = MappingProxyType({}),
    minimum: int | None = None,
    command_line: str = "",
    python: str = "",
    flag: str = "",
    common: bool = False,
) -> Any:
    """Return a field of a dataclass that is an option; the arguments are those of :class:`Documentation`."""
    words = Documentation(group, meaning, command_line, python, default_words, choices, renamed, minimum, flag, common)
    return field(default=default, metadata={_KEY: words})


def option_fields(kind: type[Any]) -> dict[str, Field[Any]]:
    """Returns the options of a dataclass by name, in their order."""
    return {each.name: each for each in fields(kind) if _KEY in each.metadata}


def documentation_of(option: Field[Any]) -> Documentation:
    """Return the documentation of an option."""
    found: Documentation = option.metadata[_KEY]
    return found


def flag_of(name: str, option: Field[Any]) -> str:
    """Returns the name of an option on the command line, with dashes."""
    return f"--{documentation_of(option).flag or name.replace('_', '-')}"


def given_values(options: Any) -> dict[str, Any]:
    """Return the options of an object that are neither their defaults nor empty."""
    found = {name: (getattr(options, name), each.default) for name, each in option_fields(type(options)).items()}
    return {name: value for name, (value, default) in found.items() if not _is_default(value, default)}


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(value, Mapping):
        return not value
    return type(value) is type(default) and bool(value == default)


def _current_value(name: str, value: Any, renamed: Mapping[str, str]) -> Any:
    """Return the value of an option; warn if it is an old name, and return the new one."""
    if not isinstance(value, str) or value not in renamed:
        return value
    warn_of_deprecation(f"{name} {value!r} is called {renamed[value]!r} now; the old name will go")
    return renamed[value]


def check_options(options: Any) -> None:
    """Check the options of an object against their types, choices and minimums, and store them as tuples and Python's
    numbers.

    It is called in `__post_init__`. None stands for the default.

    Raises:
        CompileError: a value is of a wrong type, not among the choices, or too small.
    """
    for name, option in option_fields(type(options)).items():
        words = documentation_of(option)
        value = _current_value(name, getattr(options, name), words.renamed)
        if value is None:
            value = option.default
        elif option.type in _READERS:
            read, what, example = _READERS[str(option.type)]
            try:
                value = read(value)
            except (TypeError, ValueError):
                shown = f"a {type(value).__name__}" if isinstance(value, Mapping | Sequence) else repr(value)
                shown = repr(value) if isinstance(value, str) else shown
                raise CompileError(f"{name} is {shown}, not {what}", hint=f"such as {name}={example}") from None
        if words.choices and value is not None and value not in words.choices:
            raise _no_choice(name, str(value), words.choices)
        if words.minimum is not None and value is not None and value < words.minimum:
            raise CompileError(f"{name} is {value}, and must be at least {words.minimum}")
        object.__setattr__(options, name, value)


def _no_choice(name: str, value: str, choices: Sequence[str]) -> CompileError:
    from difflib import get_close_matches

    close = get_close_matches(value.lower(), choices, 1)
    return CompileError(
        f"{name} {value!r} is none of {', '.join(choices)}", hint=f"did you mean {close[0]!r}?" if close else None
    )


def _bool(value: Any) -> bool:
    """Return a boolean of a boolean or number of Python or NumPy; texts are errors, since "false" would be true."""
    if isinstance(value, str | bytes | Sequence | Mapping):
        raise TypeError
    return bool(value)


def _float(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)


def _of(*types: type[Any]) -> Callable[[Any], Any]:
    """Return a function that accepts values of these types."""

    def read(value: Any) -> Any:
        if not isinstance(value, types):
            raise TypeError
        return value

    return read


def _tuple_of(*types: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that converts sequences of values of these types to tuples; a single value is an error."""

    def read(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | bytes | Mapping | os.PathLike):
            raise TypeError
        return tuple(map(_of(*types), value))

    return read


_READERS: Mapping[str, tuple[Callable[[Any], Any], str, str]] = {
    "bool": (_bool, "True or False", "True"),
    "int | None": (index, "an integer", "1"),
    "float": (_float, "a number", "1.5"),
    "float | None": (_float, "a number", "1e-2"),
    "str": (_of(str), "a string", "'name'"),
    "str | None": (_of(str), "a string", "'name'"),
    "FilePath | None": (_of(str, os.PathLike), "the name of a file or folder", "'name'"),
    "Sequence[str]": (_tuple_of(str), "a list of names", "['name']"),
    "Sequence[FilePath]": (_tuple_of(str, os.PathLike), "a list of files", "['operators.py']"),
    "Sequence[Mapping[str, Any] | str]": (_tuple_of(Mapping, str), "a list of sizes by name", "[{'batch': 1}]"),
    "Calibration | None": (_of(str, os.PathLike, Mapping), "arrays by name, or a file", "'samples.npz'"),
}
"""For each type of an option, as it is written: what reads a value, and how messages name it."""


def help_of(name: str, option: Field[Any], flags: Mapping[str, str]) -> str:
    """Returns the help text of an option on the command line.

    Args:
        name: the name of the option.
        option: its field.
        flags: the names of all options on the command line, by their names in Python.
    """
    words = documentation_of(option)
    text = " ".join(filter(None, (words.meaning, words.command_line)))
    text = re.sub(r"`([^`]*)`", lambda found: flags.get(found[1], found[1]), text)
    default = default_text(option)
    return f"{text}  [default: {default}]" if default else text


def default_text(option: Field[Any]) -> str:
    """Returns the default as help texts show it; empty for an option that is merely not set."""
    words = documentation_of(option).default_words
    return words or ("" if option.default in (None, (), False) else str(option.default))


def python_help(option: Field[Any]) -> str:
    """Return the documentation of an option in a Python docstring."""
    words = documentation_of(option)
    text = " ".join(filter(None, (words.meaning, words.python)))
    default = default_text(option)
    return f"{text} Default: {default}." if default else text
