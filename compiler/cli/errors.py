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
"""The message after Ctrl-C."""

INTERRUPTED_STATUS = 128 + signal.SIGINT
"""The exit status after Ctrl-C, as in shells."""

_INTERRUPTIONS: list[KeyboardInterrupt] = []
"""Kept, with the networks that are half built in their frames, to the end of the process: TVM warns on stderr when such
a network is destroyed."""


class ErrorsAsMessages(click.Group):
    """A group whose commands print an error as a message and exit with status 1, or 130 after Ctrl-C.

    Wrong usage exits with status 2, as usual for click.
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
    """Print one line and exit with status 130 if Ctrl-C interrupts the body."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        _INTERRUPTIONS.append(interruption)
        click.echo(INTERRUPTED, err=True)
        raise click.exceptions.Exit(INTERRUPTED_STATUS) from None


def _with_hint(error: click.NoSuchOption, words: Sequence[str]) -> click.UsageError:
    """Return the error for an unknown option, with a hint if another compiler has the option."""
    hint = hint_for_option(error.option_name, words)
    return error if hint is None else click.UsageError(f"{error.message}\nhint: {hint}", error.ctx)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print nnefc's own warnings as messages while the body runs, each once; other warnings are shown by Python."""
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
    """Return the message for an error, which begins with the location in the model or with `error:`."""
    if isinstance(error, MemoryError):  # there may be no memory for what the other messages import
        return "error: out of memory"
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
    return str(internal_error(error))


def coloured(text: str) -> str:
    """Return a message with the words `error:`, `warning:`, `note:` and `hint:` in color; click removes the colors if
    stderr is not a terminal.
    """
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
