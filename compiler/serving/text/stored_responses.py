"""Stores responses in memory, so that later requests can continue them by `previous_response_id`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.text.fields import invalid
from nnefc.serving.text.response_fields import Entries

__all__ = ["StoredResponses"]

_OVERHEAD = 1024
"""Approximate bytes that a stored response takes in addition to its JSON."""


@dataclass(frozen=True)
class _Stored:
    """A stored response.

    Attributes:
        previous: the identifier of the response that it continues; None for none.
        entries: the input of its request, as JSON.
        response: the response, as JSON.
    """

    previous: str | None
    entries: bytes
    response: bytes

    @property
    def size(self) -> int:
        return len(self.entries) + len(self.response) + _OVERHEAD


class StoredResponses:
    """Stored responses by identifier; the least recently used ones are dropped.

    Attributes:
        budget: maximum bytes of all responses.
        size: bytes of all responses.
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.size = budget, 0
        self._stored: dict[str, _Stored] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, response: Mapping[str, Any], entries: Entries) -> None:
        """Store a response with the input of its request, unless these alone exceed the budget."""
        texts = (json.dumps(each).encode() for each in (entries, response))
        new = _Stored(response["previous_response_id"], *texts)
        if new.size > self.budget:
            return
        self._stored[response["id"]] = new
        self.size += new.size
        while self.size > self.budget:
            self.size -= self._stored.pop(next(iter(self._stored))).size

    def response(self, identifier: str) -> bytes:
        """Return the JSON of a response.

        Raises:
            Refused: the response was never stored, or has been dropped.
        """
        return self._found(identifier).response

    def entries(self, identifier: str) -> Entries:
        """Returns the input of the request for a response.

        Raises:
            Refused: as :meth:`response`.
        """
        found: Entries = json.loads(self._found(identifier).entries)
        return found

    def remove(self, identifier: str) -> None:
        """Delete a response.

        Raises:
            Refused: as :meth:`response`.
        """
        self.size -= self._found(identifier).size
        del self._stored[identifier]

    def conversation(self, identifier: str | None) -> list[Mapping[str, Any]]:
        """Return the inputs and outputs of a response and of those that it continues, the oldest first.

        Raises:
            Refused: one of these was never stored, or has been dropped.
        """
        parts: list[Entries] = []
        while identifier is not None:
            if identifier not in self._stored:
                reason = f"the response {identifier[:100]!r}, with which this request goes on, is not stored (any more)"
                raise invalid(reason, "previous_response_id", "previous_response_not_found")
            found = self._found(identifier)
            parts += [json.loads(found.response)["output"], json.loads(found.entries)]
            identifier = found.previous
        return [entry for part in reversed(parts) for entry in part]

    def _found(self, identifier: str) -> _Stored:
        """Return a response, and make it the most recently used one."""
        if identifier not in self._stored:
            raise Refused(FailureKind.NOT_FOUND, f"there is no response {identifier[:100]!r}, or not any more")
        found = self._stored[identifier] = self._stored.pop(identifier)
        return found
