"""Keeps responses in memory, for requests that go on with them."""

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
"""Bytes that a response takes besides its JSON, about."""


@dataclass(frozen=True)
class _Stored:
    """A response.

    Attributes:
        previous: the response that it goes on with.
        entries: JSON of the input of its request.
        response: its JSON.
    """

    previous: str | None
    entries: bytes
    response: bytes

    @property
    def size(self) -> int:
        return len(self.entries) + len(self.response) + _OVERHEAD


class StoredResponses:
    """Responses by their identifiers, the one used longest ago first.

    Attributes:
        budget: bytes that they may take together; what exceeds it is dropped, those used longest ago first.
        size: bytes that they take.
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.size = budget, 0
        self._stored: dict[str, _Stored] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, response: Mapping[str, Any], entries: Entries) -> None:
        """Stores a response with the input of its request, unless it alone exceeds the budget."""
        texts = (json.dumps(each).encode() for each in (entries, response))
        new = _Stored(response["previous_response_id"], *texts)
        if new.size > self.budget:
            return
        self._stored[response["id"]] = new
        self.size += new.size
        while self.size > self.budget:
            self.size -= self._stored.pop(next(iter(self._stored))).size

    def response(self, identifier: str) -> bytes:
        """Returns the JSON of a response.

        Raises:
            Refused: it is not there, or not any more.
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
        """Forgets a response.

        Raises:
            Refused: as :meth:`response`.
        """
        self.size -= self._found(identifier).size
        del self._stored[identifier]

    def conversation(self, identifier: str | None) -> list[Mapping[str, Any]]:
        """Returns the inputs and outputs of a response and of those that it goes on with, in their order.

        Raises:
            Refused: one of these is not there, or not any more.
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
        """Returns a response, which counts as used."""
        if identifier not in self._stored:
            raise Refused(FailureKind.NOT_FOUND, f"there is no response {identifier[:100]!r}, or not any more")
        found = self._stored[identifier] = self._stored.pop(identifier)
        return found
