"""`nnefc chat`: talks to a language model in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnefc.cli.grouped import Command, option
from nnefc.cli.models import opened_libraries
from nnefc.cli.options import given
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.chat import Conversation
    from nnefc.loader.sampling import Sampling

__all__ = ["chat"]

_HELP = "/new begins another conversation, /help shows this, Ctrl-C ends a reply, Ctrl-D the program."


@click.command("chat", cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@option("--prompt", group="Conversation", multiple=True, help="A message; several are one conversation (repeatable).")
@option("--system", group="Conversation", metavar="TEXT", help="Instructions for the model, before the conversation.")
@option(
    "--max-tokens", group="Conversation", type=click.IntRange(min=1), help="The maximum number of tokens of a reply."
)
@option(
    "--temperature", group="Sampling", type=float, default=0.7, show_default=True, help="0 takes the likeliest token."
)
@option(
    "--top-k", group="Sampling", type=click.IntRange(min=1), default=40, show_default=True, help="Of so many tokens."
)
@option(
    "--top-p", group="Sampling", type=float, default=0.95, show_default=True, help="Of tokens with this probability."
)
@option(
    "--min-p", group="Sampling", type=float, default=0.0, help="Of tokens this many times as likely as the likeliest."
)
@option(
    "--repetition-penalty",
    group="Sampling",
    type=float,
    default=1.0,
    help="What logits of tokens so far are divided by.",
)
@option("--stop", group="Conversation", multiple=True, metavar="TEXT", help="A text that ends a reply (repeatable).")
@option("--seed", group="Sampling", type=int, help="For the same replies in each run.")
@option("--context", group="Model", type=click.IntRange(min=2), help="For models: the maximum number of tokens of all.")
@option(
    "--cache",
    "kv_cache",
    group="Model",
    type=click.Choice(["f16", "q8", "f32"]),
    help="For models: keep keys and values in 16 bits (the default), in 8 bits, or in float32.",
)
@option(
    "--rewind",
    group="Model",
    type=click.IntRange(min=0),
    help="For models with windows: how many of the last tokens can be forgotten without reading all again.",
)
@option(
    "--fast",
    group="Model",
    is_flag=True,
    help="For models: round rows to 8 bits before products, as llama.cpp does: faster and less accurate.",
)
@option("--threads", group="Loading", type=click.IntRange(min=1), help="The number of threads.  [default: all cores]")
def chat(
    model: Path,
    prompt: tuple[str, ...],
    system: str | None,
    max_tokens: int | None,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    stop: tuple[str, ...],
    seed: int | None,
    context: int | None,
    kv_cache: str | None,
    rewind: int | None,
    fast: bool,
    threads: int | None,
) -> None:
    """Talk to MODEL: a library with a tokenizer, or a model's file, which is compiled and cached.

    On a terminal, lines are edited and the history is kept while the program runs. Statistics go to standard error.
    """
    from nnefc.chat import ChatError, Conversation
    from nnefc.driver.model_format import is_model
    from nnefc.driver.tokenizer_files import may_have_tokenizer
    from nnefc.loader import load

    if is_model(model) and not may_have_tokenizer(model):
        hint = f"nnefc compile {model} --tokenizer FILE -o NAME.so makes a library with one: chat with that"
        raise CompileError(f"{model} has no tokenizer", hint=hint)
    own = {"context": context, "kv_cache": kv_cache, "rewind": rewind, "fast": fast or None}
    choice: Sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    choice |= {"min_p": min_p, "repetition_penalty": repetition_penalty}
    with (
        opened_libraries(None, **given(own)) as found,
        load(found(model), threads=threads) as loaded,
    ):
        try:
            conversation = Conversation(loaded, system=system, **choice)
            for text in prompt or _typed():
                if text == "/new":
                    conversation = Conversation(loaded, system=system, **choice)
                elif text == "/help":
                    click.echo(_HELP, err=True)
                elif text and (prompt or not sys.stdin.isatty()):
                    _answer(conversation, text, max_tokens, stop)
                elif text:
                    _answer_or_explain(conversation, text, max_tokens, stop)
        except ChatError as error:
            raise CompileError(str(error)) from error


def _typed() -> Iterator[str]:
    """Yield the lines of the terminal, or of standard input, up to its end."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        with suppress(ImportError):
            import readline  # noqa: F401  which edits what input() reads
        click.echo(_HELP, err=True)
    while True:
        try:
            yield input("> " if is_terminal else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            click.echo("", err=True)


def _answer_or_explain(conversation: Conversation, text: str, max_tokens: int | None, stop: tuple[str, ...]) -> None:
    """Print the reply to a message, or why there is none; the conversation keeps what has been generated."""
    from nnefc.chat import ChatError

    try:
        _answer(conversation, text, max_tokens, stop)
    except KeyboardInterrupt:
        click.echo("", err=True)
    except CompileError as error:
        click.echo(str(error), err=True)
    except ChatError as error:
        click.echo(f"{error} (/new begins another conversation)", err=True)


def _answer(conversation: Conversation, text: str, max_tokens: int | None, stop: tuple[str, ...]) -> None:
    """Print the reply to a message as it is generated, and then its statistics."""
    from nnefc.chat import TemplateError

    start = time.perf_counter()
    try:
        parts = conversation.reply(text, max_tokens, stop)
    except TemplateError as error:
        raise CompileError(f"the model's chat template: {error}") from error
    first: float | None = None
    try:
        for part in parts:
            first = first or time.perf_counter()
            click.echo(part, nl=False)
    except KeyboardInterrupt:
        parts.close()  # type: ignore[attr-defined]
    end = time.perf_counter()
    click.echo()
    read, written = conversation.read_count, conversation.written_count
    rate = (
        f", {(written - 1) / (end - first):.1f} a second" if first is not None and written > 1 and end > first else ""
    )
    click.echo(f"[{read} tokens read in {(first or end) - start:.2f} s, {written} written{rate}]", err=True)
