"""What every run of the tests begins and ends with: little work, and how much it was, so that slow tests are seen."""

from __future__ import annotations

import gc
import os

import pytest

from nnefc.cli.tvm_alone import import_tvm
from nnefc.targets.codegen.cuda.compiler import COMPILER_VARIABLE

os.environ.setdefault(COMPILER_VARIABLE, "nvrtc")  # which is several times as fast as nvcc
import_tvm()  # before anything imports all of it, which takes seconds where torch is installed
gc.disable()  # until all modules of tests are there: see below


def pytest_collection_finish() -> None:
    """What is there before the first test stays to the end: Python need not look for cycles in it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the processor time of this process and of all that it waited for, workers among them."""
    minutes = sum(os.times()[:4]) / 60  # user and system, own and children's
    terminalreporter.write_line(f"{minutes:.1f} processor minutes")
