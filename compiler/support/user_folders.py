"""Finds the user's folder of caches."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["user_cache"]


def user_cache() -> Path | None:
    """Returns the folder of the user's caches, where zig keeps stubs of C libraries; None if it cannot be written.

    In containers there may be no home; under systemd the system knows one, but not the environment, which is all that
    zig asks.
    """
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return cache if os.access(cache, os.W_OK | os.X_OK) else None
