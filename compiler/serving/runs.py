"""Queues requests for a free session, and batches them where the network allows it."""

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
"""Seconds that a request waits for others at most, unless the operator says otherwise."""

_CHANGE = 0.1
"""The weight of the latest value in an average."""


class Measured(Protocol):
    """Called with measurements of runs."""

    def ran(self, waits: Sequence[float], rows: int, seconds: float) -> None:
        """Called after a run: how long each of its requests waited for it, how many rows they had, how long it took."""


@dataclass(eq=False)
class _Request:
    """Inputs by name, wanted outputs, rows, and what the request must have in common with others of one batch."""

    inputs: Arrays
    outputs: Outputs
    rows: int
    key: object
    result: asyncio.Future[Arrays]
    since: float = field(default_factory=time.monotonic)
    running: _Running | None = None


class _Running:
    """A run that has begun in another thread, or is about to."""

    def __init__(self, batch: Sequence[_Request]) -> None:
        self._batch = batch
        self._session: Model | None = None
        self._ended = False

    def run(self, pool: SessionPool, inputs: Arrays, outputs: Outputs) -> dict[str, Array]:
        """Run in a free session, unless it has been ended already."""
        with pool.session() as session:
            self._session = session
            try:
                if self._ended:
                    raise RunCancelled("the run was ended before it began")
                return session.run(inputs, outputs=outputs)
            finally:
                self._session = None

    def end_if_unwanted(self) -> None:
        """End it if all its requests have been given up."""
        if all(request.result.done() for request in self._batch):
            self.end()

    def end(self) -> None:
        """End it before its next kernel, where the library can."""
        self._ended = True
        if (session := self._session) is not None:
            with suppress(RunError):
                session.cancel()


class Runs:
    """The runs of one network, as many at a time as it has sessions; used by one event loop.

    The oldest request runs next. Where batches are made, those of the same shapes that wait behind it run with it, in
    the order in which they came, as many as fit. While all sessions are busy, batches become larger by themselves; when
    one is free, the oldest request waits for others as long as the delay says. Without a delay of the operator's it
    waits while fewer requests wait than have been there lately, for half of a run, at most a millisecond: a client
    that asks for one thing after the other never waits.

    Runs that have been quick lately (see :class:`QuickRuns`) are made at once, in the thread of the event loop: waking
    another one takes longer.

    Args:
        pool: the sessions.
        sessions: how many there are.
        rows: the maximum in a batch; 1: each request runs alone.
        delay: seconds that a request waits for others though a session is free; None: as described above.
        measured: callback for each run.
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
        self._expected = 1.0  # requests that are there at a time, lately
        self._seconds = 0.0  # of a run, lately
        self._waiting: deque[_Request] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_running: set[_Running] = set()

    @property
    def running(self) -> int:
        """How many have begun and are not over, also those whose requests have been given up."""
        return len(self._tasks)

    @property
    def may_run_at_once(self) -> bool:
        """Whether a run may be made at once, if it is expected to be quick: none is before it."""
        waits_for_others = self._delay and self._rows > 1  # as the operator wants
        return bool(self._free and not self._waiting and self._quick.are_made and not waits_for_others)

    def run_at_once(self, inputs: Arrays, outputs: Outputs = None) -> Arrays | None:
        """The outputs by name, of a run that is expected to be quick; None if it is not, or if others are before it.

        Raises:
            RunError, MemoryError: as :meth:`run`.
        """
        if not self.may_run_at_once or not self._quick.expects(inputs, outputs):
            return None
        begin = time.monotonic()
        try:
            results = self._quick.run(inputs, outputs)
        except RunCancelled:
            return None  # it took far longer than expected
        self._measured.ran([0.0], len(next(iter(inputs.values()))) if self._rows > 1 else 1, time.monotonic() - begin)
        return results

    async def run(self, inputs: Arrays, outputs: Outputs = None) -> Arrays:
        """The outputs by name, all or these. A request whose caller is cancelled before it runs does not run.

        Raises:
            RunError: the network's code fails on these inputs.
            MemoryError: there is no memory for them.
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
            with suppress(ValueError):  # it may have begun
                self._waiting.remove(request)  # its inputs are free now, not when its turn comes
            if request.running is not None:
                request.running.end_if_unwanted()
            raise

    def cancel(self) -> None:
        """End all runs that are under way."""
        for running in list(self._all_running):
            running.end()

    def _start(self) -> None:
        """Start the runs that there are free sessions for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free and self._waiting:
            if self._waiting[0].result.done():  # its caller has gone
                self._waiting.popleft()
                continue
            batch = self._next_batch()
            if self._rows > 1 and (tail := self._tail(batch)) > 0:
                self._timer = asyncio.get_running_loop().call_later(tail, self._start)
                return
            taken = set(map(id, batch))
            self._waiting = deque(request for request in self._waiting if id(request) not in taken)
            self._free -= 1
            self._under_way += len(batch)
            task = asyncio.create_task(self._run(batch))
            self._tasks.add(task)  # an event loop keeps weak references to tasks only
            task.add_done_callback(self._tasks.discard)

    def _tail(self, batch: Sequence[_Request]) -> float:
        """Returns how long a batch waits for more requests."""
        if sum(request.rows for request in batch) >= self._rows:
            return 0.0
        delay = self._delay
        if delay is None:
            delay = min(_MAX_DELAY, self._seconds / 2) if len(batch) + 1 <= self._expected else 0.0
        return batch[0].since + delay - time.monotonic() if delay else 0.0

    def _next_batch(self) -> list[_Request]:
        """The oldest request and those that can run with it."""
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
                for request in batch:  # whose values the network does not take, this tells
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
    """Run once on the inputs of all requests, one after the other along their first axis.

    Returns what belongs to each, and the processor time that this thread took.
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
