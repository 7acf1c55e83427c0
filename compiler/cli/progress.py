"""The phases of a compilation as they pass, with their times, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["Phases"]


class _Words:
    """What a spinner says, asked for whenever it is drawn."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __rich__(self) -> str:
        return self._text()


class Phases:
    """One line a phase: its name and its seconds. Phases inside a phase are indented under it, after it.

    On a terminal the running phase shows as a spinner, with its seconds and how many kernels are done; elsewhere only
    the finished lines are written.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: list[str] = []
        self._inner: list[tuple[int, str, float]] = []
        self._done = ""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        depth = len(self._running)
        self._running.append(name)
        place = len(self._inner)
        start = time.perf_counter()
        try:
            if depth == 0 and self._console.is_terminal:
                self._done = ""
                with self._console.status(_Words(lambda: f"{name}{self._done}, {time.perf_counter() - start:.0f} s …")):
                    yield
            else:
                yield
        finally:
            self._running.pop()
            self._inner.insert(place, (depth, name, time.perf_counter() - start))
            if depth == 0:
                self._write()

    def kernels(self, done: int, count: int) -> None:
        """How many kernels of all have their code."""
        self._done = f", {done:,} of {count:,} kernels"

    def _write(self) -> None:
        for depth, name, seconds in self._inner:
            self._console.print(f"{'  ' * depth + name:<40} {seconds:7.2f} s", highlight=False, markup=False)
        self._inner.clear()
