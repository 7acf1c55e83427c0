"""Serializes reading and lowering of compilations that run on several threads.

TVM keeps the Relax functions that are being built on one stack for all threads, and deeply nested documents are read
under limits of Python's that hold for the whole process. LLVM runs outside of the turns: the code of one network is
generated while another is read and lowered.
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
    """Wait until no other thread is inside, and keep others out."""
    with _turn:
        yield


def _renew() -> None:
    """In a forked child: the lock would stay held forever if another thread held it in the parent."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
