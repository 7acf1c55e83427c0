"""A plugin of pytest's: tests written for CPUs, with all that they compile and load on the GPU of this machine.

python -m pytest -p all_on_device tests/frontends/pnnx/test_pnnx_operators.py
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_device import on_device

__all__ = ["on_gpu"]


@pytest.fixture(autouse=True)
def on_gpu() -> Iterator[None]:
    """Each test in :func:`on_device`."""
    with on_device():
        yield
