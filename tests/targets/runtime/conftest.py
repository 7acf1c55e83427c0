"""The stand-in for the driver of GPUs, and a library for them, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cuda_network import Network
from cuda_samples import cuda_library, sample_kernels
from fake_driver import FakeDriver


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    fake = FakeDriver.install()
    fake.machine()
    fake.clear()
    with fake.kernels(sample_kernels()):
        yield fake
    assert fake.complaints == ""
    assert fake.objects == []
    assert fake.dll.fake_depth() == 0


@pytest.fixture
def network(driver: FakeDriver) -> Network:
    return Network(cuda_library())
