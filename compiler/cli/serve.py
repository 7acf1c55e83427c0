"""`nnefc serve`: compiled libraries as a service. Needs the loader and the extra `serve`, not TVM."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.run import said_of_inputs
from nnefc.diagnostics import CompileError
from nnefc.sample_inputs import chosen_ports, random_inputs

if TYPE_CHECKING:
    import numpy as np

    from nnefc.loader import Model

__all__ = ["serve_libraries"]

_MOST_PORT = 65535


def _limits(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        name, _, size = value.rpartition("=")
        if not name or not size.isdigit():
            raise click.BadParameter(f"{value!r} is not of the form NAME=64")
        found[name] = int(size)
    return found


@click.command("serve")
@click.argument("libraries", nargs=-1, required=True, metavar="LIBRARY...")
@click.option("--host", default="127.0.0.1", help="The address to listen on; 0.0.0.0 for all.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, _MOST_PORT), default=8000, help="The port of HTTP; 0 for any.  [default: 8000]"
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, _MOST_PORT),
    default=8001,
    help="The port of gRPC; 0 for any.  [default: 8001]",
)
@click.option("--http/--no-http", default=True, help="Whether to listen for HTTP.  [default: http]")
@click.option("--grpc/--no-grpc", default=True, help="Whether to listen for gRPC.  [default: grpc]")
@click.option(
    "--sessions",
    type=click.IntRange(1, 1024),
    default=1,
    metavar="N",
    help="Runs of a network side by side, each in a session with its own threads.  [default: 1]",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of a session.  [default: the cores, shared out]")
@click.option(
    "--max-batch",
    type=click.IntRange(min=1),
    default=1,
    metavar="ROWS",
    help="Run requests together that have up to so many rows, where the first axis of all inputs and outputs is the "
    "same open dimension.  [default: 1, each alone]",
)
@click.option(
    "--max-delay",
    type=click.FloatRange(min=0, max=10_000),
    default=0.0,
    metavar="MS",
    help="Milliseconds that a request waits for others to join it while a session is free.  [default: 0]",
)
@click.option(
    "--max-queue",
    type=click.IntRange(min=0),
    default=256,
    metavar="N",
    help="Requests of a network that may wait; further ones are refused.  [default: 256]",
)
@click.option(
    "--max-request",
    type=click.FloatRange(min=0, min_open=True, max=2047),
    default=64.0,
    metavar="MIB",
    help="The largest request, in MiB.  [default: 64]",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    callback=_limits,
    metavar="NAME=SIZE",
    help="The greatest size of an open dimension that requests may have (repeatable).  [default: the library's]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    metavar="SECONDS",
    help="What a request may take.  [default: 60]",
)
@click.option(
    "--drain",
    type=click.FloatRange(min=0),
    default=30.0,
    metavar="SECONDS",
    help="What requests under way have left at SIGTERM.  [default: 30]",
)
@click.option("--control", is_flag=True, help="Let clients load networks again from their files, and unload them.")
@click.option("--device", type=click.IntRange(min=0), default=0, metavar="N", help="The GPU's number.  [default: 0]")
@click.option(
    "--flush-subnormals/--no-flush-subnormals",
    default=True,
    help="Treat numbers smaller than about 1e-38 as zero, which is faster.  [default: flush]",
)
@click.option(
    "--tls",
    type=(click.Path(path_type=Path, exists=True, dir_okay=False), click.Path(path_type=Path, exists=True)),
    metavar="CERTIFICATE KEY",
    help="Files in PEM: listen with TLS.",
)
def serve_libraries(
    libraries: tuple[str, ...],
    host: str,
    port: int,
    grpc_port: int,
    http: bool,
    grpc: bool,
    sessions: int,
    threads: int | None,
    max_batch: int,
    max_delay: float,
    max_queue: int,
    max_request: float,
    limits: dict[str, int],
    timeout: float,
    drain: float,
    control: bool,
    device: int,
    flush_subnormals: bool,
    tls: tuple[Path, Path] | None,
) -> None:
    """Serve each LIBRARY by the Open Inference Protocol (KServe v2), over HTTP and gRPC.

    A library is served by its file's name; NAME=FILE gives it another one, and NAME/2=FILE makes it version 2 of NAME.
    """
    if not (http or grpc):
        raise click.UsageError("--no-http and --no-grpc leave nothing to listen for")
    paths = named(libraries)
    try:
        from nnefc.serving.served import Policy
        from nnefc.serving.server import Listening, Server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "nnefc":
            raise
        raise CompileError(
            f"nnefc serve needs the module {error.name.partition('.')[0]}, which is not installed",
            hint="pip install 'nnefc[serve]'",
        ) from error
    import asyncio

    from nnefc.loader.pool import usable_processors

    policy = Policy(
        sessions=sessions,
        threads=threads or max(1, len(usable_processors()) // sessions),
        rows=max_batch,
        delay=max_delay / 1e3,
        waiting=max_queue,
        device=device,
        flush_subnormals=flush_subnormals,
        limits=limits,
    )
    where = Listening(
        host=host,
        port=port if http else None,
        grpc_port=grpc_port if grpc else None,
        largest=int(max_request * (1 << 20)),
        timeout=timeout,
        drain=drain,
        control=control,
        certificate=tls and tls[0],
        key=tls and tls[1],
    )
    server = Server(paths, policy, where, samples)
    asyncio.run(server.run(lambda line: click.echo(line, err=True)))


def named(libraries: tuple[str, ...]) -> dict[tuple[str, str], Path]:
    """The files by names and versions."""
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


def samples(model: Model, library: Path, rows: int) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs of so many rows, where their first axis is the same open one; 1: of typical sizes."""
    limits, formulas = said_of_inputs(library)
    shape = {str(model.inputs[0].shape[0]): (rows,)} if rows > 1 else {}
    ports = chosen_ports(model.inputs, model.dimensions, shape, {}, formulas)
    return random_inputs(0, ports, limits)
