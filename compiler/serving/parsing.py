"""Parses large requests in worker processes (`parsing_process.py`), which are killed when the time is over."""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from nnefc.serving.failures import FailureKind, Refused

__all__ = ["LARGE", "Parsed", "Parsers"]

LARGE = 1 << 16
"""Bytes from which a request is parsed in a worker process; smaller ones take a few milliseconds at most."""

Parsed = tuple[bytes, dict[int, memoryview]]
"""A request without the values of its tensors, and these values as raw bytes by the number of the input."""


class Parsers:
    """A pool of up to `maximum` worker processes, which are started on demand."""

    def __init__(self, maximum: int) -> None:
        self._idle: list[_Process] = []
        self._free = asyncio.Semaphore(maximum)
        self._threads = ThreadPoolExecutor(maximum, "nnefc parsing")

    async def parse(self, kind: bytes, text: bytes | memoryview) -> Parsed:
        """Parse a request in a worker process, which is killed if the caller is cancelled.

        Args:
            kind: `J` for JSON, `G` for a message of gRPC.
            text: the JSON, or the serialized message.

        Raises:
            Refused: the request is wrong, or the worker failed.
        """
        async with self._free:
            loop = asyncio.get_running_loop()
            process = self._idle.pop() if self._idle else _Process()
            try:
                answer = await loop.run_in_executor(self._threads, process.asked, kind, text)
            except (OSError, EOFError) as error:
                process.end()
                raise Refused(FailureKind.FAILED, "the process that reads large requests has ended") from error
            except BaseException:
                process.end()
                raise
            self._idle.append(process)
        return _parsed(*answer)

    def close(self) -> None:
        """End the idle processes."""
        while self._idle:
            self._idle.pop().end()
        self._threads.shutdown(wait=False)


def _parsed(index: bytes, tail: bytes, values: memoryview) -> Parsed:
    request = json.loads(index)
    if "error" in request:
        kind, words = request["error"]
        raise Refused(FailureKind[kind], words)
    found: dict[int, memoryview] = {}
    for number, size in request["tensors"]:
        found[number], values = values[:size], values[size:]
    return tail, found


class _Process:
    """A worker process. The thread that waits for its first answer starts it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = self._asked = False

    def asked(self, kind: bytes, text: bytes | memoryview) -> tuple[bytes, bytes, memoryview]:
        """Send a request and return the three parts of the answer: index, request without values, values.

        Raises:
            OSError, EOFError: the process cannot be started, or has ended.
        """
        self._asked = True
        try:
            return self._answer(kind, text)
        finally:
            self._asked = False
            if self._ended:
                self.end()

    def _answer(self, kind: bytes, text: bytes | memoryview) -> tuple[bytes, bytes, memoryview]:
        if self._process is None:
            command = [sys.executable, "-m", "nnefc.serving.parsing_process"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )  # in a session of its own, so that Ctrl-C in the terminal reaches the server alone
        source, sink = self._process.stdin, self._process.stdout
        if source is None or sink is None:
            raise EOFError
        source.write(struct.pack("<cQ", kind, len(text)))
        source.write(text)
        source.flush()
        lengths = struct.unpack("<3Q", _exactly(sink.read(24), 24))
        index, tail, values = (_exactly(sink.read(length), length) for length in lengths)
        return index, tail, memoryview(values)

    def end(self) -> None:
        """Kill the process; a thread that waits for its answer gets an error."""
        self._ended = True
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None and not self._asked:  # else the waiting thread still uses the pipes and closes them
                    with suppress(OSError):
                        pipe.close()


def _exactly(found: bytes, length: int) -> bytes:
    if len(found) != length:
        raise EOFError
    return found
