"""Keeps Python's search for cycles of objects away from where many objects are made that stay."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["age_modules", "without_collections"]

_aged = 0
"""The number of modules when all objects were last made old."""


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


def age_modules() -> None:
    """Makes all objects old if modules have been imported since the last call, so that the search that follows
    :func:`without_collections` visits what was made after them alone.

    What such a module consists of stays to the end, but would be young until the first search, of 30 ms for the
    compiler. Where no module is new nothing happens, for garbage among old objects is found late.
    """
    global _aged
    if len(sys.modules) == _aged or gc.get_freeze_count():  # a program may keep objects apart from all searches
        return
    _aged = len(sys.modules)
    gc.freeze()
    gc.unfreeze()  # to the oldest generation
