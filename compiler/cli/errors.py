"""Prints an error as one message on stderr with exit status 1, never a traceback, and a warning as one line."""

from __future__ import annotations

import errno
import os
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from nnefc.cli.foreign_options import hint_for_command, hint_for_option
from nnefc.support.diagnostics import (
    CacheWarning,
    CompileError,
    DeprecatedOption,
    InternalWarning,
    ModelWarning,
    compiler_missing,
)
from nnefc.support.internal_errors import TRACEBACK, internal_error

__all__ = ["ErrorsAsMessages"]

INTERRUPTED = "interrupted"
"""Printed after Ctrl-C."""

INTERRUPTED_STATUS = 128 + signal.SIGINT
"""The status after Ctrl-C, as shells have it."""


class ErrorsAsMessages(click.Group):
    """A group whose commands end with a message and status 1 where they raise, and 130 where they are interrupted.

    Wrong usage stays click's: status 2.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        try:
            with interruptions_as_lines():
                return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _with_hint(error, words) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError as error:
            hint = hint_for_command(args[0])
            if hint is None:
                raise
            raise click.UsageError(f"{error.message}\nhint: {hint}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        words = [*ctx._protected_args, *ctx.args]
        try:
            with interruptions_as_lines(), warnings_as_lines():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _with_hint(error, words) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output has gone: click ends quietly
            if os.environ.get(TRACEBACK):
                raise
            click.echo(coloured(message_of(error)), err=True)
            ctx.exit(1)


@contextmanager
def interruptions_as_lines() -> Iterator[None]:
    """End with one line and the status 130 where Ctrl-C interrupts the body."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(INTERRUPTED, err=True)
        raise click.exceptions.Exit(INTERRUPTED_STATUS) from None


def _with_hint(error: click.NoSuchOption, words: Sequence[str]) -> click.UsageError:
    """The error with what to do in place of the option, where another compiler has it."""
    hint = hint_for_option(error.option_name, words)
    return error if hint is None else click.UsageError(f"{error.message}\nhint: {hint}", error.ctx)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Prints warnings of models, of bugs and of old options as messages, each once; other warnings stay Python's."""
    with warnings.catch_warnings():
        others, shown = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
            if not issubclass(category, ModelWarning | InternalWarning | CacheWarning | DeprecatedOption):
                others(message, category, *location, **more)
            elif str(message) not in shown:
                shown.add(str(message))
                click.echo(coloured(f"warning: {message}"), err=True)

        warnings.showwarning = show
        warnings.simplefilter("always", ModelWarning)
        warnings.simplefilter("always", InternalWarning)
        warnings.simplefilter("always", DeprecatedOption)
        yield


def message_of(error: Exception) -> str:
    """The whole text for stderr, beginning with the location or with `error:`."""
    from nnefc.loader import LoadError, RunError

    match error:
        case CompileError():
            return str(error)
        case LoadError() | RunError():
            return f"error: {error}"
        case ModuleNotFoundError(name=str() as name) if name.partition(".")[0] != "nnefc":
            return str(compiler_missing("this command", name))
        case OSError(strerror=str() as reason):
            names = [
                os.fspath(name) for name in (error.filename, error.filename2) if isinstance(name, (str, os.PathLike))
            ]
            return "error: " + ": ".join([*map(str, names), reason])
        case MemoryError():
            return "error: out of memory"
    return str(internal_error(error))


def coloured(text: str) -> str:
    """The words `error:`, `warning:` and so on in colour; click takes the colours out where stderr is no terminal."""
    if "NO_COLOR" in os.environ:
        return text
    lines = text.split("\n")
    colours = {"error:": "red", "warning:": "yellow", "note:": "cyan", "hint:": "green"}
    for i, line in enumerate(lines):
        for word, colour in colours.items():
            if line.startswith(word) or (not line[:1].isspace() and f": {word} " in line):
                lines[i] = line.replace(word, click.style(word, fg=colour, bold=True), 1)
                break
    return "\n".join(lines)
