"""Locks that a forked child gets anew: one that another thread held in the parent would stay held forever."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["keep_lock"]

_kinds: weakref.WeakKeyDictionary[Any, Callable[[], Any]] = weakref.WeakKeyDictionary()


def keep_lock(owner: Any, kind: Callable[[], Any]) -> None:
    """Give an object a lock of its own, `_lock`, and a new one in a forked child; `kind` makes it."""
    owner._lock = kind()
    _kinds[owner] = kind


def _renew() -> None:
    for owner, kind in _kinds.items():
        owner._lock = kind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
