"""Limits the number and bytes of requests that have not arrived completely, since they hold no admission yet.

A slow client must not block others. So an exceeded limit ends the request that has been arriving longest, of the same
address or of all: a client that sends its request at once is always admitted.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable

__all__ = ["Arriving", "Incoming", "Unread", "network_of"]

_IPV6_PREFIX = 64
"""Bits of an address of IPv6 that one client has; it chooses the others itself."""


class Incoming:
    """The requests that are arriving, oldest first.

    Args:
        per_address: how many may arrive from one address at a time; 0: any number.
        maximum: how many from all addresses.
        max_bytes: of what has arrived of them.
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
        """Register a request; `give_up` ends it and its connection. None is an address without a limit of its own."""
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
        """Note that so many bytes of a request have arrived and are kept."""
        request.bytes += count
        self._bytes += count
        self._with_bytes[request] = None
        while self._bytes > self._max_bytes and len(self._with_bytes) > 1:
            next(iter(self._with_bytes)).give_up()

    def renew(self, request: Arriving) -> None:
        """Regard a request of no address as the latest: that of a connection on which another one has been answered."""
        if request in self._all:
            del self._all[request]
            self._all[request] = None

    def remove(self, request: Arriving) -> None:
        """Forget a request, which has arrived or was given up."""
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
    """One request that is arriving, with the bytes that are kept of it."""

    def __init__(self, incoming: Incoming, address: str | None, give_up: Callable[[], None]) -> None:
        self._incoming, self._give_up = incoming, give_up
        self.address = address
        self.bytes = 0

    def add(self, count: int) -> None:
        """So many bytes more have arrived; older requests may be given up for them."""
        self._incoming.add(self, count)

    def renew(self) -> None:
        """It begins now: others are given up before it."""
        self._incoming.renew(self)

    def end(self) -> None:
        """Removes a request that has arrived, or was abandoned."""
        self._incoming.remove(self)

    def give_up(self) -> None:
        """End it for others."""
        self.end()
        self._give_up()


class Unread:
    """Limits the unread answers of each address, so that a client that reads nothing cannot take up the server.

    Args:
        maximum: per address; 0: any number.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._counts: Counter[str] = Counter()

    def has_too_many(self, address: str | None) -> bool:
        """Returns whether an address gets no further answers now."""
        return address is not None and 0 < self._maximum <= self._counts[address]

    def begin(self, address: str | None) -> Callable[[], None]:
        """An answer is on its way; returns what says that it has been read, or thrown away."""
        if address is None:
            return lambda: None
        self._counts[address] += 1

        def end() -> None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

        return end


def network_of(address: str) -> str:
    """Returns the key of the limit per address: the address; for IPv6, its network."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return str(parsed)
