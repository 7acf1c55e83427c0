"""The runtime for GPUs on a driver that writes down what it is asked for."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

import numpy as np
import pytest
from cuda_samples import CUDA_SAMPLE, cuda_library, sample_kernels
from fake_driver import FakeDriver, driver_folder
from runtime_samples import INITIAL_COUNT, WEIGHTS, sample_library

OK, BAD_ARGUMENT, OUT_OF_MEMORY, KERNEL_ERROR, BAD_WEIGHTS, NO_DEVICE, DEVICE_ERROR = 0, 1, 4, 5, 7, 8, 9


ALLOCATE = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
RELEASE = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_size_t)


class Options(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_int32),
        ("workspace", c_void_p),
        ("workspace_bytes", c_uint64),
        ("weights", c_char_p),
        ("device", c_int64),
        ("keep_subnormals", c_int64),
        *((name, c_void_p) for name in ("processors", "parallel_for", "parallel_for_pool")),
        ("constant_bytes", c_uint64),
        ("constants", c_void_p),
        ("time_limit", c_int64),
        ("allocate", ALLOCATE),
        ("release", RELEASE),
        ("allocator", c_void_p),
    )


class Network:
    """A library for a GPU, with its functions declared."""

    def __init__(self, path: Path) -> None:
        self.dll = ctypes.CDLL(str(path))
        self.dll.nnefc_last_error.restype = c_char_p
        for name in ("last_error", "destroy", "reset", "synchronize"):
            getattr(self.dll, f"nnefc_{name}").argtypes = [c_void_p]
        self.dll.nnefc_run.argtypes = [c_void_p] * 3
        self.dll.nnefc_enqueue.argtypes = [c_void_p] * 4
        self.x = np.random.default_rng(5).standard_normal(1024).astype(np.float32)
        self.x[:2] = 1, 3
        self.y = np.empty(1024, np.float32)
        self.count = np.empty(1, np.int64)

    def create(self, **options: object) -> tuple[int, c_void_p]:
        chosen = Options(ctypes.sizeof(Options), **options)
        session = c_void_p()
        return self.dll.nnefc_create(byref(chosen), byref(session)), session

    def session(self, **options: object) -> c_void_p:
        status, session = self.create(**options)
        assert status == OK, self.error(None)
        return session

    def run(self, session: c_void_p, *positions: int) -> int:
        """Run with tensors at these positions, or those that this object has."""
        x, y, count = positions or (self.x.ctypes.data, self.y.ctypes.data, self.count.ctypes.data)
        return self.dll.nnefc_run(session, (c_void_p * 1)(x), (c_void_p * 2)(y, count))

    def enqueue(self, session: c_void_p, x: int, y: int, count: int, stream: int | None = None) -> int:
        return self.dll.nnefc_enqueue(session, (c_void_p * 1)(x), (c_void_p * 2)(y, count), stream)

    def error(self, session: c_void_p | None) -> str:
        return self.dll.nnefc_last_error(session).decode()

    def check(self, runs: int) -> None:
        """What the last of so many runs gave."""
        np.testing.assert_array_equal(self.y, -(self.x * WEIGHTS))
        assert self.count[0] == INITIAL_COUNT + runs


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


CREATED = """cuInit cuDeviceGetCount cuDeviceGet cuDeviceGetAttribute cuDeviceGetAttribute cuDeviceGetAttribute
    cuDevicePrimaryCtxRetain cuModuleLoadData cuModuleGetFunction cuFuncSetAttribute cuModuleGetFunction cuMemAlloc_v2
    cuMemcpyHtoD_v2 cuStreamCreate cuMemAllocAsync cuStreamSynchronize cuMemHostAlloc cuMemHostGetDevicePointer_v2
    cuEventCreate cuMemcpyDtoDAsync_v2 cuStreamSynchronize"""

CAPTURED = """cuPointerGetAttributes cuPointerGetAttributes cuPointerGetAttributes cuStreamBeginCapture_v2
    cuMemcpyHtoDAsync_v2 cuMemcpyDtoDAsync_v2 cuMemsetD32Async cuMemsetD32Async cuMemsetD32Async cuLaunchKernel
    cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2 cuLaunchHostFunc cuMemcpyHtoDAsync_v2
    cuLaunchKernel cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2 cuStreamEndCapture cuGraphInstantiateWithFlags
    cuGraphDestroy cuGraphLaunch cuStreamSynchronize"""

REPLAYED = """cuPointerGetAttributes cuPointerGetAttributes cuPointerGetAttributes cuGraphLaunch cuStreamSynchronize"""

DESTROYED = """cuMemFreeAsync cuGraphExecDestroy cuEventDestroy_v2 cuStreamDestroy_v2 cuMemFreeHost cuMemFree_v2
    cuModuleUnload cuDevicePrimaryCtxRelease_v2"""


def test_calls_come_in_this_order(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    assert driver.names == CREATED.split()
    assert f"cuMemAlloc_v2 {4096 + 8}" in driver.log  # the constants
    assert f"cuMemAllocAsync {CUDA_SAMPLE.device_bytes}" in driver.log
    assert CUDA_SAMPLE.device_bytes == 8448 + 256 + 4096 + 4096 + 256
    assert "cuFuncSetAttribute 8 to 65536" in driver.log
    for run in range(4):
        driver.clear()
        network.x[7] = run
        assert network.run(session) == OK
        network.check(run + 1)
        assert driver.names == (CAPTURED if run == 0 else REPLAYED).split()
    driver.clear()
    assert network.dll.nnefc_reset(session) == OK
    assert driver.names == ["cuMemcpyDtoDAsync_v2", "cuStreamSynchronize"]
    assert network.run(session) == OK
    network.check(1)
    driver.clear()
    assert network.dll.nnefc_destroy(session) == OK
    assert driver.names == DESTROYED.split()


def test_a_gpu_without_memory_pools_has_memory_of_its_own(driver: FakeDriver, network: Network) -> None:
    driver.machine(pools=False)
    session = network.session()
    assert driver.names.count("cuMemAlloc_v2") == 2 and "cuMemAllocAsync" not in driver.names
    assert network.run(session) == OK
    network.check(1)
    driver.clear()
    assert network.dll.nnefc_destroy(session) == OK
    assert driver.names.count("cuMemFree_v2") == 2 and "cuMemFreeAsync" not in driver.names


def test_memory_goes_back_to_the_pool_behind_runs_that_nothing_waits_for(driver: FakeDriver, network: Network) -> None:
    """Waiting for them fails when the session ends; the GPU frees what they use after them."""
    session = network.session()
    with driver.context():
        tensors, stream = OnDevice(driver, network), driver.stream()
        assert network.enqueue(session, *tensors.positions, stream) == OK
        driver.clear()
        driver.fail(1, 999, "cuEventSynchronize")
        assert network.dll.nnefc_destroy(session) != OK
        freed = driver.names[driver.names.index("cuStreamWaitEvent") :]
        assert freed[:3] == ["cuStreamWaitEvent", "cuMemFreeAsync", "cuStreamSynchronize"]
        assert driver.dll.cuStreamDestroy_v2(stream) == 0
        tensors.free()


def test_sessions_share_the_code_and_the_trained_values(driver: FakeDriver, network: Network) -> None:
    first = network.session()
    driver.clear()
    second = network.session()
    assert not {"cuModuleLoadData", "cuMemcpyHtoD_v2", "cuDevicePrimaryCtxRetain"} & set(driver.names)
    for session in (first, second, first):
        assert network.run(session) == OK
    network.check(2)
    assert network.dll.nnefc_destroy(first) == OK
    assert network.run(second) == OK
    network.check(2)
    assert network.dll.nnefc_destroy(second) == OK


def test_each_gpu_has_trained_values_of_its_own(driver: FakeDriver, network: Network) -> None:
    driver.machine(devices=2)
    sessions = [network.session(device=device) for device in (0, 1, 1)]
    assert driver.names.count("cuMemcpyHtoD_v2") == driver.names.count("cuModuleLoadData") == 2
    for session in sessions:
        assert network.run(session) == OK
        network.check(1)
        assert network.dll.nnefc_destroy(session) == OK


def test_trained_values_in_a_file_are_read_once(driver: FakeDriver) -> None:
    network = Network(cuda_library(weights="separate"))
    sessions = [network.session() for _ in range(2)]
    assert driver.names.count("cuMemcpyHtoD_v2") == 1
    for session in sessions:
        assert network.run(session) == OK
        network.check(1)
        assert network.dll.nnefc_destroy(session) == OK
    assert network.create(weights=b"/nowhere")[0] == BAD_WEIGHTS


def test_a_network_that_reads_values_runs_without_a_graph(driver: FakeDriver) -> None:
    network = Network(cuda_library("-DLOOPS"))
    session = network.session()
    for run in range(2):
        driver.clear()
        assert network.run(session) == OK, network.error(session)
        network.check(3 * (run + 1))  # x[1] is 3
        assert "cuStreamBeginCapture_v2" not in driver.names
        assert driver.names.count("cuLaunchKernel") == 1 + 3
    assert network.dll.nnefc_destroy(session) == OK


@pytest.mark.parametrize("flags", [(), ("-DLOOPS",)])
def test_failures_of_kernels_have_their_texts(driver: FakeDriver, flags: tuple[str, ...]) -> None:
    network = Network(cuda_library(*flags))
    session = network.session()
    for first, text in ((-1, "minus one on the GPU"), (-2, "minus two on the processor")):
        network.x[0] = first
        assert network.run(session) == KERNEL_ERROR
        assert network.error(session) == f"the network's code failed: {text}"
    network.x[0] = 1
    assert network.dll.nnefc_reset(session) == OK
    assert network.run(session) == OK
    network.check(3 if flags else 1)
    assert network.dll.nnefc_destroy(session) == OK


# --- tensors in the GPU's memory


class OnDevice:
    """The network's tensors in memory of the present GPU, the first byte so many bytes into a block."""

    def __init__(self, driver: FakeDriver, network: Network, offset: int = 0) -> None:
        self._driver, self._network, self._offset = driver, network, offset
        tensors = (network.x, np.zeros_like(network.y), np.zeros_like(network.count))
        padded = [np.concatenate([np.zeros(offset, np.uint8), tensor.view(np.uint8)]) for tensor in tensors]
        self._blocks = [driver.put(block) for block in padded]
        self.positions = [block + offset for block in self._blocks]

    def check(self, runs: int) -> None:
        """Compare the outputs, which must be done."""
        y, count = self.positions[1:]
        self._network.y[:] = self._driver.get(y, np.float32, 1024)
        self._network.count[:] = self._driver.get(count, np.int64, 1)
        self._network.check(runs)

    def free(self) -> None:
        self._driver.free(*self._blocks)


