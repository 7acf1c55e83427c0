"""A server of language models in the process of a replica, to which requests are passed on as they are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from nnefc.serving.event_loop import new_event_loop
from nnefc.serving.server import Server
from nnefc.serving.settings import Listening, Policy

__all__ = ["Answer", "Replica"]

START = 600
"""Seconds in which a library is loaded."""
OF_REQUESTS = ("accept", "authorization", "content-type", "x-api-key")
OF_ANSWERS = ("content-type", "retry-after")
"""Headers that are passed on."""


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    Attributes:
        status: of HTTP.
        headers: those that are passed on.
        parts: of the body, as they come. Who stops reading them ends the reply.
    """

    status: int
    headers: Mapping[str, str]
    parts: AsyncIterator[bytes]


class Replica:
    """Serves language models at an address of this machine alone, from a thread with an event loop of its own."""

    def __init__(self, models: Mapping[str, Path], threads: int) -> None:
        """Loads the libraries of some models, by their names, with so many threads for each.

        Raises:
            nnefc.LoadError: one cannot be served.
        """
        listening = Listening(port=0, grpc_port=None, per_address=0)
        self._server = Server({}, Policy(threads=threads), listening, lambda _model, _rows: {}, texts=models)
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(START)
        except BaseException:
            self._end()
            raise
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Returns the answer to a request.

        Raises:
            aiohttp.ClientError: the server has ended.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0)
            )
        passed = {name: value for name, value in headers.items() if name.lower() in OF_REQUESTS}
        address = f"http://127.0.0.1:{self._server.port}{path}"
        response = await self._session.request(method, address, headers=passed, data=body)
        found = {name: value for name, value in response.headers.items() if name.lower() in OF_ANSWERS}
        return Answer(response.status, found, _parts(response))

    async def close(self) -> None:
        """Ends the server; replies under way have some seconds."""
        if self._session is not None:
            await self._session.close()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop))
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _parts(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yields the parts of a body as they come; closes the connection when no more are read."""
    try:
        async for part in response.content.iter_any():
            yield part
    finally:
        response.close()
