"""`nnefc serve`: serves compiled libraries over HTTP and gRPC. Needs the loader and the extra `serve`, not TVM."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from nnefc.cli.commands.run import input_description
from nnefc.cli.grouped import Command, option
from nnefc.cli.models import Libraries, opened_libraries
from nnefc.cli.options import given
from nnefc.ir.sample_inputs import chosen_ports, random_inputs
from nnefc.serving.settings import Listening, Policy
from nnefc.support.diagnostics import CompileError
from nnefc.support.distribution import extra_hint

if TYPE_CHECKING:
    import numpy as np

    from nnefc.loader import Model
    from nnefc.serving.tracing import Tracing

__all__ = ["serve_libraries"]

_PORT = click.IntRange(0, 65535)
_POLICY_OPTIONS = ("sessions", "threads", "rows", "waiting", "device", "flush_subnormals", "limits", "signing_key")
_SWITCH_SECONDS = 5e-4
"""Python's switch interval while serving, so that a thread that runs a network soon gets the interpreter lock."""
_RUNS_LEFT = 1
"""The exit status if runs have not ended at shutdown."""


def _limits(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        name, _, size = value.rpartition("=")
        if not name or not (size.isascii() and size.isdigit()):
            raise click.BadParameter(f"{value!r} is not of the form NAME=64")
        if name in found:
            raise click.BadParameter(f"there are two limits of {name}")
        found[name] = int(size)
    return found


_POLICY, _WHERE = Policy(), Listening()
_MIB = 1 << 20
_KEY_BYTES = 32


@click.command("serve", cls=Command, context_settings={"show_default": True})
@click.argument("libraries", nargs=-1, required=True, metavar="LIBRARY...")
@option("--host", group="Listening", default=_WHERE.host, help="The address to listen on; 0.0.0.0 for all.")
@option("--port", group="Listening", type=_PORT, default=_WHERE.port, help="The port of HTTP; 0 for any.")
@option("--grpc-port", group="Listening", type=_PORT, default=_WHERE.grpc_port, help="The port of gRPC; 0 for any.")
@option("--http/--no-http", group="Listening", common=False, default=True, help="Whether to listen for HTTP.")
@option("--grpc/--no-grpc", group="Listening", common=False, default=True, help="Whether to listen for gRPC.")
@option(
    "--sessions",
    group="Scheduling",
    type=click.IntRange(1, 1024),
    default=_POLICY.sessions,
    metavar="N",
    help="Runs of a network side by side, each in a session with its own threads.",
)
@option(
    "--threads",
    group="Scheduling",
    type=click.IntRange(min=1),
    show_default="the cores, divided between them",
    help="Threads of a session.",
)
@option(
    "--max-batch",
    "rows",
    group="Scheduling",
    type=click.IntRange(min=1),
    show_default="16, where rows do not depend on each other",
    metavar="ROWS",
    help="Run requests together that have up to so many rows, where the first axis of all inputs and outputs is the "
    "same dynamic dimension; 1: each alone.",
)
@option(
    "--max-delay",
    group="Scheduling",
    type=click.FloatRange(min=0, max=10_000),
    show_default="half of a run, at most 1, while others come",
    metavar="MS",
    help="Milliseconds that a request waits for others to join it while a session is free.",
)
@option(
    "--max-queue",
    "waiting",
    group="Scheduling",
    common=False,
    type=click.IntRange(min=0),
    default=_POLICY.waiting,
    metavar="N",
    help="Requests of a network that may wait; further ones are refused.",
)
@option(
    "--max-request",
    group="Limits",
    common=False,
    type=click.FloatRange(min=0, min_open=True, max=2047),
    default=_WHERE.largest / _MIB,
    metavar="MIB",
    help="The largest request, in MiB.",
)
@option(
    "--max-json",
    group="Limits",
    common=False,
    type=click.FloatRange(min=0, min_open=True, max=2047),
    default=_WHERE.largest_json / _MIB,
    metavar="MIB",
    help="The maximum of a request that may be read value by value, in MiB: JSON, and lists over gRPC.",
)
@option(
    "--min-rate",
    "slowest",
    group="Limits",
    common=False,
    type=click.IntRange(min=0),
    default=_WHERE.slowest,
    metavar="BYTES",
    help="Bytes per second at which a request's body must arrive over HTTP, and its answer be read, in any 5 seconds.",
)
@option(
    "--per-address",
    group="Limits",
    common=False,
    type=click.IntRange(min=0),
    default=_WHERE.per_address,
    metavar="N",
    help="Requests that may be arriving from one address at a time, the oldest of which is ended for a new one; 0, "
    "for servers behind a proxy: any number.",
)
@option(
    "--max-incoming",
    group="Limits",
    common=False,
    type=click.FloatRange(min=0, min_open=True),
    default=_WHERE.max_incoming / _MIB,
    metavar="MIB",
    help="The maximum of all requests that are arriving over HTTP, in MiB; at least the largest request.",
)
@option(
    "--limit",
    "limits",
    group="Limits",
    common=False,
    multiple=True,
    callback=_limits,
    show_default="the library's",
    metavar="NAME=SIZE",
    help="The greatest size of a dynamic dimension that requests may have (repeatable).",
)
@option(
    "--timeout",
    group="Limits",
    common=False,
    type=click.FloatRange(min=0, min_open=True),
    default=_WHERE.timeout,
    metavar="SECONDS",
    help="What a request may take.",
)
@option(
    "--idle",
    group="Limits",
    common=False,
    type=click.FloatRange(min=0.001, max=86_400),
    default=_WHERE.idle,
    metavar="SECONDS",
    help="How long a connection, or a stream over gRPC, may be without a request.",
)
@option(
    "--drain",
    group="Limits",
    common=False,
    type=click.FloatRange(min=0),
    default=_WHERE.drain,
    metavar="SECONDS",
    help="What requests under way have left at SIGTERM.",
)
@option(
    "--control",
    group="Libraries",
    common=False,
    is_flag=True,
    help="Let clients load networks again from their files, and unload them.",
)
@option(
    "--traces",
    group="Listening",
    common=False,
    is_flag=True,
    help="Export a span of each request by OpenTelemetry, to where its environment variables say.",
)
@option(
    "--shared-memory",
    group="Listening",
    common=False,
    is_flag=True,
    help="Let clients on this machine register objects of shared memory, over HTTP, for inputs and outputs.",
)
@option(
    "--device",
    group="Libraries",
    common=False,
    type=click.IntRange(min=0),
    default=_POLICY.device,
    metavar="N",
    help="The GPU's number.",
)
@option(
    "--flush-subnormals/--no-flush-subnormals",
    group="Libraries",
    common=False,
    default=_POLICY.flush_subnormals,
    help="Treat numbers smaller than about 1e-38 as zero, which is faster.",
)
@option(
    "--weights-key",
    group="Libraries",
    common=False,
    type=click.File("rb"),
    metavar="FILE",
    help="The key of libraries whose weights are encrypted.",
)
@option(
    "--key",
    "signing_key",
    group="Libraries",
    type=click.Path(path_type=Path),
    show_default="unsigned ones are taken",
    metavar="FILE.pem",
    help="A public key: refuse libraries that were not signed with its private one, by nnefc sign.",
)
@option(
    "--tls",
    group="Listening",
    type=(click.Path(path_type=Path, exists=True, dir_okay=False), click.Path(path_type=Path, exists=True)),
    metavar="CERTIFICATE KEY",
    help="Files in PEM: listen with TLS.",
)
@option(
    "--openai",
    group="Language models",
    is_flag=True,
    help="Serve language models with their tokenizers, by OpenAI's interface over HTTP: /v1/chat/completions, and of "
    "encoders /v1/embeddings and /v1/rerank.",
)
@option(
    "--context",
    group="Language models",
    type=click.IntRange(min=2),
    metavar="TOKENS",
    help="For models that are compiled at the start: how many tokens a conversation, or a text, has at most.",
)
@option(
    "--sequences",
    group="Language models",
    type=click.IntRange(min=1, max=1024),
    default=4,
    metavar="N",
    help="For models that are compiled at the start: replies that are made, or texts that are read, side by side.",
)
@option(
    "--cache",
    "kv_cache",
    group="Language models",
    type=click.Choice(["f16", "q8", "f32"]),
    show_default="f16",
    help="For models that are compiled at the start: keep keys and values in 16 bits, in 8 bits, or in float32.",
)
@option(
    "--fast",
    group="Language models",
    is_flag=True,
    help="For models that are compiled at the start: round rows to 8 bits before products: faster and less accurate.",
)
@option(
    "--rewind",
    group="Language models",
    type=click.IntRange(min=0),
    show_default="256",
    metavar="TOKENS",
    help="For models with windows that are compiled at the start: how many of its last tokens a sequence can forget to "
    "read a prompt with the same beginning.",
)
@option(
    "--allow-origin",
    "origins",
    group="Language models",
    common=False,
    multiple=True,
    show_default="none",
    metavar="ORIGIN",
    help="Let pages of an origin, such as https://chat.example.com, read answers in browsers; * for all (repeatable).",
)
@option(
    "--max-stored",
    group="Language models",
    common=False,
    type=click.FloatRange(min=0, max=1 << 20),
    default=_WHERE.stored / _MIB,
    metavar="MIB",
    help="The memory of /v1/responses for requests that go on with them, in MiB; those used longest ago are dropped. "
    "0: none is kept.",
)
@option(
    "--api-keys",
    group="Listening",
    type=click.File("r", encoding="utf-8"),
    metavar="FILE",
    help="A file with a key in each line: refuse clients that send none of them; probes of health need none.",
)
def serve_libraries(
    libraries: tuple[str, ...],
    http: bool,
    grpc: bool,
    port: int,
    grpc_port: int,
    max_delay: float | None,
    max_request: float,
    max_json: float,
    max_incoming: float,
    max_stored: float,
    threads: int | None,
    weights_key: BinaryIO | None,
    tls: tuple[Path, Path] | None,
    api_keys: TextIO | None,
    traces: bool,
    openai: bool,
    context: int | None,
    sequences: int,
    kv_cache: str | None,
    rewind: int | None,
    fast: bool,
    **options: Any,
) -> None:
    """Serve each LIBRARY by the Open Inference Protocol (KServe v2), over HTTP and gRPC.

    A library is served by its file's name; NAME=FILE gives it another one, and NAME/2=FILE makes it version 2 of NAME.
    Models are compiled when the server starts, and their libraries cached.
    """
    if not (http or grpc):
        raise click.UsageError("--no-http and --no-grpc leave nothing to listen for")
    paths = named(libraries)
    key = None if weights_key is None else _key(weights_key)
    try:
        from nnefc.serving.event_loop import runner
        from nnefc.serving.server import Server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "nnefc":
            raise
        raise CompileError(
            f"nnefc serve needs the module {error.name.partition('.')[0]}, which is not installed",
            hint=extra_hint("serve"),
        ) from error
    tracing = _tracing() if traces else None

    from nnefc.loader.pool import usable_processors

    options["threads"] = threads or max(1, len(usable_processors()) // options["sessions"])
    delay = None if max_delay is None else max_delay / 1e3
    policy = Policy(delay=delay, weights_key=key, **{name: options.pop(name) for name in _POLICY_OPTIONS})
    where = Listening(
        port=port if http else None,
        grpc_port=grpc_port if grpc else None,
        largest=int(max_request * _MIB),
        largest_json=int(max_json * _MIB),
        max_incoming=int(max_incoming * _MIB),
        stored=int(max_stored * _MIB),
        certificate=tls and tls[0],
        key=tls and tls[1],
        api_keys=() if api_keys is None else _keys(api_keys),
        **options,
    )
    sys.setswitchinterval(_SWITCH_SECONDS)
    own = {"context": context, "sequences": sequences, "kv_cache": kv_cache, "rewind": rewind, "fast": fast or None}
    compiled = given(own | {"all_logits": True}) if openai else {}
    texts = {name: path for (name, _), path in paths.items()} if openai else {}
    if openai and (len(texts) < len(paths) or not http):
        raise click.UsageError("--openai is for HTTP, and takes one version of a model")
    with opened_libraries(policy.signing_key, **compiled) as found:
        library = replace(policy, library=_loadable(found))
        server = Server({} if openai else paths, library, where, samples, tracing, texts)
        with runner() as loop:
            ended = loop.run(server.run(lambda line: click.echo(line, err=True)))
    if not ended:
        os._exit(_RUNS_LEFT)  # else the process would wait for them


def _tracing() -> Tracing:
    from nnefc.serving.tracing import exporting

    try:
        return exporting()
    except ModuleNotFoundError as error:
        raise CompileError(
            f"{error.msg}: the module {error.name} is not installed",
            hint="pip install opentelemetry-sdk opentelemetry-exporter-otlp",
        ) from error


def _loadable(found: Libraries) -> Callable[[Path], Path]:
    """Return a function that finds libraries; models that cannot be compiled raise LoadError, as the server expects."""

    from nnefc.loader import LoadError

    def library(path: Path) -> Path:
        try:
            return found(path)
        except CompileError as error:
            raise LoadError(f"{path} cannot be compiled: {error.message}") from error

    return library


def _keys(file: TextIO) -> tuple[str, ...]:
    """Return the API keys in a file, one per line, without empty lines and those that begin with `#`.

    Raises:
        CompileError: the file has no key, or a key has characters that HTTP headers cannot have.
    """
    lines = (line.strip() for line in file)
    found = tuple(line for line in lines if line and not line.startswith("#"))
    if not found or not all(key.isascii() and key.isprintable() and " " not in key for key in found):
        raise CompileError(
            f"{file.name} does not have a key in each line, of ASCII without spaces",
            hint="`openssl rand -hex 32` makes one",
        )
    return found


def _key(file: BinaryIO) -> bytes:
    """Return the weights key in a file.

    Raises:
        CompileError: the key has another length.
    """
    found = file.read(_KEY_BYTES + 1)
    if len(found) != _KEY_BYTES:
        raise CompileError(
            f"{file.name} is not a key of {_KEY_BYTES} bytes", hint="`openssl rand -out KEY 32` makes one"
        )
    return found


def named(libraries: tuple[str, ...]) -> dict[tuple[str, str], Path]:
    """Return the files by name and version, for arguments of the form FILE, NAME=FILE or NAME/VERSION=FILE."""
    paths: dict[tuple[str, str], Path] = {}
    for text in libraries:
        name, equals, file = text.partition("=")
        if not equals or Path(text).exists():
            name, file = Path(text).stem, text
        name, slash, version = name.partition("/")
        version = version if slash else "1"
        if not re.fullmatch(r"[\w.-]{1,200}", name, re.ASCII):
            raise CompileError(
                f"{name!r} cannot be the name of a model, which has letters, digits, `_`, `-` and points",
                hint=f"give it another one: NAME={file}",
            )
        if not re.fullmatch(r"[1-9]\d{0,17}", version, re.ASCII):
            raise CompileError(f"{version!r} is not a version: they are numbers from 1", hint=f"{name}/1={file}")
        if (name, version) in paths:
            raise CompileError(
                f"two libraries are version {version} of {name}", hint=f"give one of them another name: NAME={file}"
            )
        paths[name, version] = Path(file)
    return paths


def samples(model: Model, rows: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return random inputs with `rows` rows, if the inputs' first axes are the same dynamic dimension; 1: at size
    hints.
    """
    limits, formulas = input_description(model.file)
    shape = {str(model.inputs[0].shape[0]): (rows,)} if rows > 1 else {}
    ports = chosen_ports(model.inputs, model.dimensions, shape, {}, formulas)
    return random_inputs(0, ports, limits)
