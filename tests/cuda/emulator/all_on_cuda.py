"""A plugin of pytest's: tests written for CPUs, with all that they compile and load on an emulated GPU.

python -m pytest -p all_on_cuda tests/frontends/pnnx/test_pnnx_operators.py
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from emulated_networks import on_cuda

__all__ = ["on_gpu"]


@pytest.fixture(autouse=True)
def on_gpu() -> Iterator[None]:
    """Each test in :func:`on_cuda`."""
    with on_cuda():
        yield
