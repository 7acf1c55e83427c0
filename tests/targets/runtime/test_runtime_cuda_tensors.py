"""Tensors in the memory of GPUs, runs on streams, and several GPUs, on a driver that records what it is asked for."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint32, c_uint64, c_void_p

import numpy as np
from cuda_network import BAD_ARGUMENT, KERNEL_ERROR, OK, Network, OnDevice
from fake_driver import FakeDriver
from runtime_samples import INITIAL_COUNT, WEIGHTS


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
