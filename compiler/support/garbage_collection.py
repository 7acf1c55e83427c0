"""Switches Python's search for cycles of objects off where many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collections"]


@contextmanager
def without_collections() -> Iterator[None]:
    """Switches Python's search for cycles of objects off: it would visit all objects of a network, or all classes and
    functions of the compiler while these are imported, again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
