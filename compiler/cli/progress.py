"""Prints the phases of a compilation and their times on stderr."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["ProgressPhases"]

_LOG = logging.getLogger("nnefc")


class _Words:
    """What a spinner says, asked for whenever it is drawn."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __rich__(self) -> str:
        return self._text()


class _Notes(logging.Handler):
    """Messages of the package's log while a phase runs."""

    def __init__(self, on_message: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._on_message = on_message
        self._level = logging.NOTSET

    def begin(self) -> None:
        self._level = _LOG.level
        _LOG.setLevel(logging.INFO)
        _LOG.addHandler(self)

    def end(self) -> None:
        _LOG.removeHandler(self)
        _LOG.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        self._on_message(record.getMessage())


class ProgressPhases:
    """One line a phase: its name and its seconds. Phases inside a phase are indented under it, after it.

    On a terminal the running phase shows as a spinner, with its seconds and how many kernels are done; elsewhere only
    the finished lines are written. What nnefc notes meanwhile to its log, such as why a step takes long, is on a line
    of its own.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: list[str] = []
        self._inner: list[tuple[int, str, float]] = []
        self._done = ""
        self._notes = _Notes(self._note)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        depth = len(self._running)
        self._running.append(name)
        location = len(self._inner)
        start = time.perf_counter()
        self._done = ""
        if depth == 0:
            self._notes.begin()
        try:
            if depth == 0 and self._console.is_terminal:
                with self._console.status(_Words(lambda: self._spoken(time.perf_counter() - start))):
                    yield
            else:
                yield
        finally:
            self._running.pop()
            self._inner.insert(location, (depth, name, time.perf_counter() - start))
            if depth == 0:
                self._notes.end()
                self._write()

    def _spoken(self, seconds: float) -> str:
        """What runs, from the outermost phase to the innermost one."""
        return f"{': '.join(self._running)}{self._done}, {seconds:.0f} s …"

    def _note(self, text: str) -> None:
        self._console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)

    def kernels(self, done: int, count: int) -> None:
        """Returns how many kernels of all have their code."""
        self._done = f", {done:,} of {count:,} kernels"

    def _write(self) -> None:
        for depth, name, seconds in self._inner:
            self._console.print(f"{'  ' * depth + name:<40} {seconds:7.2f} s", highlight=False, markup=False)
        self._inner.clear()
