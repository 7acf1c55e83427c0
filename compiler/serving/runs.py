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

from nnefc.loader import RunError, SessionPool
from nnefc.serving.values import Array

__all__ = ["Measured", "Runs"]

Arrays = Mapping[str, Array]


class Measured(Protocol):
    """Called with measurements of runs."""

    def ran(self, waits: Sequence[float], rows: int, seconds: float) -> None:
        """Called after a run: how long each of its requests waited for it, how many rows they had, how long it took."""


@dataclass(eq=False)
class _Request:
    """Inputs by name, how many rows they have, and what they must have in common with others of one batch."""

    inputs: Arrays
    rows: int
    key: object
    result: asyncio.Future[Arrays]
    since: float = field(default_factory=time.monotonic)


class Runs:
    """The runs of one network, as many at a time as it has sessions; used by one event loop.

    The oldest request runs next. Where batches are made, those of the same shapes that wait behind it run with it, in
    the order in which they came, as many as fit. While all sessions are busy, batches become larger by themselves; when
    one is free, the oldest request waits for others as long as the delay says.

    Args:
        pool: the sessions.
        sessions: how many there are.
        rows: the most in a batch; 1: each request runs alone.
        delay: seconds that a request waits for others though a session is free.
        measured: callback for each run.
    """

    def __init__(self, pool: SessionPool, sessions: int, rows: int, delay: float, measured: Measured) -> None:
        self._pool = pool
        self._free = sessions
        self._rows = rows
        self._delay = delay
        self._measured = measured
        self._waiting: deque[_Request] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """How many have begun and are not over, also those whose requests have been given up."""
        return len(self._tasks)

    async def run(self, inputs: Arrays) -> Arrays:
        """The outputs by name. A request whose caller is cancelled before it runs does not run.

        Raises:
            RunError: the network's code fails on these inputs.
            MemoryError: there is no memory for them.
        """
        loop = asyncio.get_running_loop()
        rows, key = 1, None
        if self._rows > 1:
            rows = len(next(iter(inputs.values())))
            key = tuple(array.shape[1:] for array in inputs.values())
        request = _Request(inputs, rows, key, loop.create_future())
        self._waiting.append(request)
        self._start()
        try:
            return await request.result
        except asyncio.CancelledError:
            with suppress(ValueError):  # it may have begun
                self._waiting.remove(request)  # its inputs are free now, not when its turn comes
            raise

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
            tail = self._waiting[0].since + self._delay - time.monotonic()
            if self._rows > 1 and tail > 0 and sum(request.rows for request in batch) < self._rows:
                self._timer = asyncio.get_running_loop().call_later(tail, self._start)
                return
            taken = set(map(id, batch))
            self._waiting = deque(request for request in self._waiting if id(request) not in taken)
            self._free -= 1
            task = asyncio.create_task(self._run(batch))
            self._tasks.add(task)  # an event loop keeps weak references to tasks only
            task.add_done_callback(self._tasks.discard)

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
            self._start()

    async def _in_session(self, batch: Sequence[_Request]) -> list[Arrays]:
        call = partial(_run_joined, self._pool, [request.inputs for request in batch], [r.rows for r in batch])
        return await asyncio.wrap_future(self._pool.begin(call))


def _settle(request: _Request, result: Arrays | Exception) -> None:
    if request.result.done():
        return
    if isinstance(result, Exception):
        request.result.set_exception(result)
    else:
        request.result.set_result(result)


def _run_joined(pool: SessionPool, inputs: Sequence[Arrays], rows: Sequence[int]) -> list[Arrays]:
    """Run once on all inputs, one after the other along their first axis; returns what belongs to each."""
    if len(inputs) == 1:
        return [pool.run(inputs[0])]
    joined = {name: np.concatenate([each[name] for each in inputs]) for name in inputs[0]}
    outputs = pool.run(joined)
    ends = np.cumsum(rows).tolist()
    return [
        {name: array[end - count : end] for name, array in outputs.items()}
        for count, end in zip(rows, ends, strict=True)
    ]
