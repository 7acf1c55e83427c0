"""The loader with networks for a GPU: arrays here and there, streams, what it says when something does not fit."""

from __future__ import annotations

import copy
import ctypes
import gc
from collections.abc import Iterator
from ctypes import c_void_p
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from cuda_samples import CUDA_SAMPLE, cuda_library, sample_kernels
from fake_driver import FakeDriver
from runtime_samples import INITIAL_COUNT, WEIGHTS, sample_library

from nnefc.cli import main
from nnefc.loader import DeviceArray, LoadError, Model, RunError, load

X = np.random.default_rng(9).standard_normal(1024).astype(np.float32)
X[:2] = 1, 3


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    fake = FakeDriver.install()
    fake.machine()
    fake.clear()
    with fake.kernels(sample_kernels()):
        yield fake
    gc.collect()
    assert fake.complaints == ""
    assert fake.objects == []


@pytest.fixture
def model(driver: FakeDriver) -> Iterator[Model]:
    with load(cuda_library()) as loaded:
        yield loaded


class Shown:
    """Memory of the present GPU that shows itself as other libraries' arrays do."""

    def __init__(self, driver: FakeDriver, array: np.ndarray, **changes: Any) -> None:
        self._driver, self._array = driver, array
        self.address = driver.put(array)
        data = {"shape": array.shape, "typestr": array.dtype.str, "data": (self.address, False), "version": 3}
        self.__cuda_array_interface__ = {**data, **changes}

    def get(self) -> np.ndarray:
        return self._driver.get(self.address, self._array.dtype.type, *self._array.shape)

    def free(self) -> None:
        self._driver.free(self.address)


def check(y: Any, count: Any, runs: int, x: np.ndarray = X) -> None:
    np.testing.assert_array_equal(y, -(x * WEIGHTS))
    assert count == INITIAL_COUNT + runs


def test_arrays_of_the_host(model: Model) -> None:
    assert (model.device, model.device_bytes) == ("cuda:0", CUDA_SAMPLE.device_bytes)
    for run in range(3):
        check(*model(X), run + 1)
    out = np.empty_like(X), np.empty(1, np.int64)
    assert model(X, out=out) == out
    check(*out, 4)
    model.reset()
    results = model.run({"x": X})
    check(results["y"], results["count"], 1)
    model.synchronize()


def test_outputs_on_the_gpu_on_request(model: Model) -> None:
    for run in range(3):
        y, count = model(X, out="device")
        assert isinstance(y, DeviceArray) and (y.shape, y.dtype, y.nbytes) == ((1024,), np.float32, 4096)
        check(y.numpy(), count.numpy(), run + 1)
    assert repr(y) == "<DeviceArray float32[1024] on cuda:0>"
    check(*(array.numpy() for array in model.run({"x": X}, out="device").values()), 4)


def test_nan_is_found_on_the_gpu_too(driver: FakeDriver, model: Model) -> None:
    model(X, out="device", check_nan=True)
    bad = X.copy()
    bad[5] = np.nan
    with driver.context():
        for x in (bad, Shown(driver, bad)):
            with pytest.raises(RunError, match=r'input "x": 1 of 1024 elements are NaN, first \[5\]'):
                model(x, check_nan=True)
        x.free()
    with pytest.raises(RunError, match="a run on a stream has only begun"):
        model(X, check_nan=True, stream=1)


def test_copying_a_device_array_is_refused_for_both_would_free_its_memory(model: Model) -> None:
    y = model(X, out="device")[0]
    with pytest.raises(TypeError, match=r"numpy\(\) copies its elements"):
        copy.copy(y)


def test_a_device_array_is_an_input_again(model: Model) -> None:
    y = model(X, out="device")[0]
    np.testing.assert_array_equal(model(y)[0], X * WEIGHTS * WEIGHTS)
    np.testing.assert_array_equal(model(y, out="device")[0].numpy(), X * WEIGHTS * WEIGHTS)


