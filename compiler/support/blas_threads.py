"""Keeps threads of NumPy's BLAS library from taking processor time while they have nothing to do."""

from __future__ import annotations

import os

__all__ = ["sleep_when_idle"]

_WAITING = ("OPENBLAS_THREAD_TIMEOUT", "4")
"""The environment variable that says how long a thread of OpenBLAS waits for work in a loop before it sleeps, in cycles
as a power of two, and its min. Without it, each thread takes some 70 ms of a processor when NumPy is imported.
"""


def sleep_when_idle() -> None:
    """Makes threads of NumPy's BLAS library sleep as soon as they are idle, in processes that are there for one task.

    Called before NumPy is imported. A user's own setting holds.
    """
    os.environ.setdefault(*_WAITING)
