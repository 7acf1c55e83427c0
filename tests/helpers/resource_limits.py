"""Runs a function in a process of its own, with bounds on memory and time, for models that ask for too much."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nnefc.support.diagnostics import CompileError

__all__ = ["confined"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "nnefc.driver.compile",
        "nnefc.backends.cpu",
        "nnefc.frontends.onnx",
        "nnefc.frontends.pnnx",
        "nnefc.frontends.nnef",
        "pytest",
    ]
)

SECONDS = 240
"""Far above what any case takes, for machines that are busy: the tests tell an end from none, not quick from slow."""


def confined(function: Callable[..., Any], *args: Any, gib: float = 8) -> Any:
    """What `function(*args)` returns; both go to another process, where it may have so much more address space.

    Raises:
        CompileError: the function's own.
        AssertionError: it raised anything else, died, or did not end.
    """
    here, there = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_work, args=(there, function, args, int(gib * (1 << 30))), daemon=True)
    process.start()
    there.close()
    try:
        assert here.poll(SECONDS), f"did not end within {SECONDS} s"
        kind, value = here.recv()
    except EOFError:
        process.join()
        raise AssertionError(f"died with the status {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    if kind == "refused":
        raise CompileError(value)
    assert kind == "returned", value
    return value


def _work(connection: Connection, function: Callable[..., Any], args: tuple[Any, ...], more: int) -> None:
    # TVM imports PyTorch where it is installed, whose libraries take gigabytes of addresses.
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        answer = "returned", function(*args)
    except CompileError as error:
        answer = "refused", error.message
    except BaseException as error:
        answer = "raised", f"{type(error).__name__}: {error}"
    connection.send(answer)
