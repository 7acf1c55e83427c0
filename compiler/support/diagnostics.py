"""Defines user errors with location, reason and a way out, and warnings about tolerable faults of a model.

Every phase raises :class:`CompileError`; a traceback that reaches a user is a bug.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from nnefc.support.distribution import compiler_hint

__all__ = [
    "CacheWarning",
    "CompileError",
    "DeprecatedOption",
    "ExternalDataError",
    "InternalWarning",
    "Location",
    "ModelWarning",
    "WriteError",
    "compiler_missing",
    "memory_errors",
    "ran_out_of_memory",
    "silence",
    "warn",
    "warn_of_cache",
    "warn_of_deprecation",
    "warn_of_fault",
]


class ModelWarning(UserWarning):
    """A model breaks a rule of its format, and is compiled all the same.

    Python's own filters say what becomes of it: `warnings.simplefilter("error", nnefc.ModelWarning)` refuses such
    models. The command line prints it.
    """


class InternalWarning(UserWarning):
    """An optimization failed by a bug of the compiler, and the network is compiled without it.

    The library is right, and perhaps slower. `warnings.simplefilter("error", nnefc.InternalWarning)` refuses it.
    """


class CacheWarning(UserWarning):
    """The folder of cached libraries cannot be written; what was compiled is used, and compiled again the next time."""


class DeprecatedOption(FutureWarning):
    """An option, or a value of it, is called otherwise now; the old name works for one version."""


_IS_SILENT: ContextVar[bool] = ContextVar("nnefc.is_silent", default=False)


@contextmanager
def silence() -> Iterator[None]:
    """Suppresses warnings inside the context, for a model that is read again after its warnings were shown."""
    token = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(token)


def warn(message: str) -> None:
    """Warn of something in a model: one sentence without a final full stop, beginning with the file's name."""
    if not _IS_SILENT.get():
        _warn(message, ModelWarning)


def warn_of_cache(message: str) -> None:
    """Warns of a folder of caches that cannot be written: one sentence without a final full stop."""
    _warn(message, CacheWarning)


def warn_of_deprecation(message: str) -> None:
    """Warns of an old name of an option: one sentence without a final full stop, with the new name."""
    _warn(message, DeprecatedOption)


def warn_of_fault(message: str) -> None:
    """Warns of a bug in an optimization: one sentence without a final full stop."""
    _warn(message, InternalWarning)


def _warn(message: str, category: type[Warning]) -> None:
    """Warns where the first caller outside of this package is."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "nnefc":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@dataclass(frozen=True)
class Location:
    """Location in a text file. `line` and `column` count from 1; `text` is the whole line, without its end."""

    file: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class CompileError(Exception):
    """A model, an option or a target that cannot be compiled.

    Args:
        message: what is wrong, one sentence without a final full stop.
        location: the location in the model's text, if it has one.
        hint: a way out, one sentence, if there is one.
        notes: further locations that explain the message, such as where a shape comes from.
    """

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        hint: str | None = None,
        notes: tuple[tuple[str, Location], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint
        self.notes = notes

    def __str__(self) -> str:
        lines = [f"error: {self.message}" if self.location is None else f"{self.location}: error: {self.message}"]
        lines += _excerpt(self.location)
        for note, location in self.notes:
            lines.append(f"{location}: note: {note}")
            lines += _excerpt(location)
        if self.hint is not None:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class WriteError(CompileError):
    """A file or a folder cannot be written, whatever the model is."""


class ExternalDataError(CompileError):
    """The data of a tensor, which is in another file than the model, cannot be read."""


def compiler_missing(what: str, module: str) -> CompileError:
    """The error where only the loader is installed: `module` is missing, which `what` needs."""
    return CompileError(
        f"{what} needs the compiler, and the module {module} is not installed",
        hint=compiler_hint(),
    )


def ran_out_of_memory(error: Exception) -> bool:
    """Returns whether an error means that memory ran out, in Python, NumPy or TVM, whose C++ raises a RuntimeError that
    names its own error.
    """
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "std::bad_alloc" in str(error))


@contextmanager
def memory_errors(message: str) -> Iterator[None]:
    """Replaces out-of-memory errors inside the context by a CompileError with this message."""
    try:
        yield
    except Exception as error:
        if isinstance(error, CompileError) or not ran_out_of_memory(error):
            raise
        raise CompileError(message) from error


_EXCERPT = 160
"""Characters shown of a line: of a longer one, those around the column."""


def _excerpt(location: Location | None) -> list[str]:
    """Returns the line and a caret under the column; tabs are kept, so that the caret lines up."""
    if location is None or not location.text:
        return []
    number = str(location.line)
    start = max(0, location.column - 1 - _EXCERPT // 2) if len(location.text) > _EXCERPT else 0
    shown = location.text[start : start + _EXCERPT]
    indent = "".join("\t" if c == "\t" else " " for c in shown[: location.column - 1 - start])
    return [f"{number} | {shown}", f"{' ' * len(number)} | {indent}^"]
