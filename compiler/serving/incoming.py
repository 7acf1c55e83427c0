"""Limits the number and bytes of incomplete requests, which the limits of admitted requests do not cover yet.

A slow client must not block others. So a request that exceeds a limit is accepted, and the one that has been arriving
longest, from the same address or from all, is ended: a client that sends its request at once is never shut out.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable

__all__ = ["Arriving", "Incoming", "Unread", "network_of"]

_IPV6_PREFIX = 64
"""Prefix length that identifies one client: it can choose the other bits of its IPv6 address itself."""


class Incoming:
    """The incomplete requests, oldest first.

    Args:
        per_address: maximum number from one address at a time; 0: any number.
        maximum: maximum number from all addresses.
        max_bytes: maximum bytes that have arrived of all of them.
    """

    def __init__(self, per_address: int, maximum: int, max_bytes: int) -> None:
        self._per_address, self._maximum, self._max_bytes = per_address, maximum, max_bytes
        self._all: dict[Arriving, None] = {}  # in the order in which they began
        self._by_address: dict[str, dict[Arriving, None]] = {}
        self._with_bytes: dict[Arriving, None] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, address: str | None, give_up: Callable[[], None]) -> Arriving:
        """Register a request, and end older ones that exceed a limit.

        Args:
            address: of the client; None: only the limit for all addresses applies.
            give_up: called to end the request and its connection.
        """
        new = Arriving(self, address, give_up)
        self._all[new] = None
        if address is not None:
            own = self._by_address.setdefault(address, {})
            own[new] = None
            if len(own) > self._per_address > 0:
                next(iter(own)).give_up()
        if len(self._all) > self._maximum:
            next(iter(self._all)).give_up()
        return new

    def add(self, request: Arriving, count: int) -> None:
        """Count `count` more bytes that have arrived of `request`, and end older requests that exceed the limit."""
        request.bytes += count
        self._bytes += count
        self._with_bytes[request] = None
        while self._bytes > self._max_bytes and len(self._with_bytes) > 1:
            next(iter(self._with_bytes)).give_up()

    def renew(self, request: Arriving) -> None:
        """Make a request of no address the newest one: another request has been answered on its connection."""
        if request in self._all:
            del self._all[request]
            self._all[request] = None

    def remove(self, request: Arriving) -> None:
        """Remove a request that is complete or was given up."""
        if request not in self._all:
            return
        del self._all[request]
        self._with_bytes.pop(request, None)
        self._bytes -= request.bytes
        if request.address is not None:
            own = self._by_address[request.address]
            del own[request]
            if not own:
                del self._by_address[request.address]


class Arriving:
    """An incomplete request, with the number of bytes that have arrived of it."""

    def __init__(self, incoming: Incoming, address: str | None, give_up: Callable[[], None]) -> None:
        self._incoming, self._give_up = incoming, give_up
        self.address = address
        self.bytes = 0

    def add(self, count: int) -> None:
        """Count `count` more bytes that have arrived; older requests may be ended for them."""
        self._incoming.add(self, count)

    def renew(self) -> None:
        """Make this request the newest one, which is ended last."""
        self._incoming.renew(self)

    def end(self) -> None:
        """Remove the request: it is complete, or its client has gone."""
        self._incoming.remove(self)

    def give_up(self) -> None:
        """Remove the request and end its connection, to make room for others."""
        self.end()
        self._give_up()


class Unread:
    """Counts the answers that each address has not read yet, so that a client that reads nothing can be refused.

    Args:
        maximum: unread answers per address; 0: any number.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._counts: Counter[str] = Counter()

    def has_too_many(self, address: str | None) -> bool:
        """Return whether an address has reached the limit."""
        return address is not None and 0 < self._maximum <= self._counts[address]

    def begin(self, address: str | None) -> Callable[[], None]:
        """Count an answer to an address; return a function to call when it has been read or dropped."""
        if address is None:
            return lambda: None
        self._counts[address] += 1

        def end() -> None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

        return end


def network_of(address: str) -> str:
    """Return the key by which a client is limited: its IPv4 address, or the /64 network of its IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return str(parsed)
