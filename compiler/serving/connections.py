"""Tracks HTTP connections from their first byte on, so that slow headers and bodies do not exhaust the server.

A connection is *idle* (no request), *arriving* (a request has begun and is incomplete) or *answering*. An arriving
request has a deadline for its header and a minimum rate for its body. Idle and arriving connections may be closed
in favor of others, by the limits of :class:`Incoming`. An answer has a minimum rate at which the client must read it.

A :class:`Connection` stands between the transport and aiohttp's protocol (the *handler*), and answers some requests
itself (`direct_requests.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web

from nnefc.serving.direct_requests import DirectRequest, direct_request
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.incoming import Arriving, Incoming, network_of

__all__ = ["Connection", "Connections", "too_large"]

_HEADER_SECONDS = 10.0
"""Maximum time from a header's first byte to its last."""

_RATE_SECONDS = 5.0
"""The period over which the rate of a body or an answer is measured."""

_PAUSE, _MAX_PAUSE, _MAX_REFUSALS = 0.01, 0.5, 10
"""Backoff for a client that ignores `Retry-After`: the delay of a refusal in seconds doubles with each one."""

_POLL_SECONDS = 0.005
"""Seconds between two checks whether the client has read an answer."""

_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nContent-Length: 66\r\nConnection: close\r\n\r\n"
    b'{"error": "the request takes longer to arrive than there is time"}'
)


Answering = Callable[["Connection", DirectRequest, bytes], "Coroutine[Any, Any, None] | None"]
"""Answers a complete request, whose head and body are given, on its connection.

Returns None if the answer has been written, else a coroutine that writes it.
"""


class Connections:
    """Makes a :class:`Connection` for each that the listener accepts, as its protocol factory.

    Args:
        handler: makes aiohttp's protocol for a connection.
        incoming: the limits of incomplete requests.
        idle: seconds without a request after which a connection is closed.

    Attributes:
        open: the open connections by transport.
        answer: answers complete requests without aiohttp; None: aiohttp answers all.
    """

    def __init__(self, handler: Callable[[], asyncio.Protocol], incoming: Incoming, idle: float) -> None:
        self._handler, self.incoming, self.idle = handler, incoming, idle
        self.open: dict[object, Connection] = {}
        self.answer: Answering | None = None

    def __call__(self) -> asyncio.Protocol:
        return Connection(self._handler(), self)

    def of(self, request: web.Request) -> Connection:
        """Return the connection of a request.

        Raises:
            CancelledError: the connection is closed.
        """
        found = self.open.get(request.transport)
        if found is None:
            raise asyncio.CancelledError
        return found


