"""Shapes that the standard does not allow, where it is clear what they mean: rules ask, and a note is made.

with allowing() as notes: …       such shapes are read, and reported
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["allowed", "allowing"]

_NOTES: ContextVar[dict[str, None] | None] = ContextVar("notes", default=None)


@contextmanager
def allowing() -> Iterator[dict[str, None]]:
    """Allow such shapes inside; gives what was allowed, each once."""
    notes: dict[str, None] = {}
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def allowed(note: str) -> bool:
    """Returns whether a shape may be; if so, `note` says what it is read as."""
    notes = _NOTES.get()
    if notes is None:
        return False
    notes[note] = None
    return True
