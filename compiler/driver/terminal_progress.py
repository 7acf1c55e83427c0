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
"""Columns next to a bar; the bar is omitted on narrower terminals."""


class _Words:
    """The text of a spinner, computed whenever it is drawn."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __rich__(self) -> str:
        return self._text()


class _Notes(logging.Handler):
    """Shows messages of the package's log while a phase runs."""

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
    """Prints one line per phase with its name and time; nested phases are indented, after the phase that contains them.

    On a terminal the current phase is shown by a spinner, with a bar of its kernels and its time; elsewhere only
    complete lines are written. Messages of nnefc's log, such as why a phase takes long, are written on lines of their
    own.
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
        """The seconds since the object was made."""
        return time.perf_counter() - self._began

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        depth = len(self._running)
        self._running.append(name)
        index = len(self._inner)
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
            self._inner.insert(index, (depth, name, time.perf_counter() - start))
            if depth == 0:
                self._notes.end()
                self._write(self._inner)
                self._inner.clear()

    def _text(self, seconds: float) -> str:
        """Return the names of the current phases, from the outermost to the innermost."""
        return f"{': '.join(self._running)}{self._done}, {seconds:.0f} s …"

    def _note(self, text: str) -> None:
        self._console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)

    def kernels(self, done: int, count: int) -> None:
        """Set how many kernels have their code, and how many there are."""
        length = max(0, min(_BAR, self._console.width - _OUTSIDE_BAR))
        filled = length * done // max(count, 1)
        bar = f" {'━' * filled}{'╌' * (length - filled)}" if length else ""
        self._done = f"{bar} {done:,} of {count:,} kernels"

    def _write(self, phases: list[tuple[int, str, float]]) -> None:
        width = max(0, min(_NAMES, self._console.width - len(f" {0:7.2f} s")))
        for depth, name, seconds in phases:
            self._console.print(f"{'  ' * depth + name:<{width}} {seconds:7.2f} s", highlight=False, markup=False)


class BriefProgress(ProgressPhases):
    """Shows the current phase only, and leaves no lines: for programs that compile while they run."""

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
    """Return the progress of a command; None if stderr is not a terminal, unless the command is verbose.

    Without a progress, rich is not imported.
    """
    if not (verbose or sys.stderr.isatty()):
        return None
    from rich.console import Console

    return ProgressPhases(Console(stderr=True))


def session_progress(model: str) -> Progress | None:
    """Return the progress of a session's compilation if stderr is a terminal and rich is installed, else None."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return BriefProgress(Console(stderr=True), model)
