"""The runtime for GPUs on a driver that records what it is asked for: the order of calls, sessions, memory, threads."""

from __future__ import annotations

import threading
from ctypes import byref, c_uint64

import numpy as np
import pytest
from cuda_network import (
    ALLOCATE,
    BAD_ARGUMENT,
    BAD_WEIGHTS,
    KERNEL_ERROR,
    OK,
    OUT_OF_MEMORY,
    RELEASE,
    Network,
    OnDevice,
)
from cuda_samples import CUDA_SAMPLE, cuda_library
from fake_driver import FakeDriver

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