def test_tensors_may_be_on_the_gpu(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    with driver.context():
        tensors = OnDevice(driver, network)
        for run in range(4):
            driver.clear()
            assert network.run(session, *tensors.positions) == OK
            assert ("cuStreamBeginCapture_v2" in driver.names) == (run == 1)  # when the positions are seen again
            assert ("cuGraphLaunch" in driver.names) == (run >= 1)
            copies = [name for name in driver.names if name.startswith("cuMemcpy")]
            if run < 2:  # none but those of the network itself
                assert copies == ["cuMemcpyDtoDAsync_v2", *["cuMemcpyDtoHAsync_v2"] * 2, "cuMemcpyHtoDAsync_v2"]
            tensors.check(run + 1)
        tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_some_tensors_may_be_on_the_gpu(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    with driver.context():
        tensors = OnDevice(driver, network)
        x, y, _ = tensors.positions
        for run in range(3):
            network.count[0] = 0
            assert network.run(session, x, y, network.count.ctypes.data) == OK
            np.testing.assert_array_equal(driver.get(y, np.float32, 1024), -(network.x * WEIGHTS))
            assert network.count[0] == INITIAL_COUNT + run + 1
        tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_tensors_that_are_not_aligned_for_vectors_are_copied(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    with driver.context():
        tensors = OnDevice(driver, network, offset=8)
        for run in range(3):
            assert network.run(session, *tensors.positions) == OK
            tensors.check(run + 1)
        tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_tensors_in_turns_have_a_graph_each(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    with driver.context():
        turns = [OnDevice(driver, network) for _ in range(3)]
        for run in range(12):
            assert network.run(session, *turns[run % 3].positions) == OK
            turns[run % 3].check(run + 1)
        assert driver.names.count("cuStreamBeginCapture_v2") == 3
        assert driver.names.count("cuGraphLaunch") == 9
        for tensors in turns:
            tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_graphs_of_positions_that_are_not_seen_any_more_make_room(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    with driver.context():
        turns = [OnDevice(driver, network) for _ in range(20)]
        for number, tensors in enumerate(turns):
            for run in range(2):
                assert network.enqueue(session, *tensors.positions) == OK
                assert network.dll.nnefc_synchronize(session) == OK
                tensors.check(2 * number + run + 1)
        assert sum(line.startswith("runnable graph") for line in driver.objects) == 8
        for tensors in turns:
            tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_a_run_that_finds_no_room_for_its_graph_waits_for_nothing(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    with driver.context():
        turns = [OnDevice(driver, network) for _ in range(10)]
        driver.clear()
        for tensors in turns[:8] * 2:
            assert network.enqueue(session, *tensors.positions) == OK
        graphs = driver.names.count("cuStreamBeginCapture_v2")
        assert graphs == 8
        for tensors in turns[8:] * 2:  # the eight graphs have not run yet: these runs are launched kernel by kernel
            assert network.enqueue(session, *tensors.positions) == OK
        assert driver.names.count("cuStreamBeginCapture_v2") == graphs
        assert not {"cuStreamSynchronize", "cuEventSynchronize", "cuGraphExecDestroy"} & set(driver.names)
        assert network.dll.nnefc_synchronize(session) == OK
        for tensors in turns[8:] * 2:  # now there is room
            assert network.enqueue(session, *tensors.positions) == OK
        assert network.dll.nnefc_synchronize(session) == OK
        assert driver.names.count("cuStreamBeginCapture_v2") == graphs + 2
        turns[9].check(24)
        for tensors in turns:
            tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_runs_on_streams_follow_each_other(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    with driver.context():
        tensors = OnDevice(driver, network)
        streams = [driver.stream(), driver.stream(), None, 1]  # the session's own and the default stream, too
        driver.clear()
        for run in range(12):
            assert network.enqueue(session, *tensors.positions, stream=streams[run % 4]) == OK, network.error(session)
        assert "cuStreamSynchronize" not in driver.names  # nothing waits
        assert driver.names.count("cuStreamWaitEvent") == 11
        assert network.dll.nnefc_synchronize(session) == OK
        tensors.check(12)
        for stream in streams[:2]:
            driver.dll.cuStreamDestroy_v2(stream)
        tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_work_on_the_callers_stream_comes_before_and_after(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    driver.dll.cuMemcpyDtoDAsync_v2.argtypes = [c_uint64, c_uint64, ctypes.c_size_t, c_void_p]
    with driver.context():
        tensors, stream = OnDevice(driver, network), driver.stream()
        x, y, count = tensors.positions
        source, target = driver.put(2 * network.x), driver.put(network.y)
        assert driver.dll.cuMemcpyDtoDAsync_v2(x, source, 4096, stream) == 0
        assert network.enqueue(session, x, y, count, stream) == OK
        assert driver.dll.cuMemcpyDtoDAsync_v2(target, y, 4096, stream) == 0
        assert driver.dll.cuStreamSynchronize(stream) == 0
        np.testing.assert_array_equal(driver.get(target, np.float32, 1024), -(2 * network.x * WEIGHTS))
        driver.dll.cuStreamDestroy_v2(stream)
        driver.free(source, target)
        tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_destroy_and_reset_wait_for_runs(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    with driver.context():
        tensors = OnDevice(driver, network)
        assert network.enqueue(session, *tensors.positions) == OK
        assert network.dll.nnefc_reset(session) == OK
        tensors.check(1)
        assert network.enqueue(session, *tensors.positions, stream=1) == OK
        assert network.dll.nnefc_destroy(session) == OK
        tensors.check(1)
        tensors.free()


def test_states_are_copied_after_runs(driver: FakeDriver, network: Network) -> None:
    for name in ("get_state", "set_state"):
        getattr(network.dll, f"nnefc_{name}").argtypes = [c_void_p, c_uint32, c_void_p]
    network.dll.nnefc_copy_states.argtypes = [c_void_p, c_void_p]
    first, second = network.session(), network.session()
    state = np.zeros(1, np.int64)
    assert network.run(first) == OK
    driver.clear()
    assert network.dll.nnefc_get_state(first, 0, state.ctypes.data) == OK
    assert driver.names == ["cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"]
    assert state[0] == INITIAL_COUNT + 1
    state[0] += 10
    assert network.dll.nnefc_set_state(first, 0, state.ctypes.data) == OK
    with driver.context():
        tensors = OnDevice(driver, network)
        assert network.enqueue(first, *tensors.positions) == OK
        assert network.dll.nnefc_copy_states(second, first) == OK
        tensors.free()
    for session in (first, second):
        assert network.run(session) == OK
        network.check(13)
        assert network.dll.nnefc_destroy(session) == OK


def test_a_run_that_fails_later_is_the_answer_of_the_next_call(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    network.x[0] = -1
    with driver.context():
        bad = OnDevice(driver, network)
        network.x[0] = 1
        good = OnDevice(driver, network)
        for call in (network.dll.nnefc_synchronize, network.run):
            assert network.enqueue(session, *bad.positions, stream=1) == OK
            assert call(session) == KERNEL_ERROR
            assert network.error(session) == "the network's code failed: minus one on the GPU"
            assert network.dll.nnefc_synchronize(session) == OK
        assert network.enqueue(session, *bad.positions, stream=1) == OK
        assert driver.dll.cuStreamSynchronize(1) == 0  # so that the failure is known
        assert network.enqueue(session, *good.positions, stream=1) == KERNEL_ERROR
        assert network.enqueue(session, *bad.positions, stream=1) == OK
        assert network.dll.nnefc_reset(session) == OK  # forgets it
        assert network.enqueue(session, *good.positions, stream=1) == OK
        assert network.dll.nnefc_synchronize(session) == OK
        good.check(1)
        bad.free()
        good.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_positions_of_the_host_are_refused_on_streams(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    host = (network.x.ctypes.data, network.y.ctypes.data, network.count.ctypes.data)
    assert network.enqueue(session, *host) == BAD_ARGUMENT
    assert network.error(session) == "input \"x\" is in the host's memory: nnefc_enqueue takes the GPU's"
    assert network.run(session) == OK
    network.check(1)
    assert network.dll.nnefc_destroy(session) == OK


def test_tensors_on_another_gpu_are_copied_around_one_graph(driver: FakeDriver, network: Network) -> None:
    driver.machine(devices=2)
    session = network.session()
    with driver.context(1):
        for run in range(3):
            tensors = OnDevice(driver, network, offset=8 * run)
            driver.clear()
            assert network.run(session, *tensors.positions) == OK
            assert ("cuStreamBeginCapture_v2" in driver.names) == (run == 0)
            between, graph = "cuMemcpyPeerAsync", "cuGraphLaunch"
            assert [n for n in driver.names if n in (between, graph)] == [between, graph, between, between]
            assert ("cuDevicePrimaryCtxRetain" in driver.names) == (run == 0)
            tensors.check(run + 1)
            tensors.free()
        y, count = driver.put(np.zeros_like(network.y)), network.count.ctypes.data
        assert network.run(session, network.x.ctypes.data, y, count) == OK  # of all memories, each in its own
        network.y[:] = driver.get(y, np.float32, 1024)
        network.check(4)
        driver.free(y)
    assert network.dll.nnefc_destroy(session) == OK


def test_runs_on_a_stream_bring_results_to_another_gpu(driver: FakeDriver, network: Network) -> None:
    driver.machine(devices=2)
    session = network.session()
    with driver.context(1):
        tensors = OnDevice(driver, network)
        with driver.context(0):
            stream = driver.stream()
            for _ in range(2):
                assert network.enqueue(session, *tensors.positions, stream) == OK
            assert "cuStreamSynchronize" not in driver.names[driver.names.index("cuMemcpyPeerAsync") :]
            assert driver.dll.cuStreamSynchronize(stream) == 0
            driver.dll.cuStreamDestroy_v2(stream)
        tensors.check(2)
        tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_states_are_copied_from_a_session_on_another_gpu(driver: FakeDriver, network: Network) -> None:
    driver.machine(devices=2)
    network.dll.nnefc_copy_states.argtypes = [c_void_p, c_void_p]
    first, second = network.session(device=1), network.session()
    with driver.context(1):
        tensors = OnDevice(driver, network)
        assert network.enqueue(first, *tensors.positions) == OK
        driver.clear()
        assert network.dll.nnefc_copy_states(second, first) == OK
        assert driver.names == ["cuEventSynchronize", "cuMemcpyPeerAsync", "cuStreamSynchronize"]
        tensors.free()
    assert network.run(second) == OK
    network.check(2)
    for session in (first, second):
        assert network.dll.nnefc_destroy(session) == OK


def test_a_stream_that_is_captured_is_refused(driver: FakeDriver, network: Network) -> None:
    session = network.session()
    driver.dll.cuStreamBeginCapture_v2.argtypes = [c_void_p, ctypes.c_int]
    driver.dll.cuStreamEndCapture.argtypes = [c_void_p, c_void_p]
    graph = c_void_p()
    with driver.context():
        tensors, stream = OnDevice(driver, network), driver.stream()
        driver.dll.cuStreamBeginCapture_v2(stream, 2)
        assert network.enqueue(session, *tensors.positions, stream) == BAD_ARGUMENT
        assert "is being captured" in network.error(session)
        driver.dll.cuStreamEndCapture(stream, byref(graph))
        driver.dll.cuGraphDestroy(graph)
        driver.dll.cuStreamDestroy_v2(stream)
        tensors.free()
    assert network.dll.nnefc_destroy(session) == OK


def test_a_workspace_of_the_callers(driver: FakeDriver, network: Network) -> None:
    with driver.context():
        memory = driver.put(np.zeros(8208, np.uint8))
        driver.clear()
        session = network.session(workspace=memory, workspace_bytes=8208)
        assert f"cuMemAllocAsync {CUDA_SAMPLE.device_bytes - 8448}" in driver.log
        assert network.run(session) == OK
        network.check(1)
        assert network.dll.nnefc_destroy(session) == OK
        assert network.create(workspace=memory + 64, workspace_bytes=8208)[0] == BAD_ARGUMENT
        assert network.error(None) == "the workspace is not aligned to 256 bytes"
        assert network.create(workspace=memory, workspace_bytes=8207)[0] == BAD_ARGUMENT
        driver.free(memory)
    host = np.zeros(16384, np.uint8)
    aligned = -(-host.ctypes.data // 256) * 256
    assert network.create(workspace=aligned, workspace_bytes=8208)[0] == BAD_ARGUMENT
    assert network.error(None) == "the workspace is not in the memory of GPU 0"


def test_the_gpus_memory_from_the_program(driver: FakeDriver, network: Network) -> None:
    held: list[tuple[int, int]] = []

    def allocate(allocator: int, size: int, alignment: int) -> int:
        memory = c_uint64()
        assert (allocator, alignment, driver.dll.cuMemAlloc_v2(byref(memory), size)) == (7, 256, 0)
        held.append((memory.value, size))
        return memory.value

    def release(allocator: int, memory: int, size: int, alignment: int) -> None:
        held.remove((memory, size))
        assert (allocator, alignment, driver.dll.cuMemFree_v2(memory)) == (7, 256, 0)

    functions = {"allocate": ALLOCATE(allocate), "release": RELEASE(release), "allocator": 7}
    session = network.session(**functions)
    assert [size for _, size in held] == [CUDA_SAMPLE.device_bytes]
    assert network.run(session) == OK
    network.check(1)
    assert network.dll.nnefc_destroy(session) == OK
    assert not held
    host = np.zeros(CUDA_SAMPLE.device_bytes + 256, np.uint8)
    functions |= {
        "allocate": ALLOCATE(lambda *_: -(-host.ctypes.data // 256) * 256),
        "release": RELEASE(lambda *_: None),
    }
    assert network.create(**functions)[0] == BAD_ARGUMENT
    assert network.error(None) == "what allocate returned is not in the memory of GPU 0"
    assert network.create(**functions | {"allocate": ALLOCATE(lambda *_: None)})[0] == OUT_OF_MEMORY
    assert network.create(time_limit=1)[0] == BAD_ARGUMENT


# --- machines that cannot run it


@pytest.mark.parametrize(
    ("machine", "device", "text"),
    [
        ({"devices": 1}, 1, "device is 1, but there are 1 GPUs, numbered from 0"),
        ({"devices": 2}, -1, "device is -1, but there are 2 GPUs, numbered from 0"),
        (
            {"capability": (7, 5)},
            0,
            "compiled for sm_80, sm_90, but Emulated GPU has compute capability 7.5: compile the model for -arch=sm_75",
        ),
        (
            {"capability": (8, 7)},  # a Tegra's code is its own
            0,
            "compiled for sm_80, sm_90, but Emulated GPU has compute capability 8.7: compile the model for -arch=sm_87",
        ),
        ({"devices": 0}, 0, "starting NVIDIA's driver failed with 100, CUDA_ERROR_NO_DEVICE: a description"),
    ],
)
def test_machines_that_cannot_run_it(
    driver: FakeDriver, network: Network, machine: dict[str, object], device: int, text: str
) -> None:
    driver.machine(**machine)
    status, session = network.create(device=device)
    assert (status, session.value, network.error(None)) == (NO_DEVICE, None, text)


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 1)])
def test_newer_gpus_run_it(driver: FakeDriver, network: Network, capability: tuple[int, int]) -> None:
    driver.machine(capability=capability)
    session = network.session()
    assert network.run(session) == OK
    assert network.dll.nnefc_destroy(session) == OK


@pytest.mark.parametrize("result", [209, 222])
def test_a_driver_that_does_not_take_the_code(driver: FakeDriver, network: Network, result: int) -> None:
    driver.machine(version=12020)
    driver.fail(1, result, "cuModuleLoadData")
    assert network.create()[0] == NO_DEVICE
    assert network.error(None).endswith(
        "the code is for sm_80, sm_90, the driver for CUDA 12.2: a newer driver may take it"
    )


LOAD = """
import sys
import nnefc
try:
    nnefc.load(sys.argv[1])
except nnefc.LoadError as error:
    print(error)
"""
LOAD_AGAIN = """
import sys
from pathlib import Path
import nnefc
pages = []
for _ in range(5):
    for _ in range(40):
        try:
            nnefc.load(sys.argv[1])
        except nnefc.LoadError:
            pass
    pages.append(int(Path("/proc/self/statm").read_text().split()[0]))
print(min(after - before for before, after in zip(pages, pages[1:])))
"""
LOAD_WITHOUT_COLLECTION = """
import gc
import sys
import nnefc
from nnefc.loader.session import Session
gc.disable()
try:
    nnefc.load(sys.argv[1])
except nnefc.LoadError:
    pass
print(sum(isinstance(value, (nnefc.Model, Session)) for value in gc.get_objects()))
"""


def load_with(folder: Path, program: str = LOAD) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-c", program, str(cuda_library())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_machine_without_a_driver(tmp_path: Path) -> None:
    # a file of that name comes before a driver that this machine may have
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    text = load_with(tmp_path)
    assert "no device: NVIDIA's driver cannot be opened (" in text
    assert "install it, or run on a machine with a GPU of NVIDIA's" in text


@pytest.mark.skipif(sys.platform != "linux", reason="needs: /proc")
def test_nothing_is_left_of_loads_without_a_driver(tmp_path: Path) -> None:
    """A leak grows with every forty loads; Python's allocator takes an arena of 256 pages with some of them only."""
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    assert int(load_with(tmp_path, LOAD_AGAIN)) < 20


def test_a_load_that_fails_leaves_no_cycle_of_objects(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    assert int(load_with(tmp_path, LOAD_WITHOUT_COLLECTION)) == 0


def test_a_driver_that_lacks_a_function(tmp_path: Path) -> None:
    from runtime_samples import shared_library_of

    old = shared_library_of("int cuGetErrorName(void) { return 0; }", tmp_path / "old.so")
    old.rename(tmp_path / "libcuda.so.1")
    assert "no device: NVIDIA's driver is too old: it has no cuGetErrorString; CUDA 11.4 was" in load_with(tmp_path)


# --- threads, processes, other libraries


def test_sessions_in_threads(driver: FakeDriver) -> None:
    failures: list[str] = []

    def work(number: int) -> None:
        network = Network(cuda_library())
        network.x[3] = number
        for _ in range(3):
            session = network.session()
            for run in range(5):
                if network.run(session) != OK:
                    failures.append(network.error(session))
                network.check(run + 1)
            network.dll.nnefc_destroy(session)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


FORK = """
import os, sys
import numpy as np
import nnefc
from fake_driver import FakeDriver

model = nnefc.load(sys.argv[1])
x = np.ones(1024, np.float32)
model(x)
def says_so(call):
    try:
        call()
    except (nnefc.RunError, nnefc.LoadError) as error:
        assert "this process was forked from one that used the GPU" in str(error), error
    else:
        raise AssertionError("it works")
child = os.fork()
if child == 0:
    try:
        says_so(lambda: model(x))
        says_so(model.reset)
        says_so(lambda: model.session())
        model.close()
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
model(x)
model.close()
"""


def test_a_forked_child_is_reported(driver: FakeDriver) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver_folder()), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FORK, str(cuda_library())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_libraries_for_processors_have_nothing_of_cuda() -> None:
    on_host, cuda = sample_library().read_bytes(), cuda_library().read_bytes()
    for text in (b"libcuda", b"cuInit", b"nnefc_cuda", b"nnefc_enqueue", b"dlopen"):
        assert text not in on_host
    assert b"libcuda.so.1" in cuda and b"nnefc_enqueue" in cuda
    assert len(cuda) > len(on_host)


def test_the_description_tells_the_device() -> None:
    import nnefc

    assert nnefc.load(sample_library()).device == "cpu"
