"""Runs a recursive function on a stack whose depth a document, not Python, limits."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from nnefc.support.diagnostics import CompileError

__all__ = ["call_with_deep_stack"]

_Result = TypeVar("_Result")
_STACK_SIZES = (1 << 30, 1 << 28, 1 << 26)
_LOCK = threading.Lock()

_FRAMES_A_FRAGMENT = 64
_FRAMES_AN_EXPRESSION = 100_000


def call_with_deep_stack(function: Callable[[], _Result], file: str, fragments: int = 0) -> _Result:
    """Call the function in a thread with a large stack, in this context.

    Python's recursion limit is one for all threads and is put back afterwards. What the function raises is raised here.

    Args:
        function: goes through the expressions of a document.
        file: the document's, for messages.
        fragments: how many may be expanded inside each other.

    Raises:
        CompileError: the room does not suffice.
    """
    frames = _FRAMES_AN_EXPRESSION + _FRAMES_A_FRAGMENT * fragments
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
    if failure and isinstance(failure[0], RecursionError):
        hint = "Break up expressions with many thousand operators in a row."
        raise CompileError(f"'{file}' is nested too deeply to be evaluated", hint=hint)
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
