"""Serializes reading and lowering of compilations that run in several threads.

TVM has one stack for all threads of the Relax functions that are being built, and deeply nested documents are read
under limits of Python that hold for the whole process. LLVM runs without the lock: code of one network is generated
while another network is read and lowered.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["in_turn"]

_turn = threading.RLock()  # a front end may load a network for another


@contextmanager
def in_turn() -> Iterator[None]:
    """Hold the lock while the body runs."""
    with _turn:
        yield


def _renew() -> None:
    """Replace the lock in a forked process: if another thread of the parent held it, it would never be released."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
