"""Ends a process that is there for one task at once, without taking its objects apart."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

__all__ = ["end_process"]


def end_process(status: int) -> NoReturn:
    """Ends the process after the functions that are registered for its end.

    To take apart one by one the objects of a network, and those of LLVM, takes longer than most networks take to load.
    """
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # the reader of the pipe has closed it: Python ends the process by itself
        raise SystemExit(status) from None
    os._exit(status)
