"""Generates the manual page nnefc(1) from the help of the commands: `nnefc --man | man -l -`."""

from __future__ import annotations

from collections.abc import Iterator

import click

__all__ = ["man_option", "manual_page"]


def man_option(group: click.Group) -> click.Group:
    """Returns the group with the option `--man`."""
    option = click.Option(
        ["--man"], is_flag=True, is_eager=True, expose_value=False, callback=_show, help="Print the manual page."
    )
    group.params.append(option)
    return group


def _show(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(manual_page(context))
        context.exit()


def manual_page(context: click.Context) -> str:
    """Returns the page in roff for the group of a context and all its commands."""
    group = context.command
    assert isinstance(group, click.Group)
    from nnefc.support.distribution import installed_version

    lines = [
        f'.TH NNEFC 1 "" "nnefc {installed_version()}"',
        ".SH NAME",
        f"nnefc \\- {_escaped(group.get_short_help_str(200))}",
        ".SH SYNOPSIS",
        ".B nnefc",
        ".I COMMAND",
        "[options]",
        ".SH COMMANDS",
    ]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            lines += _command(command, click.Context(command, parent=context, info_name=name))
    lines += [".SH EXIT STATUS", "0 for success, 1 for errors, 2 for wrong usage, 3 of nnefc compare for differences."]
    return "\n".join(lines)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f'.SS "nnefc {_escaped(command.name or "")} {_escaped(usage)}"', *_paragraphs(command.help or ""))
    from nnefc.cli.grouped import Command

    groups = command.grouped(context) if isinstance(command, Command) else {"": command.get_params(context)}
    for group, parameters in groups.items():
        yield from filter(None, [group and f".PP\n.I {_escaped(group)}"])
        for parameter in parameters:
            record = parameter.get_help_record(context)
            if record is not None:
                yield from (".TP", f".B {_escaped(record[0])}", *filter(None, [_escaped(record[1])]))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield from (".PP", _escaped(" ".join(paragraph.split())))


def _escaped(text: str) -> str:
    """Escapes a text for roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
