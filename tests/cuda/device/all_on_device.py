"""A plugin of pytest's: tests written for CPUs, with all that they compile and load on the GPU of this machine.

python -m pytest -p all_on_device tests/frontends/pnnx/test_pnnx_operators.py

Tests of this folder choose by themselves what is on the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_device import on_device

__all__ = ["on_gpu"]


@pytest.fixture(autouse=True)
def on_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test in :func:`on_device`, but for those of this folder."""
    if request.path.parent == Path(__file__).parent:
        yield
        return
    with on_device():
        yield
