"""Replaces locks in forked children, where a lock held by another thread of the parent is never released."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["keep_lock", "renew_in_children"]

_renewals: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def renew_in_children(owner: Any, renew: Callable[[Any], None]) -> None:
    """Call a function with an object in each forked child, before anything else there. It does not hold the object."""
    _renewals[owner] = renew


def keep_lock(owner: Any, kind: Callable[[], Any], *names: str) -> None:
    """Give an object locks of its own, `_lock` or of these names, and new ones in a forked child; `kind` makes one."""

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
