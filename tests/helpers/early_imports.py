"""Imports the test files that several processes of pytest-xdist collect, each in an order of its own.

pytest parses each test file, rewrites its assertions and keeps the result for later runs. Processes that start at once
on new files would all do so for all of them; here, each reads what the others have done.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def import_share_first(arguments: Sequence[str]) -> None:
    """Imports the test files of some arguments of pytest, those first that other processes import last.

    A file that cannot be imported is left to the collection, which says why.
    """
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if count == 1 or sys.dont_write_bytecode:
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    files = [file for argument in arguments for file in _test_files(Path(argument.partition("::")[0]))]
    backward = number % 2 == 1  # two processes that went the same way would keep pace once one has caught up
    start = len(files) * (number + backward) // count
    order = (*files[start:], *files[:start])
    for file in reversed(order) if backward else order:
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))
        try:
            importlib.import_module(file.stem)
        except (Exception, pytest.skip.Exception):
            continue


def _test_files(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path.absolute()]
