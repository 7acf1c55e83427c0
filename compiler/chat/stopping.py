"""Ends a text at the first occurrence of one of some texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Stopping", "until_stopped"]


class Stopping:
    """Looks for stop strings in a text that comes in parts.

    The end of what has come so far is held back as long as it may be the beginning of one of them.

    Attributes:
        found: whether one has been found; the text ends before it.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [text for text in stop if text]
        self._held = ""
        self.found = False

    def add(self, part: str) -> str:
        """Returns what of the text so far is known to come before a stop string, without what was returned before."""
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
        """Returns what was held back."""
        held, self._held = self._held, ""
        return held


def until_stopped(parts: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """Yields the parts of a text up to the first occurrence of one of `stop`."""
    stopping = Stopping(stop)
    for part in parts:
        yield stopping.add(part)
        if stopping.found:
            return
    if held := stopping.end():
        yield held