class Connection(asyncio.Protocol):
    """An HTTP connection: forwards the events of its transport to aiohttp's protocol, `handler`.

    An inference request that arrives completely in one read, while nothing else is asked or answered on the connection,
    bypasses aiohttp: `all_.answer` answers it. Data that arrives meanwhile is held back.
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
        transport.set_write_buffer_limits(high=0)  # makes uvloop write without delay, as asyncio always does
        peer = transport.get_extra_info("peername")
        self._address = network_of(str(peer[0])) if isinstance(peer, tuple) and peer else None
        self._arriving = self._incoming.begin(None, self._give_up)  # one client may open hundreds of idle connections
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
        """Begin to answer a request that has arrived completely; return False if aiohttp has to answer it."""
        # aiohttp's protocol is free while it waits for its next request, or if it has never got one
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
        """Handle the data that arrived while a request was answered."""
        if not self._transport.is_closing():
            held, self._held = self._held, b""
            self._transport.resume_reading()
            self.data_received(held)

    def write(self, data: bytes) -> bool:
        """Write an answer; return whether nothing is left to wait for: all of it is sent, or the connection is closed.

        If not, the caller awaits :meth:`drained`.
        """
        if self._transport.is_closing():
            return True
        self._transport.write(data)
        return not self._transport.get_write_buffer_size()

    async def send(self, data: bytes, until: float, slowest: int) -> None:
        """Write an answer, and wait until the client has read it.

        Args:
            data: the answer.
            until: the deadline, in the event loop's time.
            slowest: minimum rate in bytes per second.

        Raises:
            Refused: as :meth:`drained`.
        """
        if not self.write(data):
            await self.drained(len(data), until, slowest)

    async def drained(self, count: int, until: float, slowest: int) -> None:
        """Wait until the client has read an answer of `count` bytes that has been written.

        Raises:
            Refused: as :meth:`sending`.
        """
        async with self.sending(slowest, until) as sends:
            sends(count)
            while self._transport.get_write_buffer_size() and not self._transport.is_closing():
                await asyncio.sleep(_POLL_SECONDS)

    @asynccontextmanager
    async def sending(self, slowest: int, until: float | None = None) -> AsyncIterator[Callable[[int], None]]:
        """Abort the connection if the client does not read in time what the block sends: unread bytes take memory.

        The value of the context is a function to call with the number of bytes of each part, before it is written.

        Args:
            slowest: minimum rate in bytes per second.
            until: the deadline of the block, in the event loop's time; None: only the rate is limited.

        Raises:
            Refused: the client reads too slowly, or the deadline has passed.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(until) as limit:
                with self.watched(slowest, lambda: limit.reschedule(loop.time())) as sends:
                    yield sends
        except TimeoutError:
            self._transport.abort()
            raise Refused(FailureKind.LATE, "the answer takes longer to be read than there is time for it") from None

    async def refuse(self, data: bytes, until: float, slowest: int) -> None:
        """Send an answer that asks the client to try again later, after a delay that grows if the client does so early.

        Raises:
            Refused: as :meth:`drained`.
        """
        if self._refusals:
            await asyncio.sleep(min(_MAX_PAUSE, _PAUSE * 2.0**self._refusals))
        self._refusals = min(self._refusals + 1, _MAX_REFUSALS)
        self._refused = asyncio.get_running_loop().time()
        await self.send(data, until, slowest)

    def close(self) -> None:
        """Close the connection after all written data has been sent."""
        self._transport.close()

    def _begin_idle(self) -> None:
        """Start the timer that closes the connection unless a request begins."""
        self._idle_since = asyncio.get_running_loop().time()
        if self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(self._all.idle, self._idle_long_enough)

    def _idle_long_enough(self) -> None:
        self._idle_timer = None
        left = self._idle_since + self._all.idle - asyncio.get_running_loop().time()
        if not self._idle:
            return  # requests and answers have limits of their own
        if left > 0:
            self._idle_timer = asyncio.get_running_loop().call_later(left, self._idle_long_enough)
        else:
            self._forget()
            self._transport.close()

    def begun(self) -> None:
        """Note that a request's header has arrived."""
        self._idle = self._silent = False
        self._no_deadline()

    def arrived(self) -> None:
        """Note that a request has arrived completely."""
        self._forget()

    def answered(self, request: web.Request) -> None:
        """Note that a request is answered. If its body is incomplete, aiohttp still discards data for some seconds."""
        if self._transport not in self._opened:
            return
        self._forget()
        whole = request.content.is_eof()
        self._idle, self._silent = whole, True
        self._wait(None if whole else self._address)
        self._begin_idle()

    async def body(self, request: web.Request, largest: int, slowest: int, until: float) -> bytearray:
        """Read a request's body.

        Args:
            request: the request.
            largest: maximum bytes of the body.
            slowest: minimum rate in bytes per second.
            until: the deadline, in the event loop's time.

        Raises:
            Refused: the body is larger, arrives more slowly, or is incomplete at the deadline.
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
        """Call `late` if the client reads what the block sends at less than `slowest` bytes per second.

        The value of the context is a function to call with the number of bytes of each part, before it is written.
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
        """Register the connection as one that may be closed in favor of others."""
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
        """Close the connection; if a request was incomplete, answer it with status 408 first."""
        self._forget()
        if self._transport.is_closing():
            return
        if not self._silent:
            self._transport.write(_TOO_SLOW)
        self._transport.close()


def too_large(largest: int) -> Refused:
    """Return the error for a body of more than `largest` bytes."""
    return Refused(FailureKind.TOO_LARGE, f"the body has more than {largest:,} bytes")


def _too_slow(slowest: int) -> Refused:
    return Refused(
        FailureKind.LATE,
        f"the request takes longer to arrive than there is time for it, or arrives at less than {slowest:,} bytes per "
        "second",
    )
