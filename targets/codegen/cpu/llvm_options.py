"""Serializes code generation for targets that need process-wide LLVM options with that for other targets.

LLVM has its options for the whole process. TVM sets those of a target while it generates code and resets them
afterwards, even if other threads still generate code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nnefc.targets.machine.cpu.target import Target

__all__ = ["options_of"]


class _Turns:
    """A lock that one thread holds exclusively, or any number of threads share."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._alone = False
        self._waiting = 0  # to be alone: no thread more shares the lock before them

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._alone and not self._sharing)
                self._alone = True
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


_turns = _Turns()


@contextmanager
def options_of(target: Target) -> Iterator[None]:
    """Wait until LLVM's options are those of a target, and keep them while the body generates code."""
    turns = _turns
    with turns.alone() if target.llvm_options else turns.shared():
        yield


def _renew() -> None:
    """Replace the lock in a forked process: if another thread of the parent held it, it would never be released."""
    global _turns
    _turns = _Turns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
