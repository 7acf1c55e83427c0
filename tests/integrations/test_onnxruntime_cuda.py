"""Sessions and values on GPUs, with a driver that needs none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_samples import cuda_library, sample_kernels
from fake_driver import FakeDriver
from runtime_samples import INITIAL_COUNT, WEIGHTS

import nnefc.onnxruntime as ort
from nnefc.integrations.onnxruntime import providers

X = np.random.default_rng(9).standard_normal(1024).astype(np.float32)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    fake = FakeDriver.install()
    fake.machine()
    fake.clear()
    monkeypatch.setattr(providers, "_has_gpu", lambda: True)
    with fake.kernels(sample_kernels()):
        made = ort.InferenceSession(cuda_library())
        yield made
        made._libraries.first.model.close()
    del made
    gc.collect()
    assert (fake.complaints, fake.objects) == ("", [])


@pytest.mark.slow
def test_a_library_for_a_gpu_names_its_provider(session: Any) -> None:
    assert ort.get_available_providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert ort.get_device() == "GPU"
    assert [device.ep_name for device in ort.get_ep_devices()] == ["CPUExecutionProvider", "CUDAExecutionProvider"]
    assert session.get_providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert session.get_provider_options() == {"CUDAExecutionProvider": {"device_id": "0"}, "CPUExecutionProvider": {}}
    y, count = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, -(X * WEIGHTS))
    assert count == INITIAL_COUNT + 1


def test_a_number_that_is_no_gpu_leaves_the_session_on_the_cpu(session: Any) -> None:
    with pytest.raises(ValueError, match="device_id of CUDAExecutionProvider is 'first'"):
        providers.providers_of([("CUDAExecutionProvider", {"device_id": "first"})], None)


def test_values_are_copied_to_the_gpu_and_back(session: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    assert (value.device_name(), value.shape(), value.data_type()) == ("cuda", [1024], "tensor(float)")
    np.testing.assert_array_equal(value.numpy(), X)
    value.update_inplace(2 * X)
    np.testing.assert_array_equal(value.numpy(), 2 * X)
    y, _ = session.run(None, {"x": value})
    np.testing.assert_array_equal(y, -(2 * X * WEIGHTS))
    zeros = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "cuda")
    assert not zeros.numpy().any() and zeros.__dlpack_device__() == (2, 0)


def test_outputs_stay_on_the_gpu(session: Any) -> None:
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0))
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert y.device_name() == "cuda"
    np.testing.assert_array_equal(y.numpy(), -(X * WEIGHTS))
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], -(X * WEIGHTS))


def test_memory_of_the_gpu_by_its_address(session: Any) -> None:
    source = ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    target = ort.OrtValue.ortvalue_from_shape_and_type([1024], np.float32, "cuda")
    binding = session.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, [1024], source.data_ptr())
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), -(X * WEIGHTS))
    binding.clear_binding_outputs()
    other = ort.OrtValue.ortvalue_from_shape_and_type([1024], np.float32, "cuda")
    binding.bind_output("y", "cuda", 0, np.float32, [1024], other.data_ptr())
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(other.numpy(), -(X * WEIGHTS))
