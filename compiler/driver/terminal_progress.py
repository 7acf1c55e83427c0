"""Shows the phases of a compilation and their times on a terminal."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from nnefc.driver.progress import Progress

__all__ = ["BriefProgress", "ProgressPhases", "command_progress", "session_progress"]

_LOG = logging.getLogger("nnefc")

_BAR, _NAMES = 20, 40
"""Columns of a bar, and of the name of a phase."""

_OUTSIDE_BAR = 40
"""Columns for what is next to a bar, which narrower terminals do not show."""


class _Words:
    """The text of a spinner, which is computed whenever it is drawn."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __rich__(self) -> str:
        return self._text()


class _Notes(logging.Handler):
    """Passes on what is written to the package's log while a phase runs."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._report = report
        self._level = logging.NOTSET

    def begin(self) -> None:
        self._level = _LOG.level
        _LOG.setLevel(logging.INFO)
        _LOG.addHandler(self)

    def end(self) -> None:
        _LOG.removeHandler(self)
        _LOG.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        self._report(record.getMessage())


class ProgressPhases:
    """Prints one line a phase: its name and its seconds. Phases inside a phase are indented under it, after it.

    On a terminal the running phase shows as a spinner, with a bar of its kernels and its seconds; elsewhere only the
    finished lines are written. What nnefc writes to its log meanwhile, such as why a phase takes long, is on a line of
    its own.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: list[str] = []
        self._inner: list[tuple[int, str, float]] = []
        self._done = ""
        self._notes = _Notes(self._note)
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Returns the seconds since the object was made."""
        return time.perf_counter() - self._began

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
                with self._console.status(_Words(lambda: self._text(time.perf_counter() - start))):
                    yield
            else:
                yield
        finally:
            self._running.pop()
            self._inner.insert(location, (depth, name, time.perf_counter() - start))
            if depth == 0:
                self._notes.end()
                self._write(self._inner)
                self._inner.clear()

    def _text(self, seconds: float) -> str:
        """Returns what runs, from the outermost phase to the innermost one."""
        return f"{': '.join(self._running)}{self._done}, {seconds:.0f} s …"

    def _note(self, text: str) -> None:
        self._console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)

    def kernels(self, done: int, count: int) -> None:
        """Sets how many kernels of all have their code."""
        length = max(0, min(_BAR, self._console.width - _OUTSIDE_BAR))
        filled = length * done // max(count, 1)
        bar = f" {'━' * filled}{'╌' * (length - filled)}" if length else ""
        self._done = f"{bar} {done:,} of {count:,} kernels"

    def _write(self, phases: list[tuple[int, str, float]]) -> None:
        width = max(0, min(_NAMES, self._console.width - len(f" {0:7.2f} s")))
        for depth, name, seconds in phases:
            self._console.print(f"{'  ' * depth + name:<{width}} {seconds:7.2f} s", highlight=False, markup=False)


class BriefProgress(ProgressPhases):
    """Shows the running phase only, and leaves no lines: for programs that compile while they run."""

    def __init__(self, console: Console, model: str) -> None:
        super().__init__(console)
        self._model = model

    def _text(self, seconds: float) -> str:
        return f"nnefc compiles {self._model}: {super()._text(self.seconds)}"

    def _note(self, text: str) -> None:
        pass

    def _write(self, phases: list[tuple[int, str, float]]) -> None:
        pass


def command_progress(verbose: bool = False) -> ProgressPhases | None:
    """Returns what prints the phases of a command; None where stderr is no terminal, unless the command is verbose.

    Where nothing is printed, rich is not imported.
    """
    if not (verbose or sys.stderr.isatty()):
        return None
    from rich.console import Console

    return ProgressPhases(Console(stderr=True))


def session_progress(model: str) -> Progress | None:
    """Returns what shows a session's compilation where stderr is a terminal and rich is installed; None elsewhere."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return BriefProgress(Console(stderr=True), model)
