"""Tracks HTTP connections from their first byte on, so that slow headers and bodies do not exhaust the server.

A connection is *idle* (no request), *arriving* (a request has begun and is incomplete) or *answering*. An arriving
request has deadlines: one for the header, and a minimum rate for the body. Idle and arriving connections may be closed
in favor of others, by the limits of :class:`Incoming`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from nnefc.serving.direct_requests import DirectRequest, direct_request
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.incoming import Arriving, Incoming, network_of

__all__ = ["Connection", "Connections", "answer_unread", "too_large"]

_HEADER_SECONDS = 10.0
"""From a header's first byte to its last."""

_RATE_SECONDS = 5.0
"""How long a body may arrive, or an answer be read, at less than the minimum rate."""

_PAUSE, _MAX_PAUSE, _MOST_REFUSALS = 0.01, 0.5, 10
"""Seconds that clients wait for a refusal that ask again before the time that `Retry-After` says."""

_POLL_SECONDS = 0.005
"""Between looks at whether an answer has been read that was not read at once."""

_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nContent-Length: 66\r\nConnection: close\r\n\r\n"
    b'{"error": "the request takes longer to arrive than there is time"}'
)


Answering = Callable[["Connection", DirectRequest, bytes], "Coroutine[Any, Any, None] | None"]
"""Answers a request that has arrived whole, on its connection: at once, or by the coroutine that it returns."""


class Connections:
    """Makes a watched connection for each that is accepted.

    Args:
        handler: makes what speaks HTTP on a connection.
        incoming: the limits of requests that have not arrived.
        idle: seconds after which a connection is closed on which nothing is asked.
    """

    def __init__(self, handler: Callable[[], asyncio.Protocol], incoming: Incoming, idle: float) -> None:
        self._handler, self.incoming, self.idle = handler, incoming, idle
        self.open: dict[object, Connection] = {}
        self.answer: Answering | None = None

    def __call__(self) -> asyncio.Protocol:
        return Connection(self._handler(), self)

    def of(self, request: web.Request) -> Connection:
        """The connection of a request.

        Raises:
            CancelledError: it is closed.
        """
        found = self.open.get(request.transport)
        if found is None:
            raise asyncio.CancelledError
        return found


