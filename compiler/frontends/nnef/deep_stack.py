"""Runs a recursive function with room for a recursion that a document, not Python, limits."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["call_with_deep_stack"]

_Result = TypeVar("_Result")
_STACK_SIZES = (1 << 30, 1 << 28, 1 << 26)
_LOCK = threading.Lock()


def call_with_deep_stack(function: Callable[[], _Result], frames: int) -> _Result:
    """Call the function in a thread with a large stack and room for `frames` calls inside each other, in this context.

    Python's recursion limit is one for all threads and is put back afterwards. What the function raises is raised here,
    `RecursionError` too, if the room does not suffice.
    """
    outcome: list[_Result] = []
    failure: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append(context.run(function))
        except BaseException as error:
            failure.append(error)

    with _LOCK:
        limit = sys.getrecursionlimit()
        try:
            _start(run, max(limit, frames)).join()
        finally:
            sys.setrecursionlimit(limit)
    if failure:
        raise failure[0]
    return outcome[0]


def _start(run: Callable[[], None], frames: int) -> threading.Thread:
    """Start the thread with the largest stack that the system grants; pages are only used when touched."""
    for size in _STACK_SIZES:
        previous = threading.stack_size(size)
        try:
            thread = threading.Thread(target=run, name="nnef-evaluation", daemon=True)
            sys.setrecursionlimit(min(frames, size // 1024))
            thread.start()
            return thread
        except RuntimeError as error:  # there is no room for it
            if size == _STACK_SIZES[-1]:
                raise MemoryError(str(error)) from error
        finally:
            threading.stack_size(previous)
    raise AssertionError("unreachable")
