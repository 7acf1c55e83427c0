"""Tracks HTTP connections from their first byte on, so that slow headers and bodies do not exhaust the server.

A connection is *idle* (no request), *arriving* (a request has begun and is incomplete) or *answering*. An arriving
request has deadlines: one for the header, and a minimum rate for the body. Idle and arriving connections may be closed
in favor of others, by the limits of :class:`Incoming`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.incoming import Arriving, Incoming, network_of

__all__ = ["Connection", "Connections"]

_HEADER_SECONDS = 10.0
"""From a header's first byte to its last."""

_RATE_SECONDS = 5.0
"""How long a body may arrive, or an answer be read, at less than the minimum rate."""

_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nContent-Length: 66\r\nConnection: close\r\n\r\n"
    b'{"error": "the request takes longer to arrive than there is time"}'
)


class Connections:
    """Makes a watched connection for each that is accepted; what speaks HTTP on it is made by `handler`."""

    def __init__(self, handler: Callable[[], asyncio.Protocol], incoming: Incoming) -> None:
        self._handler, self._incoming = handler, incoming
        self._open: dict[object, Connection] = {}

    def __call__(self) -> asyncio.Protocol:
        return Connection(self._handler(), self._incoming, self._open)

    def of(self, request: web.Request) -> Connection:
        """The connection of a request.

        Raises:
            CancelledError: it is closed.
        """
        found = self._open.get(request.transport)
        if found is None:
            raise asyncio.CancelledError
        return found


class Connection(asyncio.Protocol):
    """One connection, between its transport and what speaks HTTP on it."""

    def __init__(self, handler: asyncio.Protocol, incoming: Incoming, opened: dict[object, Connection]) -> None:
        self._handler, self._incoming, self._opened = handler, incoming, opened
        self._transport: Any = None
        self._address: str | None = None
        self._arriving: Arriving | None = None
        self._idle = self._silent = True
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._opened[transport] = self
        peer = transport.get_extra_info("peername")
        self._address = network_of(str(peer[0])) if isinstance(peer, tuple) and peer else None
        self._arriving = self._incoming.begin(self._address, self._give_up)  # nothing was asked on it before
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._idle:
            self._idle = self._silent = False
            if self._arriving is None or self._arriving.address is None:  # else it is the first request, as before
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
        self._handler.connection_lost(error)

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

    async def body(self, request: web.Request, largest: int, slowest: int, until: float) -> bytearray:
        """Read a request's body, of at most `largest` bytes, at `slowest` bytes per second or faster.

        Raises:
            Refused: it is larger or slower, or not there at the time `until`.
        """
        if (request.content_length or 0) > largest:
            raise _too_large(largest)
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
                raise _too_large(largest)
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


def _too_large(largest: int) -> Refused:
    return Refused(FailureKind.TOO_LARGE, f"the body has more than {largest:,} bytes")


def _too_slow(slowest: int) -> Refused:
    return Refused(
        FailureKind.LATE,
        f"the request takes longer to arrive than there is time for it, or arrives at less than {slowest:,} bytes per "
        "second",
    )
