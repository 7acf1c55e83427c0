"""Defines the options that print the paths of files needed by other builds."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import click

__all__ = ["printing_folder"]


def printing_folder(name: str, folder: str, text: str) -> Callable[[Any], Any]:
    """Return the decorator of an option that prints the path of a folder of `nnefc.targets` and exits.

    Args:
        name: of the option.
        folder: a subpackage of `nnefc.targets`.
        text: the help.
    """

    def show(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
        if is_wanted and not ctx.resilient_parsing:
            spec = find_spec(f"nnefc.targets.{folder}")
            if spec is None or not spec.submodule_search_locations:
                raise click.ClickException(f"the folder {folder} is not installed")
            click.echo(spec.submodule_search_locations[0])
            ctx.exit()

    return click.option(name, is_flag=True, is_eager=True, expose_value=False, callback=show, help=text)