class Connection(asyncio.Protocol):
    """One connection, between its transport and what speaks HTTP on it.

    A request for a run that arrives in one piece, while nothing else is asked or answered on the connection, does not
    get to what speaks HTTP: it is answered by `all_.answer`. What arrives meanwhile waits.
    """

    def __init__(self, handler: asyncio.Protocol, all_: Connections) -> None:
        self._handler, self._all = handler, all_
        self._incoming, self._opened = all_.incoming, all_.open
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None
        self._held = b""
        self._unused = True
        self._refusals, self._refused = 0, 0.0
        self._idle_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._address: str | None = None
        self._arriving: Arriving | None = None
        self._idle = self._silent = True
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._opened[transport] = self
        transport.set_write_buffer_limits(high=0)  # uvloop writes at once then, as asyncio always does
        peer = transport.get_extra_info("peername")
        self._address = network_of(str(peer[0])) if isinstance(peer, tuple) and peer else None
        self._arriving = self._incoming.begin(None, self._give_up)  # hundreds of one client may come at once
        self._handler.connection_made(transport)
        self._begin_idle()

    def data_received(self, data: bytes) -> None:
        if self._task is not None or self._held:
            self._held += data
            self._transport.pause_reading()
            return
        if self._idle and self._begin(data):
            return
        self._unused = False
        if self._idle:
            self._idle = self._silent = False
            self._wait(self._address)
            self._deadline = asyncio.get_running_loop().call_later(_HEADER_SECONDS, self._give_up)
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._opened.pop(self._transport, None)
        self._forget()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._handler.connection_lost(error)

    def _begin(self, data: bytes) -> bool:
        """Begins to answer a request that has arrived whole; False if it is for what speaks HTTP."""
        # aiohttp waits for the next request; without this attribute it is asked no more once it has answered one
        is_free = self._unused or getattr(self._handler, "_waiter", None) is not None
        if self._all.answer is None or not is_free or self._transport.get_write_buffer_size():
            return False
        found = direct_request(data)
        if found is None:
            return False
        request, begin = found
        loop = asyncio.get_running_loop()
        if self._refusals and loop.time() - self._refused > 1:
            self._refusals = 0
        body, self._held = data[begin : begin + request.size], data[begin + request.size :]
        if self._held:
            self._transport.pause_reading()
        answering = self._all.answer(self, request, body)
        if answering is not None:
            self._idle = self._silent = False
            self._forget()
            self._task = loop.create_task(answering)
            self._task.add_done_callback(self._direct_end)
            return True
        self._idle_since = loop.time()
        if self._arriving is not None:
            self._arriving.renew()
        if self._held:
            loop.call_soon(self._go_on)  # others have their turns in between
        return True

    def _direct_end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._transport.is_closing():
            return
        if task.cancelled() or task.exception() is not None:
            self._transport.abort()
            return
        self._idle = self._silent = True
        self._wait(None)
        self._begin_idle()
        if self._held:
            self._go_on()

    def _go_on(self) -> None:
        """Reads what has arrived behind a request that is answered."""
        if not self._transport.is_closing():
            held, self._held = self._held, b""
            self._transport.resume_reading()
            self.data_received(held)

    def write(self, data: bytes) -> bool:
        """Send an answer; returns whether all of it has been sent, or cannot be: if not, :meth:`drained` waits."""
        if self._transport.is_closing():
            return True
        self._transport.write(data)
        return not self._transport.get_write_buffer_size()

    async def send(self, data: bytes, until: float, slowest: int) -> None:
        """Send an answer; what is not read at once is waited for.

        Raises:
            Refused: as :meth:`drained`.
        """
        if not self.write(data):
            await self.drained(len(data), until, slowest)

    async def drained(self, count: int, until: float, slowest: int) -> None:
        """Wait until an answer of so many bytes, which has been written, is read.

        Raises:
            Refused: it is not read until this time, or at less than `slowest` bytes per second; the connection is
                closed then.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(until) as limit:
                with self.watched(slowest, lambda: limit.reschedule(loop.time())) as sends:
                    sends(count)
                    while self._transport.get_write_buffer_size() and not self._transport.is_closing():
                        await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            self._transport.abort()
            raise answer_unread() from None

    async def refuse(self, data: bytes, until: float, slowest: int) -> None:
        """Send an answer that asks to try again later, at once; to a client that does not wait, later each time."""
        if self._refusals:
            await asyncio.sleep(min(_MAX_PAUSE, _PAUSE * 2.0**self._refusals))
        self._refusals = min(self._refusals + 1, _MOST_REFUSALS)
        self._refused = asyncio.get_running_loop().time()
        await self.send(data, until, slowest)

    def close(self) -> None:
        """Close the connection when what was written has been sent."""
        self._transport.close()

    def _begin_idle(self) -> None:
        """Close the connection if nothing is asked on it for too long."""
        self._idle_since = asyncio.get_running_loop().time()
        if self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(self._all.idle, self._idle_long_enough)

    def _idle_long_enough(self) -> None:
        self._idle_timer = None
        left = self._idle_since + self._all.idle - asyncio.get_running_loop().time()
        if not self._idle:
            return  # what is arriving or answered has limits of its own
        if left > 0:
            self._idle_timer = asyncio.get_running_loop().call_later(left, self._idle_long_enough)
        else:
            self._forget()
            self._transport.close()

    def begun(self) -> None:
        """Marks that a request's header has arrived."""
        self._idle = self._silent = False
        self._no_deadline()

    def arrived(self) -> None:
        """Marks that a request has arrived completely."""
        self._forget()

    def answered(self, request: web.Request) -> None:
        """Marks that a request is answered; aiohttp discards the unread part of it for some seconds."""
        if self._transport not in self._opened:
            return
        self._forget()
        whole = request.content.is_eof()
        self._idle, self._silent = whole, True
        self._wait(None if whole else self._address)
        self._begin_idle()

    async def body(self, request: web.Request, largest: int, slowest: int, until: float) -> bytearray:
        """Read a request's body, of at most `largest` bytes, at `slowest` bytes per second or faster.

        Raises:
            Refused: it is larger or slower, or not there at the time `until`.
        """
        if (request.content_length or 0) > largest:
            raise too_large(largest)
        loop = asyncio.get_running_loop()
        found, seen, window = bytearray(), 0, loop.time() + _RATE_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(min(until, window)):
                    part = await request.content.readany()
            except TimeoutError:
                now = loop.time()
                if now >= until or len(found) - seen < slowest * _RATE_SECONDS:
                    raise _too_slow(slowest) from None
                seen, window = len(found), now + _RATE_SECONDS
                continue
            if not part:
                self.arrived()
                return found
            found += part
            if len(found) > largest:
                raise too_large(largest)
            if self._arriving is not None:
                self._arriving.add(len(part))
            if (now := loop.time()) >= window:
                if len(found) - seen < slowest * _RATE_SECONDS:
                    raise _too_slow(slowest)
                seen, window = len(found), now + _RATE_SECONDS

    @contextmanager
    def watched(self, slowest: int, late: Callable[[], None]) -> Iterator[Callable[[int], None]]:
        """Call `late` if what is sent in the block is read at less than `slowest` bytes per second.

        What comes with the block is to be called with the number of bytes of each part, before it is written.
        """
        loop = asyncio.get_running_loop()
        queued, before = 0, -math.inf
        timer = loop.call_later(_RATE_SECONDS, lambda: look())

        def add(count: int) -> None:
            nonlocal queued
            queued += count

        def look() -> None:
            nonlocal before, timer
            left = self._transport.get_write_buffer_size()
            if left and queued - left - before < slowest * _RATE_SECONDS:
                late()
                return
            before = queued - left
            timer = loop.call_later(_RATE_SECONDS, look)

        try:
            yield add
        finally:
            timer.cancel()

    def _wait(self, address: str | None) -> None:
        """Be among the connections that may be closed for others."""
        self._forget()
        self._arriving = self._incoming.begin(address, self._give_up)

    def _forget(self) -> None:
        self._no_deadline()
        if self._arriving is not None:
            self._arriving.end()
            self._arriving = None

    def _no_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        """Close the connection, with a reason where something was asked and not answered."""
        self._forget()
        if self._transport.is_closing():
            return
        if not self._silent:
            self._transport.write(_TOO_SLOW)
        self._transport.close()


def answer_unread() -> Refused:
    """The error of an answer that its client does not read."""
    return Refused(FailureKind.LATE, "the answer takes longer to be read than there is time for it")


def too_large(largest: int) -> Refused:
    """The error of a body that exceeds the limit."""
    return Refused(FailureKind.TOO_LARGE, f"the body has more than {largest:,} bytes")


def _too_slow(slowest: int) -> Refused:
    return Refused(
        FailureKind.LATE,
        f"the request takes longer to arrive than there is time for it, or arrives at less than {slowest:,} bytes per "
        "second",
    )