def test_arrays_of_other_libraries(driver: FakeDriver, model: Model) -> None:
    with driver.context():
        x = Shown(driver, X)
        y, count = Shown(driver, np.zeros_like(X)), Shown(driver, np.zeros(1, np.int64))
        assert model(x, out=(y, count)) == (y, count)
        check(y.get(), count.get(), 1)
        host = np.empty(1, np.int64)
        results = model.run({"x": x}, out={"y": y, "count": host})
        assert results["y"] is y and results["count"] is host
        check(y.get(), host, 2)
        check(*model(x), 3)
        for array in (x, y, count):
            array.free()


def test_runs_on_a_stream(driver: FakeDriver, model: Model) -> None:
    class Stream:
        cuda_stream = 0

    class Newer:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, Stream.cuda_stream

    with driver.context():
        Stream.cuda_stream = driver.stream()
        x = Shown(driver, X)
        driver.clear()
        arrays = [model(x, stream=stream) for stream in (Stream.cuda_stream, Stream(), Newer())]
        assert "cuStreamSynchronize" not in driver.names
        assert arrays[0][0].__cuda_array_interface__["stream"] == Stream.cuda_stream
        for run, (y, count) in enumerate(arrays):
            check(y.numpy(), count.numpy(), run + 1)
        model(x, stream=0)
        model.synchronize()
        del arrays, y, count
        gc.collect()
        driver.dll.cuStreamDestroy_v2(Stream.cuda_stream)
        x.free()


def test_inputs_that_are_still_being_made_are_waited_for(driver: FakeDriver, model: Model) -> None:
    driver.dll.cuMemcpyDtoDAsync_v2.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, c_void_p]
    with driver.context():
        stream = driver.stream()
        x, source = Shown(driver, 0 * X, stream=stream), Shown(driver, X)
        driver.dll.cuMemcpyDtoDAsync_v2(x.address, source.address, 4096, stream)
        check(*model(x), 1)
        driver.dll.cuStreamDestroy_v2(stream)
        x.free()
        source.free()


def test_a_failure_of_a_run_on_a_stream_is_raised_later(driver: FakeDriver, model: Model) -> None:
    bad = X.copy()
    bad[0] = -1
    with driver.context():
        x = Shown(driver, bad)
        model(x, stream=1)
        with pytest.raises(RunError, match="kernel error: the network's code failed: minus one on the GPU"):
            model.synchronize()
        x.free()
    model.reset()
    check(*model(X), 1)


@pytest.mark.parametrize(
    ("array", "changes", "text"),
    [
        (X.astype(np.float64), {}, "has elements of another type than the model, which has float32"),
        (X[:512], {}, r"has the shape \[512\], but the model has \[1024\]"),
        (np.repeat(X, 2), {"shape": (1024,), "strides": (8,)}, "is not dense and row-major"),
        (X, {"mask": 1}, "arrays with a mask"),
        (X, {"typestr": "?!"}, "is a Shown that cannot be read"),
    ],
)
def test_inputs_that_do_not_fit(
    driver: FakeDriver, model: Model, array: np.ndarray, changes: dict[str, Any], text: str
) -> None:
    with driver.context():
        x = Shown(driver, array, **changes)
        with pytest.raises(RunError, match=text):
            model(x)
        x.free()


def test_calls_that_do_not_fit(driver: FakeDriver, model: Model) -> None:
    with pytest.raises(RunError, match="runs on a stream take arrays on the GPU"):
        model(X, stream=1)
    with pytest.raises(RunError, match="which is not a CUDA stream"):
        model(X, stream="first")
    with pytest.raises(RunError, match="out is 'there'"):
        model(X, out="there")
    with driver.context():
        x = Shown(driver, X)
        with pytest.raises(RunError, match="runs on a stream give arrays on the GPU"):
            model(x, out=(np.empty_like(X), np.empty(1, np.int64)), stream=1)
        with pytest.raises(RunError, match='out for "y" overlaps "x"'):
            model(x, out=(x, np.empty(1, np.int64)))
        sealed = Shown(driver, X)
        sealed.__cuda_array_interface__["data"] = (sealed.address, True)
        with pytest.raises(RunError, match='out for "y" may not be written'):
            model(X, out=(sealed, np.empty(1, np.int64)))
        sealed.free()
        x.free()
    check(*model(X), 1)


