"""Turns exceptions of Python and TVM, which are bugs of the compiler, into a :class:`CompileError` that asks for a
report.

The compiler records its current phase or pass, and in it the model node, tensor or kernel, by one assignment each. The
error names both; the original exception is its `__cause__`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from nnefc.support.diagnostics import CompileError, ran_out_of_memory, warn_of_fault

__all__ = [
    "TRACEBACK",
    "InternalError",
    "code_of_users",
    "compile_errors",
    "internal_error",
    "is_mistake",
    "leave_out",
    "reports_internal_errors",
    "working_in",
    "working_on",
]

TRACEBACK = "NNEFC_TRACEBACK"
"""An environment variable: set, errors have tracebacks, and no optimization that fails is left out."""

_PHASE: ContextVar[str] = ContextVar("phase", default="")
_SUBJECT: ContextVar[str | Callable[[], str]] = ContextVar("subject", default="")

_LONGEST = 300  # characters of a reason

_P = ParamSpec("_P")
_R = TypeVar("_R")


class InternalError(CompileError):
    """An error that the model is not to blame for."""


def working_in(phase: str) -> None:
    """Note what the compiler does from now on, such as `the pass 'fuse'`."""
    _PHASE.set(phase)
    _SUBJECT.set("")


def working_on(subject: str | Callable[[], str]) -> None:
    """Note what it does that to, such as `the node Conv that makes 'y'`; or a function that says so on errors."""
    _SUBJECT.set(subject)


def is_mistake(error: Exception) -> bool:
    """Returns whether a Python error comes from wrong code, not from operands that NumPy or TVM refuse."""
    if isinstance(error, AssertionError | AttributeError | KeyError | NameError | NotImplementedError):
        return True
    text = str(error)
    if isinstance(error, ValueError):
        return text.startswith("zip() argument") or "values to unpack" in text
    return isinstance(error, TypeError) and not _is_of_tvm(error)


def internal_error(error: BaseException, subject: str = "") -> InternalError:
    """Returns the CompileError to raise instead of an internal error.

    Args:
        subject: the node or the tensor, where the caller knows it.
    """
    where = [_PHASE.get(), subject or _noted()]
    text = " for ".join(part for part in where if part)
    return InternalError(
        f"internal error in nnefc ({type(error).__name__}: {_reason(error)})" + (f", in {text}" if text else ""),
        hint="this is a bug in nnefc: please report it, with the model if you can; "
        f"{TRACEBACK}=1 shows where it happened",
    )


def leave_out(optimization: str, error: Exception) -> None:
    """Warns that an optimization failed, and that the network is compiled without it.

    Args:
        optimization: such as `the pass 'join attention'`.
        error: what its code raised. It is raised again if it is no bug: an error that the compiler raises on purpose, a
            warning that the user made an error, an error of user code or a lack of memory; and where
            NNEFC_TRACEBACK is set.
    """
    on_purpose = isinstance(error, CompileError | Warning) or getattr(error, _BY_USER, False)
    if on_purpose or ran_out_of_memory(error) or os.environ.get(TRACEBACK):
        raise error
    warn_of_fault(
        f"{internal_error(error).message}: this is a bug in nnefc, please report it, with the model if you can "
        f"({TRACEBACK}=1 shows where it happened); the library is compiled without {optimization}, which costs speed"
    )


def reports_internal_errors(*passing: type[BaseException]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorates a function to raise a CompileError instead of other errors: see :func:`compile_errors`."""

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def reporting(*args: _P.args, **named: _P.kwargs) -> _R:
            with compile_errors(passing):
                return function(*args, **named)

        return reporting

    return decorated


@contextmanager
def compile_errors(passing: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Replaces errors inside the context by a CompileError.

    What stays: warnings that the user made errors, modules that are not installed, those of the types `passing`,
    what :func:`code_of_users` has seen, and what ends a program, such as KeyboardInterrupt.
    """
    before = _PHASE.get(), _SUBJECT.get()
    try:
        yield
    except (CompileError, Warning, ModuleNotFoundError):
        raise
    except passing:
        raise
    except OSError as error:
        if not error.strerror:
            raise internal_error(error) from error
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        raise CompileError(": ".join([*names, error.strerror])) from error
    except Exception as error:
        if getattr(error, _BY_USER, False):
            raise
        if ran_out_of_memory(error):
            raise CompileError("the network takes more memory to compile than there is") from error
        raise internal_error(error) from error
    finally:
        _PHASE.set(before[0])
        _SUBJECT.set(before[1])


_BY_USER = "_nnefc_by_user"


@contextmanager
def code_of_users() -> Iterator[None]:
    """Marks user code: errors raised inside the context are passed on unchanged."""
    try:
        yield
    except Exception as error:
        setattr(error, _BY_USER, True)
        raise


def _noted() -> str:
    subject = _SUBJECT.get()
    if isinstance(subject, str):
        return subject
    try:
        return subject()
    except Exception:  # of what is broken, perhaps
        return ""


def _reason(error: BaseException) -> str:
    """Returns the message of an error in one line; TVM puts it last, after a trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "no message"
    line = lines[-1] if _is_of_tvm(error) else lines[0]
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"


def _is_of_tvm(error: BaseException) -> bool:
    """Returns whether TVM's code raised an error: the last frames of its C++ have names of its own."""
    trace, last = error.__traceback__, ""
    while trace is not None:
        last = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return "/tvm/" in last or "tvm_ffi" in last or last.endswith((".cc", ".h"))
