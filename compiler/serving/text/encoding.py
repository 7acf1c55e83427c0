"""Runs an encoder for many requests at a time: each run is a batch of texts, taken from the requests in turn."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nnefc.chat.encoder import Encoder, Row
from nnefc.loader import RunError
from nnefc.serving.failures import FailureKind, Refused

__all__ = ["EncoderEngine"]

_LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class _Request:
    """The texts of a request, and their results.

    Attributes:
        rows: the tokens of each text.
        left: the indices of the texts that are in no run yet, the longest text last.
        results: of the texts, `[texts, size]`; valid for those that have run.
        missing: the number of results that are missing.
        done: called in the engine's thread with an error, or with None when all results are there.
    """

    rows: Sequence[Row]
    left: list[int]
    results: np.ndarray
    missing: int
    done: Callable[[str | None], None]


@dataclass
class _Queue:
    """The requests that have texts left, the next one first."""

    requests: deque[_Request] = field(default_factory=deque)

    def batch(self, encoder: Encoder) -> list[tuple[_Request, int]]:
        """Take the texts of the next run: one of each request in turn, as many as fit in a batch."""
        chosen: list[tuple[_Request, int]] = []
        rows: list[Row] = []
        while self.requests:
            request = self.requests.popleft()
            row = request.rows[request.left[-1]]
            if not encoder.fits(rows, row):
                self.requests.appendleft(request)
                break
            chosen.append((request, request.left.pop()))
            rows.append(row)
            if request.left:
                self.requests.append(request)
        return chosen


class EncoderEngine:
    """Runs one encoder, in a thread of its own."""

    def __init__(self, encoder: Encoder, waiting: int, on_token: Callable[[int, int], None]) -> None:
        """Prepare an engine; :meth:`start` starts it.

        Args:
            encoder: the model.
            waiting: maximum number of requests that wait or run.
            on_token: called after each run with the number of tokens that were read, and with 0 for those written.
        """
        self._encoder, self._waiting, self._on_token = encoder, max(waiting, 1), on_token
        self._queue = _Queue()
        self._open: set[_Request] = set()
        self._condition = threading.Condition()
        self._ends = False
        self._thread = threading.Thread(target=self._loop, name="nnefc encoder", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread after its current run; requests that wait get no answer."""
        with self._condition:
            self._ends = True
            self._condition.notify()
        self._thread.join()

    async def results(self, rows: Sequence[Row]) -> np.ndarray:
        """Queue the texts of a request and return their results, `[texts, size]` of float32.

        Raises:
            Refused: too many requests wait, or a run failed.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str | None] = loop.create_future()

        def end(error: str | None) -> None:
            if not ended.done():
                ended.set_result(error)

        def done(error: str | None) -> None:
            loop.call_soon_threadsafe(end, error)

        order = sorted(range(len(rows)), key=lambda n: (len(rows[n].tokens), -n))
        request = _Request(rows, order, np.empty((len(rows), self._encoder.size), np.float32), len(rows), done)
        with self._condition:
            if len(self._open) >= self._waiting:
                raise Refused(FailureKind.BUSY, "too many requests wait for this model")
            self._open.add(request)
            self._queue.requests.append(request)
            self._condition.notify()
        try:
            error = await ended
        finally:
            self._drop(request)
        if error is not None:
            raise Refused(FailureKind.FAILED, f"the model failed: {error}")
        return request.results

    def _drop(self, request: _Request) -> None:
        """Remove a request that is answered, or whose client has gone."""
        with self._condition:
            self._open.discard(request)
            if request in self._queue.requests:
                self._queue.requests.remove(request)

    def _loop(self) -> None:
        while True:
            with self._condition:
                while not self._ends and not self._queue.requests:
                    self._condition.wait()
                if self._ends:
                    return
                chosen = self._queue.batch(self._encoder)
            try:
                self._run(chosen)
            except RunError as error:
                self._fail(chosen, str(error))
            except Exception:  # the thread must go on, or all requests would wait forever
                _LOG.exception("an encoder failed")
                self._fail(chosen, "the server has written why to its log")

    def _run(self, chosen: Sequence[tuple[_Request, int]]) -> None:
        rows = [request.rows[n] for request, n in chosen]
        found = self._encoder.results(rows)
        self._on_token(sum(len(row.tokens) for row in rows), 0)
        for (request, n), result in zip(chosen, found, strict=True):
            request.results[n] = result
            request.missing -= 1
            if not request.missing:
                request.done(None)

    def _fail(self, chosen: Sequence[tuple[_Request, int]], error: str) -> None:
        for request in dict.fromkeys(request for request, _ in chosen):
            self._drop(request)
            request.done(error)
