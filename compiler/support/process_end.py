"""Ends a process that is there for one task at once, without taking its objects apart."""

from __future__ import annotations

import atexit
import errno
import os
from typing import NoReturn

from nnefc.support.standard_streams import output_error

__all__ = ["end_process"]


def end_process(status: int) -> NoReturn:
    """Ends the process after the functions that are registered for its end.

    To take apart one by one the objects of a network, and those of LLVM, takes longer than most networks take to load.
    If the output cannot be written, a line on stderr says why, and the status is 1; not if the reader of a pipe has
    closed it.
    """
    atexit._run_exitfuncs()
    error = output_error()
    if status == 0 and error is not None and error.errno != errno.EPIPE:
        os.write(2, f"error: {error.strerror}\n".encode())
        status = 1
    os._exit(status)
