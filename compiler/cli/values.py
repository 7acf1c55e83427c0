"""Parses input values on the command line: `sr=16000`, `scales=0.5,1,0.8`, `mask=[[1,0],[1,1]]`, `x=file.npy`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from nnefc.cli.arrays import read_array

__all__ = ["read_values"]


def read_values(context: click.Context, parameter: click.Parameter, options: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the values of the `--value` options by input name; None without any. The callback of the option.

    Raises:
        click.BadParameter: an option is not of the form NAME=VALUE, or a name occurs twice.
    """
    values: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{option!r} is not of the form NAME=VALUE")
        if name in values:
            raise click.BadParameter(f"{name!r} is given twice")
        values[name] = _value(name, text)
    return values or None


def _value(name: str, text: str) -> Any:
    """Parse a value: the array of a file, JSON (a number, a boolean, nested lists), a list without brackets, or else a
    text.
    """
    if text.endswith((".npy", ".npz")):
        return read_array(Path(text), name)
    for literal in (text, f"[{text}]"):
        try:
            return json.loads(literal)
        except (ValueError, RecursionError):
            continue
    return text
