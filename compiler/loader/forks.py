"""Replaces locks in forked processes: a lock that another thread of the parent held would never be released there."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["keep_lock", "renew_in_children"]

_renewals: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def renew_in_children(owner: Any, renew: Callable[[Any], None]) -> None:
    """Call `renew(owner)` at the start of each forked process; `owner` is held by a weak reference."""
    _renewals[owner] = renew


def keep_lock(owner: Any, kind: Callable[[], Any], *names: str) -> None:
    """Set locks as attributes of `owner`, and replace them in each forked process.

    Args:
        owner: the object.
        kind: makes a lock.
        names: of the attributes; none: `_lock`.
    """

    def renew(one: Any) -> None:
        for name in names or ("_lock",):
            setattr(one, name, kind())

    renew(owner)
    renew_in_children(owner, renew)


def _renew() -> None:
    for owner, renew in _renewals.items():
        renew(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
