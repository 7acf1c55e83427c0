"""What a run of the tests ends with: how much work it was, so that slow tests do not come unseen."""

from __future__ import annotations

import os

import pytest

from nnefc.cli.tvm_alone import import_tvm

import_tvm()  # before anything imports all of it, which takes seconds where torch is installed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the processor time of this process and of all that it waited for, workers among them."""
    minutes = sum(os.times()[:4]) / 60  # user and system, own and children's
    terminalreporter.write_line(f"{minutes:.1f} processor minutes")
