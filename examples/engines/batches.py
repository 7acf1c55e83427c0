"""Gathers single requests into batches while the batch before them runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

__all__ = ["Batches"]

WAIT = 0.01
"""Seconds that a batch waits for further requests where it would be smaller than allowed."""


class Batches:
    """Runs a function on batches of requests, one batch at a time.

    A batch is closed when it begins to run, and not so many milliseconds after its first request, as `serve.batch`
    closes it: of clients that send a request for each answer, requests that arrived apart once, as after the loss of a
    machine, would be batches of one request forever.

    Args:
        run: takes the requests of a batch, and returns an answer for each.
        maximum: of the requests of a batch.
    """

    def __init__(self, run: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]], maximum: int) -> None:
        self._run, self._maximum = run, maximum
        self._waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def answer(self, request: Any) -> Any:
        """Returns the answer to a request, which waits for the batch that is running."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            if len(self._waiting) < self._maximum:
                await asyncio.sleep(WAIT)
            count = min(self._maximum, len(self._waiting))
            taken = [pair for pair in (self._waiting.popleft() for _ in range(count)) if not pair[1].done()]
            try:
                found = await self._run([request for request, _ in taken]) if taken else []
            except Exception as error:  # the requests of this batch alone fail
                for _, answer in taken:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), each in zip(taken, found, strict=True):
                if not answer.done():
                    answer.set_result(each)
