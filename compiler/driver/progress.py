"""Reports the progress of a compilation: its phases, and the number of kernels compiled so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from nnefc.support.internal_errors import code_of_users, working_in

__all__ = ["Progress", "Silent", "Watched"]


class Progress(Protocol):
    """Called with the phases of a compilation as they begin and end."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Entered when the phase `name` begins, left when it ends; phases may be inside one another."""

    def kernels(self, done: int, count: int) -> None:
        """Called, inside a phase, as kernels become code: how many have, of how many."""


class Silent:
    """Takes it and does nothing."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def kernels(self, done: int, count: int) -> None:
        pass


class Watched:
    """Records the phases and passes them to the user's callback, whose exceptions are the user's own."""

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
