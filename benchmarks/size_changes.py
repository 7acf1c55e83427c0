"""How long a library takes to take other sizes: the layout of its memory, and all that follows from sizes."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["seconds_of_change"]

_CHANGES = 2000


def seconds_of_change(library: Path, shapes: Sequence[Sequence[Sequence[int]]]) -> float:
    """The median of the seconds that `nnefc_resize` takes when sizes are not those before, and all were there once.

    What a run takes more after it, because other memory is in the caches, is not in it.

    Args:
        shapes: of all inputs, by sizes that take turns.

    Raises:
        RuntimeError: the library refuses sizes.
    """
    native = ctypes.CDLL(str(library))
    session = ctypes.c_void_p()
    native.nnefc_resize.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    if native.nnefc_create(None, ctypes.byref(session)):
        raise RuntimeError(f"{library} makes no session")
    try:
        numbers = [[(ctypes.c_int64 * len(shape))(*shape) for shape in inputs] for inputs in shapes]
        arguments = [(ctypes.c_void_p * len(inputs))(*map(ctypes.addressof, inputs)) for inputs in numbers]
        found = []
        for number in range(_CHANGES):
            start = time.perf_counter()
            status = native.nnefc_resize(session, arguments[number % len(arguments)])
            found.append(time.perf_counter() - start)
            if status:
                raise RuntimeError(f"{library} refuses sizes")
        return statistics.median(found[len(arguments) :])
    finally:
        native.nnefc_destroy.argtypes = [ctypes.c_void_p]
        native.nnefc_destroy(session)
