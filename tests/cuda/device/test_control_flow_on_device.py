"""Choices, loops and steps of the host, as `tests/backends/test_cuda_control_flow.py` has them, on a GPU."""

from __future__ import annotations

import pytest
import real_device
import test_cuda_control_flow as emulated

FUNCTIONS = [name for name in dir(emulated) if name.startswith("test_")]


@pytest.fixture(autouse=True)
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    def agree(model: object, inputs: object, *, checks: bool = False, **options: object) -> object:
        return real_device.agree(model, inputs, **options)

    monkeypatch.setattr(emulated, "agree", agree)


for name in FUNCTIONS:
    globals()[name] = getattr(emulated, name)