def test_sessions_on_several_gpus(driver: FakeDriver) -> None:
    driver.machine(devices=2)
    with load(cuda_library(), device=1) as first, first.session() as second, first.session(device=0) as third:
        assert [session.device for session in (first, second, third)] == ["cuda:1", "cuda:1", "cuda:0"]
        for session in (first, second, third):
            check(*session(X), 1)
        y, count = first(X, out="device")
        z, _ = third(y)  # by its protocol
        np.testing.assert_array_equal(z, -(-(X * WEIGHTS) * WEIGHTS))
        with driver.context(1):
            x, out = Shown(driver, X, stream=1), Shown(driver, np.zeros_like(X))
            third(x, out=(out, count))
            check(out.get(), count.numpy(), 3)
            x.free()
            out.free()
    with pytest.raises(LoadError, match="no device: device is 2, but there are 2 GPUs"):
        load(cuda_library(), device=2)


def test_networks_for_processors_say_so() -> None:
    with load(sample_library(), threads=1) as model:
        assert (model.device, model.device_bytes) == ("cpu", 0)
        model.synchronize()
        for options in ({"stream": 1}, {"out": "device"}):
            with pytest.raises(RunError, match="it has neither streams nor outputs on a device"):
                model(X, **options)
    with pytest.raises(LoadError, match="device is 1, but the model sample runs on processors"):
        load(sample_library(), device=1)


def test_the_command_line_chooses_the_gpu(driver: FakeDriver) -> None:
    driver.machine(devices=2)
    done = CliRunner().invoke(main, ["run", str(cuda_library()), "--random", "0", "--device", "1"])
    assert done.exit_code == 0, done.output
    assert "cuDeviceGet 1" in driver.log
    done = CliRunner().invoke(main, ["run", str(cuda_library()), "--random", "0", "--device", "2"])
    assert done.exit_code == 1
    assert "no device: device is 2, but there are 2 GPUs, numbered from 0" in done.output
    done = CliRunner().invoke(main, ["run", str(sample_library()), "--random", "0", "--device", "1"])
    assert "device is 1, but the model sample runs on processors" in done.output


# --- capsules


def test_a_capsule_without_a_consumer_frees_the_array(driver: FakeDriver, model: Model) -> None:
    y, count = model(X, out="device")
    before = len(driver.objects)
    capsule = y.__dlpack__()
    del y
    gc.collect()
    assert len(driver.objects) == before
    del capsule
    gc.collect()
    assert len(driver.objects) == before - 1
    assert count.__dlpack_device__() == (2, 0)


def python_function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


def test_a_capsule_that_is_taken_keeps_the_array_until_its_deleter_is_called(driver: FakeDriver, model: Model) -> None:
    pointer_of = python_function("PyCapsule_GetPointer", c_void_p, ctypes.py_object, ctypes.c_char_p)
    rename = python_function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
    y = model(X, out="device")[0]
    before = len(driver.objects)
    capsule = y.__dlpack__(stream=1)
    del y
    pointer, used = pointer_of(capsule, b"dltensor"), b"used_dltensor"
    rename(capsule, used)
    del capsule
    gc.collect()
    assert len(driver.objects) == before
    words = ctypes.cast(pointer, ctypes.POINTER(c_void_p))
    ctypes.CFUNCTYPE(None, c_void_p)(words[7])(pointer)  # after six words of the tensor and one of the context
    gc.collect()
    assert len(driver.objects) == before - 1


def test_a_copy_is_not_given(model: Model) -> None:
    with pytest.raises(BufferError):
        model(X, out="device")[0].__dlpack__(copy=True)
