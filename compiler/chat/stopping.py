"""Ends a streamed text at the first occurrence of a stop string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Stopping", "until_stopped"]


class Stopping:
    """Searches stop strings in a text that arrives in parts.

    The end of the text is held back as long as it may be the beginning of a stop string.

    Attributes:
        found: whether a stop string has been found; the text ends before it.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [text for text in stop if text]
        self._held = ""
        self.found = False

    def add(self, part: str) -> str:
        """Add a part, and return the text that certainly comes before any stop string and has not been returned yet."""
        held = self._held + part
        first = min((position for text in self._stop if (position := held.find(text)) >= 0), default=None)
        if first is not None:
            self.found, self._held = True, ""
            return held[:first]
        kept = max(
            (
                size
                for text in self._stop
                for size in range(1, min(len(text), len(held) + 1))
                if held.endswith(text[:size])
            ),
            default=0,
        )
        self._held = held[len(held) - kept :]
        return held[: len(held) - kept]

    def end(self) -> str:
        """Return the text that was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


def until_stopped(parts: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a text up to the first occurrence of one of the texts `stop`."""
    stopping = Stopping(stop)
    for part in parts:
        yield stopping.add(part)
        if stopping.found:
            return
    if held := stopping.end():
        yield held
