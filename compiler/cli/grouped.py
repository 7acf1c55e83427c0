"""Click commands whose help lists options by group: `--help` the common ones, `--help-all` all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from nnefc.driver.option_fields import GROUPS

__all__ = ["Choice", "Command", "Option", "option"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_FIRST = "Package"
"""The heading of the required options."""

_OTHERS = "Other options"
"""The heading of options without a group."""

_SHOWS_ALL = "nnefc.cli.grouped.shows_all"
"""A key of click's context, set while `--help-all` is printed."""


class Option(click.Option):
    """An option with a heading in the help.

    Attributes:
        group: the heading.
        is_common: whether `--help` shows the option.
    """

    def __init__(self, *args: Any, group: str = _OTHERS, common: bool = True, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.group = group
        self.is_common = common


def option(*names: str, group: str, common: bool = True, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """Adds an option of a group to a command; the other arguments are those of `click.option`."""
    return click.option(*names, cls=Option, group=group, common=common, **attributes)


class Choice(click.Choice[str]):
    """A parameter type that accepts one of several words, and the old names of renamed words, which are passed on
    unchanged.
    """

    def __init__(self, choices: Sequence[str], renamed: Sequence[str] = ()) -> None:
        super().__init__(choices)
        self._renamed = renamed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value in self._renamed else super().convert(value, param, ctx)


class Command(click.Command):
    """A command with options in groups."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters and `--help-all`, which is hidden if `--help` already shows all options."""
        found = super().get_params(ctx)
        return [*found, _help_all(hidden=all(map(_is_common, found)))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, and the number of options that `--help` does not show."""
        shows_all = _SHOWS_ALL in ctx.meta
        left_out = 0
        for group, options in self.grouped(ctx).items():
            shown = [each for each in options if shows_all or _is_common(each)]
            left_out += len(options) - len(shown)
            records = [record for each in shown if (record := each.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: {ctx.command_path} --help-all")

    def grouped(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        """Return the options by heading, in the order of the compiler's groups; other headings follow."""
        found: dict[str, list[click.Option]] = {group: [] for group in (_FIRST, *GROUPS)}
        for each in self.get_params(ctx):
            if isinstance(each, click.Option):
                found.setdefault(each.group if isinstance(each, Option) else _OTHERS, []).append(each)
        others = found.pop(_OTHERS, [])
        return {group: each for group, each in (found | {_OTHERS: others}).items() if each}


def _is_common(parameter: click.Parameter) -> bool:
    return not isinstance(parameter, Option) or parameter.is_common


def _show_all(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        context.meta[_SHOWS_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _help_all(hidden: bool) -> click.Option:
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=hidden,
        callback=_show_all,
        help="Show all options and exit.",
    )
