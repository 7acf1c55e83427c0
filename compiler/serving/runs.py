"""Queues the requests of one network for a free session, and batches them where the network allows it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from nnefc.loader import Model, RunCancelled, RunError, SessionPool
from nnefc.serving.quick_runs import Outputs, QuickRuns
from nnefc.serving.values import Array

__all__ = ["Measured", "Runs"]

Arrays = Mapping[str, Array]

_MAX_DELAY = 1e-3
"""Maximum seconds that a request waits for others of its batch, unless the operator sets a delay."""

_CHANGE = 0.1
"""The weight of the latest value in an exponential moving average."""


class Measured(Protocol):
    """Called with measurements of runs."""

    def ran(self, waits: Sequence[float], rows: int, seconds: float) -> None:
        """Called after a run.

        Args:
            waits: seconds that each of its requests waited.
            rows: of all its requests.
            seconds: that the run took.
        """


@dataclass(eq=False)
class _Request:
    """A request that waits or runs.

    Attributes:
        inputs: arrays by name.
        outputs: names of the outputs to compute; None: all.
        rows: the size of the first axis where requests are batched, else 1.
        key: equal for requests that can be in one batch; None: the request runs alone.
        result: outputs by name, or the error.
        since: when the request was queued; seconds of `time.monotonic`.
        running: the run that computes it, once it has begun.
    """

    inputs: Arrays
    outputs: Outputs
    rows: int
    key: object
    result: asyncio.Future[Arrays]
    since: float = field(default_factory=time.monotonic)
    running: _Running | None = None


class _Running:
    """A run in another thread, which may not have begun yet."""

    def __init__(self, batch: Sequence[_Request]) -> None:
        self._batch = batch
        self._session: Model | None = None
        self._ended = False

    def run(self, pool: SessionPool, inputs: Arrays, outputs: Outputs) -> dict[str, Array]:
        """Run in a free session.

        Raises:
            RunCancelled: :meth:`end` was called before the run began, or stopped it.
            RunError, MemoryError: as the session's runs.
        """
        with pool.session() as session:
            self._session = session
            try:
                if self._ended:
                    raise RunCancelled("the run was ended before it began")
                return session.run(inputs, outputs=outputs)
            finally:
                self._session = None

    def end_if_unwanted(self) -> None:
        """Cancel the run if the callers of all its requests have gone."""
        if all(request.result.done() for request in self._batch):
            self.end()

    def end(self) -> None:
        """Cancel the run; it ends before its next kernel, where the library can."""
        self._ended = True
        if (session := self._session) is not None:
            with suppress(RunError):
                session.cancel()


class Runs:
    """The queue of one network's requests, and its runs: as many at a time as it has sessions. Used by one event loop.

    The oldest request runs next. Where batches are allowed, the requests of the same shapes that wait behind it join
    its batch in their order, as many as fit. While all sessions are busy, requests accumulate and batches grow. When a
    session is free, the oldest request waits for others for the delay. Without a delay set by the operator, it waits
    only while fewer requests wait than the recent average, and for half the time of a run, a millisecond at most. So a
    client that sends its requests one after the other never waits.

    Runs that are expected to be quick (see :class:`QuickRuns`) run directly in the thread of the event loop, since
    waking another thread takes longer.

    Args:
        pool: the sessions.
        sessions: how many there are.
        rows: the maximum in a batch; 1: each request runs alone.
        delay: seconds that a request waits for others while a session is free; None: as described above.
        measured: called after each run.
        quick: the session for quick runs.
    """

    def __init__(
        self, pool: SessionPool, sessions: int, rows: int, delay: float | None, measured: Measured, quick: QuickRuns
    ) -> None:
        self._pool = pool
        self._free = sessions
        self._under_way = 0
        self._rows = rows
        self._delay = delay
        self._measured = measured
        self._quick = quick
        self._expected = 1.0  # moving average of the number of requests that wait or run
        self._seconds = 0.0  # moving average of the processor time of a run
        self._waiting: deque[_Request] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_running: set[_Running] = set()

    @property
    def running(self) -> int:
        """The number of runs that have begun and not ended, those whose callers have gone included."""
        return len(self._tasks)

    @property
    def may_run_at_once(self) -> bool:
        """Whether a quick run may begin now: a session is free, no request waits, and no delay is set for batches."""
        waits_for_others = self._delay and self._rows > 1
        return bool(self._free and not self._waiting and self._quick.are_made and not waits_for_others)

    def run_at_once(self, inputs: Arrays, outputs: Outputs = None) -> Arrays | None:
        """Run directly in this thread, and return the outputs by name.

        Returns None if the run is not expected to be quick, other requests come first, or the watchdog cancelled it.

        Raises:
            RunError, MemoryError: as :meth:`run`.
        """
        if not self.may_run_at_once or not self._quick.expects(inputs, outputs):
            return None
        begin = time.monotonic()
        try:
            results = self._quick.run(inputs, outputs)
        except RunCancelled:
            return None
        self._measured.ran([0.0], len(next(iter(inputs.values()))) if self._rows > 1 else 1, time.monotonic() - begin)
        return results

    async def run(self, inputs: Arrays, outputs: Outputs = None) -> Arrays:
        """Queue a request, and return its outputs by name: all, or those named.

        If the caller is cancelled, a request that waits is removed, and a run that no other request needs is cancelled.

        Raises:
            RunError: the network's code fails on these inputs.
            MemoryError: there is not enough memory for the run.
        """
        loop = asyncio.get_running_loop()
        rows, key = 1, None
        if self._rows > 1:
            rows = len(next(iter(inputs.values())))
            key = outputs, *(array.shape[1:] for array in inputs.values())
        request = _Request(inputs, outputs, rows, key, loop.create_future())
        self._waiting.append(request)
        self._expected += _CHANGE * (len(self._waiting) + self._under_way - self._expected)
        self._start()
        try:
            return await request.result
        except asyncio.CancelledError:
            with suppress(ValueError):  # the request may have left the queue
                self._waiting.remove(request)  # frees its inputs now instead of at its turn
            if request.running is not None:
                request.running.end_if_unwanted()
            raise

    def cancel(self) -> None:
        """Cancel all runs."""
        for running in list(self._all_running):
            running.end()

    def _start(self) -> None:
        """Start runs while there are free sessions, or set a timer for a batch that waits for more requests."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free and self._waiting:
            if self._waiting[0].result.done():  # the caller has gone
                self._waiting.popleft()
                continue
            batch = self._next_batch()
            if self._rows > 1 and (left := self._delay_left(batch)) > 0:
                self._timer = asyncio.get_running_loop().call_later(left, self._start)
                return
            taken = set(map(id, batch))
            self._waiting = deque(request for request in self._waiting if id(request) not in taken)
            self._free -= 1
            self._under_way += len(batch)
            task = asyncio.create_task(self._run(batch))
            self._tasks.add(task)  # an event loop keeps weak references to tasks only
            task.add_done_callback(self._tasks.discard)

    def _delay_left(self, batch: Sequence[_Request]) -> float:
        """Return how many seconds a batch still waits for more requests; 0 or less: it runs now."""
        if sum(request.rows for request in batch) >= self._rows:
            return 0.0
        delay = self._delay
        if delay is None:
            delay = min(_MAX_DELAY, self._seconds / 2) if len(batch) + 1 <= self._expected else 0.0
        return batch[0].since + delay - time.monotonic() if delay else 0.0

    def _next_batch(self) -> list[_Request]:
        """Return the oldest request and those that can join its batch."""
        first = self._waiting[0]
        batch, rows = [first], first.rows
        if first.key is not None and rows < self._rows:
            for request in list(self._waiting)[1:]:
                if request.key == first.key and rows + request.rows <= self._rows and not request.result.done():
                    batch.append(request)
                    rows += request.rows
        return batch

    async def _run(self, batch: Sequence[_Request]) -> None:
        begin = time.monotonic()
        try:
            try:
                results = await self._in_session(batch)
            except RunError:
                if len(batch) == 1:
                    raise
                for request in batch:  # run each alone: only those whose own values are wrong get the error
                    if request.result.done():
                        continue
                    try:
                        (result,) = await self._in_session([request])
                        _settle(request, result)
                    except Exception as error:
                        _settle(request, error)
            else:
                for request, result in zip(batch, results, strict=True):
                    _settle(request, result)
            waits = [begin - request.since for request in batch]
            self._measured.ran(waits, sum(request.rows for request in batch), time.monotonic() - begin)
        except Exception as error:
            for request in batch:
                _settle(request, error)
        finally:
            self._free += 1
            self._under_way -= len(batch)
            self._start()

    async def _in_session(self, batch: Sequence[_Request]) -> list[Arrays]:
        running = _Running(batch)
        for request in batch:
            request.running = running
        call = partial(_run_joined, self._pool, running, batch)
        self._all_running.add(running)
        results: list[Arrays]
        try:
            results, seconds = await asyncio.wrap_future(self._pool.begin(call))
        finally:
            self._all_running.discard(running)
        self._seconds += _CHANGE * (seconds - self._seconds)
        if len(batch) == 1:
            self._quick.took(batch[0].inputs, seconds, batch[0].outputs)
        return results


def _settle(request: _Request, result: Arrays | Exception) -> None:
    if request.result.done():
        return
    if isinstance(result, Exception):
        request.result.set_exception(result)
    else:
        request.result.set_result(result)


def _run_joined(pool: SessionPool, running: _Running, batch: Sequence[_Request]) -> tuple[list[Arrays], float]:
    """Run once on the inputs of all requests, concatenated along their first axis.

    Returns the outputs of each request, and the processor time of this thread in seconds.
    """
    begin, inputs, wanted = time.thread_time(), [request.inputs for request in batch], batch[0].outputs
    if len(inputs) == 1:
        return [running.run(pool, inputs[0], wanted)], time.thread_time() - begin
    joined = {name: np.concatenate([each[name] for each in inputs]) for name in inputs[0]}
    outputs = running.run(pool, joined, wanted)
    seconds = time.thread_time() - begin
    rows = [request.rows for request in batch]
    ends = np.cumsum(rows).tolist()
    results: list[Arrays] = [
        {name: array[end - count : end] for name, array in outputs.items()}
        for count, end in zip(rows, ends, strict=True)
    ]
    return results, seconds
