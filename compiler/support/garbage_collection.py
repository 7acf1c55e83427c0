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

    All objects count as old in the end: otherwise the first search would visit each of them at once.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # else the program keeps objects apart from all searches, which must stay so
                gc.freeze()
                gc.unfreeze()  # to the oldest generation
            gc.enable()
