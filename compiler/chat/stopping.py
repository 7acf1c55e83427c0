"""Ends a text at the first occurrence of one of some texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

__all__ = ["until_stopped"]


def until_stopped(parts: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """Yields the parts of a text up to the first occurrence of one of `stop`.

    The end of what has come so far is held back as long as it may be the beginning of one of them.
    """
    held = ""
    for part in parts:
        held += part
        found = min((position for text in stop if (position := held.find(text)) >= 0), default=None)
        if found is not None:
            yield held[:found]
            return
        kept = max((size for text in stop for size in range(1, len(text)) if held.endswith(text[:size])), default=0)
        yield held[: len(held) - kept]
        held = held[len(held) - kept :]
    if held:
        yield held
