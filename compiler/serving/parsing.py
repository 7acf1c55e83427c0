"""Parses large requests value by value in separate processes, which can be terminated."""

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
"""Bytes from which a request is read in another process: fewer take milliseconds."""

Parsed = tuple[bytes, dict[int, memoryview]]
"""A request without the values of its tensors, and these as raw bytes, by the inputs' numbers."""


class Parsers:
    """Up to `maximum` processes, which are started when they are needed."""

    def __init__(self, maximum: int) -> None:
        self._idle: list[_Process] = []
        self._free = asyncio.Semaphore(maximum)
        self._threads = ThreadPoolExecutor(maximum, "nnefc parsing")

    async def parse(self, kind: bytes, text: bytes | memoryview) -> Parsed:
        """Read a request in JSON (`J`), or a message of gRPC (`G`).

        A caller that is cancelled, or has no time left, ends the process.

        Raises:
            Refused: it is wrong, or the process failed.
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
        """End the processes that do nothing."""
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
    """One process; started at the first request, by the thread that waits for its answer."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = self._asked = False

    def asked(self, kind: bytes, text: bytes | memoryview) -> tuple[bytes, bytes, memoryview]:
        """Returns the three parts of an answer.

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
            )  # a session of its own: the terminal's interrupt is for the server
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
        """End it, whatever it does; the thread that waits for its answer gets an error."""
        self._ended = True
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None and not self._asked:  # else the thread closes them, which may be using them
                    with suppress(OSError):
                        pipe.close()


def _exactly(found: bytes, length: int) -> bytes:
    if len(found) != length:
        raise EOFError
    return found
