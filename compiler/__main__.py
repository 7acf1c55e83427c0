"""Runs the command `nnefc` as `python -m nnefc`."""

from __future__ import annotations

import gc
import os
import signal
import sys

from nnefc.support.blas_threads import sleep_when_idle
from nnefc.support.process_end import end_process
from nnefc.support.standard_streams import open_closed_streams

__all__ = ["main"]


def main() -> None:
    """Run the command line, in a process that is there for one command, and end the process.

    Cycles of objects are left alone, and so is what is left in the end.
    """
    open_closed_streams()
    gc.disable()
    sleep_when_idle()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _interrupted)
    try:
        from nnefc.cli import main as command_line
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("error: the command nnefc needs the module click, which is not installed\nhint: pip install click")

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command_line(prog_name="nnefc")
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        end_process(end.code)
    except OSError as error:  # what an option such as --help prints cannot be written
        os.write(2, f"error: {error.strerror}\n".encode())
        end_process(1)


def _end(number: int, _frame: object) -> None:
    """End as an interruption by the keyboard does, so that no temporary files are left behind."""
    sys.exit(128 + number)


def _interrupted(number: int, _frame: object) -> None:
    """End at once, with one line: nothing has begun yet."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
