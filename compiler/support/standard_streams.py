"""Opens standard streams that a process was started without, and finds out whether its output was written."""

from __future__ import annotations

import os
import sys

__all__ = ["open_closed_streams", "output_error"]


def open_closed_streams() -> None:
    """Open the null device for each of stdin, stdout and stderr that is closed.

    Else the next files that are opened would get their numbers, and what is printed would be written to them.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def output_error() -> OSError | None:
    """Write what is left of the output to stdout and stderr; return the error if that fails."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        return error
    return None
