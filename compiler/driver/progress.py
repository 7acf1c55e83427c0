"""Reports the progress of a compilation: its phases, and the number of kernels compiled so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from nnefc.support.internal_errors import code_of_users, working_in

__all__ = ["Progress", "Silent", "Watched"]


class Progress(Protocol):
    """A callback for the progress of a compilation."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager for the phase `name`; phases may be nested."""

    def kernels(self, done: int, count: int) -> None:
        """Called within a phase after kernels are compiled: `done` of `count` have their code."""


class Silent:
    """Ignores the progress."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def kernels(self, done: int, count: int) -> None:
        pass


class Watched:
    """Passes the progress to the user's callback and records the current phases; exceptions of the callback are not
    internal errors.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with code_of_users():
            manager = self._progress.phase(name)
            manager.__enter__()
        working_in(f"the phase '{name}'")
        try:
            yield
        except BaseException as error:
            manager.__exit__(type(error), error, error.__traceback__)
            raise
        with code_of_users():
            manager.__exit__(None, None, None)

    def kernels(self, done: int, count: int) -> None:
        with code_of_users():
            self._progress.kernels(done, count)
