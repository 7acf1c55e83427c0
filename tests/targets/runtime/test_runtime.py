"""The C interface, called as a program calls it: every status, misuse, threads and fork."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_samples import (
    CONSTANTS,
    INITIAL_COUNT,
    SAMPLE,
    WEIGHTS,
    link,
    object_file,
    object_of,
    sample_library,
    shared_library_of,
    thread_count,
)

_FLUSHES = platform.machine() in ("x86_64", "AMD64", "aarch64", "arm64")  # whether the processor can

_UPWARD = {"x86_64": 0x800, "aarch64": 0x400000, "riscv64": 3}
"""FE_UPWARD of <fenv.h>."""

OK, BAD_ARGUMENT, WRONG_ABI, UNSUPPORTED_CPU, OUT_OF_MEMORY, KERNEL_ERROR, BUSY = range(7)


class Options(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_int32),
        ("workspace", c_void_p),
        ("workspace_bytes", c_uint64),
        ("weights", c_char_p),
        ("device", c_int64),
        ("keep_subnormals", c_int32),
        ("reserved", c_int32),
        ("processors", POINTER(c_int32)),
        ("parallel_for", c_void_p),
        ("parallel_for_pool", c_void_p),
    )


TASK = ctypes.CFUNCTYPE(None, c_void_p, c_uint32)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, TASK, c_void_p)


class Sample:
    """The sample network's library with its functions declared."""

    def __init__(self, path: Path) -> None:
        self.dll = ctypes.CDLL(str(path))
        self.dll.nnefc_last_error.restype = c_char_p
        self.dll.nnefc_last_error.argtypes = [c_void_p]
        self.dll.nnefc_status_name.restype = c_char_p
        self.dll.nnefc_destroy.argtypes = self.dll.nnefc_reset.argtypes = [c_void_p]
        self.dll.nnefc_run.argtypes = [c_void_p, c_void_p, c_void_p]
        self.x = np.arange(1024, dtype=np.float32)
        self.y = np.zeros(1024, np.float32)
        self.count = np.zeros(1, np.int64)

    def create(self, threads: int = 1, **options: Any) -> tuple[int, c_void_p]:
        chosen = Options(options.pop("struct_size", ctypes.sizeof(Options)), threads, **options)
        session = c_void_p()
        return self.dll.nnefc_create(byref(chosen), byref(session)), session

    def session(self, threads: int = 1) -> c_void_p:
        status, session = self.create(threads)
        assert status == OK, self.error(None)
        return session

    def run(self, session: c_void_p, first: float = 1) -> int:
        self.x[0] = first
        inputs = (c_void_p * 1)(self.x.ctypes.data)
        outputs = (c_void_p * 2)(self.y.ctypes.data, self.count.ctypes.data)
        return self.dll.nnefc_run(session, inputs, outputs)

    def run_slowly(self, session: c_void_p) -> int:
        """A run of 0.3 s, begun once no other call is under way."""
        while (status := self.run(session, -5)) == BUSY:
            pass
        return status

    def error(self, session: c_void_p | None) -> str:
        return self.dll.nnefc_last_error(session).decode()

    def right(self) -> bool:
        return np.array_equal(self.y, self.x * WEIGHTS)


@pytest.fixture
def sample() -> Sample:
    return Sample(sample_library())


@pytest.fixture
def session(sample: Sample) -> Iterator[c_void_p]:
    made = sample.session()
    yield made
    assert sample.dll.nnefc_destroy(made) == OK


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 300])
def test_run_with_any_number_of_threads(sample: Sample, threads: int) -> None:
    session = sample.session(threads)
    for _ in range(20):
        sample.y[:] = np.nan
        assert sample.run(session) == OK
        assert sample.right()
    assert sample.dll.nnefc_destroy(session) == OK


@pytest.mark.parametrize("way", [-3, -6, -8], ids=["launch inside a launch", "more tasks than threads", "300 launches"])
def test_unusual_launches(sample: Sample, way: int) -> None:
    session = sample.session(3)
    assert sample.run(session, way) == OK
    assert sample.right()
    sample.dll.nnefc_destroy(session)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_launches_spread_over_all_threads(sample: Sample, threads: int) -> None:
    session = sample.session(threads)
    maximum = 0
    for _ in range(500):  # a worker that gets no processor in time loses its share to the launching thread
        assert sample.run(session, -11) == OK
        assert sample.right()
        maximum = max(maximum, int(sample.count[0]))
        if maximum == threads:
            break
    assert maximum == threads
    sample.dll.nnefc_destroy(session)


def test_state_lives_in_the_session_and_reset_brings_back_the_start(sample: Sample) -> None:
    first, second = sample.session(), sample.session()
    for expected in (1, 2, 3):
        assert sample.run(first) == OK
        assert sample.count[0] == INITIAL_COUNT + expected
    assert sample.run(second) == OK
    assert sample.count[0] == INITIAL_COUNT + 1
    assert sample.dll.nnefc_reset(first) == OK
    assert sample.run(first) == OK
    assert sample.count[0] == INITIAL_COUNT + 1
    for session in (first, second):
        sample.dll.nnefc_destroy(session)


@pytest.mark.parametrize(
    ("way", "text"),
    [
        (-1, "RuntimeError: bad luck"),
        (-2, "more scratch memory"),
        (-4, "failed: a parallel task failed with 9"),
        (-7, "does not hold"),
        (-9, "failed: a parallel task failed with 9"),
        (-12, "failed: index 7 is out of range"),
        (-10, "calls a function of TVM that compiled libraries do not have"),
    ],
)
def test_failing_kernel_is_a_status_and_the_session_lives_on(sample: Sample, way: int, text: str) -> None:
    session = sample.session(2)
    assert sample.run(session, way) == KERNEL_ERROR
    assert text in sample.error(session)
    assert sample.run(session) == OK
    assert sample.error(session) == ""
    assert sample.right()
    sample.dll.nnefc_destroy(session)


@pytest.mark.parametrize("threads", [-1, 1025, -(1 << 31)])
def test_threads_out_of_range(sample: Sample, threads: int) -> None:
    status, session = sample.create(threads)
    assert (status, session.value) == (BAD_ARGUMENT, None)
    assert sample.error(None) == f"threads is {threads}, not a number from 0 to 1024"


@pytest.mark.parametrize("size", [0, 23, 25, 31, 33, 41, 49, 71, 73, 87, 89, 96, 121, 1 << 31])
def test_options_of_another_size(sample: Sample, size: int) -> None:
    status, session = sample.create(struct_size=size)
    assert (status, session.value) == (WRONG_ABI, None)
    assert f"struct_size is {size}, but ABI version 1 has 24, 32, 40, 48, 72, 88 or 120" in sample.error(None)


@pytest.mark.parametrize("size", [24, 32, 40, 48, 72])
def test_options_of_earlier_versions_are_taken(sample: Sample, size: int) -> None:
    status, session = sample.create(
        struct_size=size,
        device=0 if size > 32 else 7,
        keep_subnormals=0 if size > 40 else 5,
        parallel_for=0 if size > 48 else 1,
        constants=1,
    )  # beyond what they have
    assert status == OK
    assert sample.run(session) == OK
    assert sample.dll.nnefc_destroy(session) == OK


def on_one(pool: int, count: int, task: Any, context: int) -> None:
    for index in reversed(range(count)):
        task(context, index)


def on_threads(pool: int, count: int, task: Any, context: int) -> None:
    workers = [threading.Thread(target=task, args=(context, index)) for index in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@pytest.mark.parametrize("way", [on_one, on_threads])
def test_a_session_runs_on_threads_of_the_callers(sample: Sample, way: Any) -> None:
    calls: list[tuple[int, int]] = []

    def parallel_for(pool: int, count: int, task: Any, context: int) -> None:
        calls.append((pool, count))
        way(pool, count, task, context)

    before, function = thread_count(), PARALLEL_FOR(parallel_for)
    status, session = sample.create(3, parallel_for=ctypes.cast(function, c_void_p), parallel_for_pool=77)
    assert status == OK, sample.error(None)
    assert thread_count() == before
    for _ in range(20):
        assert sample.run(session) == OK, sample.error(session)
        assert sample.right()
    assert set(calls) == {(77, 3)}
    assert sample.dll.nnefc_destroy(session) == OK


def test_a_function_that_calls_no_task_fails_the_run(sample: Sample) -> None:
    function = PARALLEL_FOR(lambda pool, count, task, context: None)
    _, session = sample.create(3, parallel_for=ctypes.cast(function, c_void_p))
    assert sample.run(session) == KERNEL_ERROR
    assert "parallel_for has not called every task" in sample.error(session)
    assert sample.dll.nnefc_destroy(session) == OK


@pytest.mark.skipif(sys.platform != "linux", reason="needs threads that can be bound to processors")
def test_threads_run_on_the_processors_that_they_are_given(sample: Sample) -> None:
    own = sorted(os.sched_getaffinity(0))
    wanted = [own[0], own[-1], own[0]]
    before = set(os.listdir("/proc/self/task"))
    status, session = sample.create(3, processors=(c_int32 * 3)(*wanted))
    assert status == OK, sample.error(None)
    started = set(os.listdir("/proc/self/task")) - before
    assert sorted(min(os.sched_getaffinity(int(number))) for number in started) == sorted(wanted[1:])
    assert all(len(os.sched_getaffinity(int(number))) == 1 for number in started)
    assert sorted(os.sched_getaffinity(0)) == own
    assert sample.run(session) == OK
    assert sample.right()
    assert sample.dll.nnefc_destroy(session) == OK


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs: Linux and two processors"
)
def test_a_bound_thread_gives_workers_other_processors(sample: Sample) -> None:
    own = sorted(os.sched_getaffinity(0))
    before = set(os.listdir("/proc/self/task"))
    os.sched_setaffinity(0, own[:1])
    try:
        status, session = sample.create(2, processors=(c_int32 * 2)(own[0], own[1]))
    finally:
        os.sched_setaffinity(0, own)
    assert status == OK, sample.error(None)
    (worker,) = set(os.listdir("/proc/self/task")) - before
    assert os.sched_getaffinity(int(worker)) == {own[1]}
    assert sample.run(session) == OK
    assert sample.right()
    assert sample.dll.nnefc_destroy(session) == OK


@pytest.mark.parametrize(
    ("threads", "options", "message"),
    [
        (2, {"processors": (c_int32 * 2)(0, 1 << 20)}, "processors[1] is 1048576, which is none that this process may"),
        (2, {"processors": (c_int32 * 2)(0, -1)}, "processors[1] is -1, which is none"),
        (
            0,
            {"processors": (c_int32 * 2)(0, 0)},
            "threads is 0, but must say how many there are",
        ),
        (0, {"parallel_for": 1}, "threads is 0, but must say how many there are, for parallel_for is given"),
        (
            2,
            {"parallel_for": 1, "processors": (c_int32 * 2)(0, 0)},
            "processors are for threads that the session",
        ),
    ],
)
def test_threads_that_cannot_be_are_refused(sample: Sample, threads: int, options: Any, message: str) -> None:
    status, _ = sample.create(threads, **options)
    assert status == BAD_ARGUMENT
    assert message in sample.error(None)


@pytest.mark.parametrize("threads", [1, 3])
def test_subnormal_numbers_are_zero_unless_they_are_kept(sample: Sample, threads: int) -> None:
    sample.x[:] = 1e-39
    for options, kept in (({}, 0), ({"keep_subnormals": 1}, 1024), ({"struct_size": 24, "keep_subnormals": 1}, 0)):
        status, session = sample.create(threads, **options)
        assert status == OK
        assert sample.run(session, 1e-39) == OK
        assert np.count_nonzero(sample.y) == (kept if _FLUSHES else 1024)
        assert sample.dll.nnefc_destroy(session) == OK


@pytest.mark.parametrize("kept", [0, 1])
def test_the_callers_treatment_of_subnormal_numbers_comes_back(sample: Sample, kept: int) -> None:
    _, session = sample.create(2, keep_subnormals=kept)
    half = np.array([np.finfo(np.float32).tiny]) / 2
    assert half[0] != 0
    assert sample.run(session) == OK
    assert np.float32(half[0]) * np.float32(0.5) != 0  # NumPy computes in this thread
    assert sample.dll.nnefc_destroy(session) == OK


@pytest.mark.skipif(platform.machine() not in _UPWARD, reason="needs: a processor whose modes are known here")
def test_results_do_not_depend_on_the_callers_rounding(sample: Sample, session: c_void_p) -> None:
    sample.x[:] = np.random.default_rng(1).standard_normal(1024)
    assert sample.run(session) == OK
    right, libm, upward = sample.y.copy(), ctypes.CDLL(find_library("m")), _UPWARD[platform.machine()]
    assert libm.fesetround(upward) == 0
    try:
        status, mode = sample.run(session), libm.fegetround()
    finally:
        libm.fesetround(0)
    assert (status, mode) == (OK, upward)
    np.testing.assert_array_equal(sample.y, right)


def test_another_number_for_subnormals_is_refused(sample: Sample) -> None:
    status, _ = sample.create(keep_subnormals=2)
    assert status == BAD_ARGUMENT
    assert sample.error(None) == "keep_subnormals is 2, not 0 or 1"


def test_a_network_for_processors_has_no_gpu(sample: Sample) -> None:
    assert sample.create(device=1)[0] == BAD_ARGUMENT
    assert sample.error(None) == "device is 1, but the network runs on the processor"


def test_null_everywhere(sample: Sample, session: c_void_p) -> None:
    pointers = (c_void_p * 2)(sample.y.ctypes.data, sample.count.ctypes.data)
    assert sample.dll.nnefc_create(None, None) == BAD_ARGUMENT
    assert sample.dll.nnefc_destroy(None) == OK
    assert sample.dll.nnefc_reset(None) == BAD_ARGUMENT
    assert sample.dll.nnefc_run(None, pointers, pointers) == BAD_ARGUMENT
    assert sample.dll.nnefc_run(session, None, pointers) == BAD_ARGUMENT
    assert sample.error(session) == "inputs is null"
    assert sample.dll.nnefc_run(session, pointers, None) == BAD_ARGUMENT
    assert sample.error(session) == "outputs is null"
    assert sample.dll.nnefc_run(session, (c_void_p * 1)(None), pointers) == BAD_ARGUMENT
    assert sample.error(session) == 'input "x" is null'
    assert sample.dll.nnefc_run(session, pointers, (c_void_p * 2)(sample.y.ctypes.data, None)) == BAD_ARGUMENT
    assert sample.error(session) == 'output "count" is null'


def test_pointers_must_be_aligned_to_their_elements(sample: Sample, session: c_void_p) -> None:
    inputs = (c_void_p * 1)(sample.x.ctypes.data)
    room = np.zeros(5000, np.uint8).ctypes.data // 8 * 8 + 8
    assert sample.dll.nnefc_run(session, inputs, (c_void_p * 2)(sample.y.ctypes.data, room + 4)) == BAD_ARGUMENT
    assert sample.error(session) == 'output "count" is not aligned to its elements of 8 bytes'
    assert sample.dll.nnefc_run(session, (c_void_p * 1)(sample.x.ctypes.data + 2), inputs) == BAD_ARGUMENT
    assert sample.error(session) == 'input "x" is not aligned to its elements of 4 bytes'


def test_alignment_to_the_element_is_enough(sample: Sample, session: c_void_p) -> None:
    x, y = np.ones(1025, np.float32)[1:], np.zeros(1025, np.float32)[1:]
    outputs = (c_void_p * 2)(y.ctypes.data, sample.count.ctypes.data)
    assert sample.dll.nnefc_run(session, (c_void_p * 1)(x.ctypes.data), outputs) == OK
    assert np.array_equal(y, WEIGHTS)


def test_workspace_of_the_callers_own(sample: Sample) -> None:
    memory = np.zeros(4096 + 128, np.uint8)
    start = (memory.ctypes.data + 63) // 64 * 64
    status, session = sample.create(workspace=start, workspace_bytes=4096)
    assert status == OK
    assert sample.run(session) == OK
    assert sample.right()
    used = memory[start - memory.ctypes.data :][:4096].view(np.float32)
    assert np.array_equal(used, sample.x)  # the sample network copies its input there
    assert sample.dll.nnefc_destroy(session) == OK


def test_workspace_too_small_or_misaligned(sample: Sample) -> None:
    start = np.zeros(8192, np.uint8).ctypes.data // 64 * 64 + 64
    assert sample.create(workspace=start, workspace_bytes=4095)[0] == BAD_ARGUMENT
    assert sample.error(None) == "the workspace has 4095 bytes, but the network needs 4096"
    assert sample.create(workspace=start + 32, workspace_bytes=4096)[0] == BAD_ARGUMENT
    assert sample.error(None) == "the workspace is not aligned to 64 bytes"


def test_memory_that_is_not_there(tmp_path: Path) -> None:
    huge = Sample(
        link([object_file("network.c")], CONSTANTS, replace(SAMPLE, workspace_bytes=1 << 60), tmp_path / "huge.so")
    )
    status, session = huge.create()
    assert (status, session.value) == (OUT_OF_MEMORY, None)
    assert "no memory or threads" in huge.error(None)
    scratch = Sample(
        link([object_file("network.c")], CONSTANTS, replace(SAMPLE, scratch_bytes=1 << 62), tmp_path / "scratch.so")
    )
    assert scratch.create(threads=1024)[0] == OUT_OF_MEMORY


def test_unsupported_processor_is_a_status_that_names_all_that_is_missing(tmp_path: Path) -> None:
    description = replace(SAMPLE, cpu_features=("no-such-feature", "nor-this-one"), target="future")
    library = Sample(link([object_file("network.c")], CONSTANTS, description, tmp_path / "future.so"))
    status, session = library.create()
    assert (status, session.value) == (UNSUPPORTED_CPU, None)
    assert library.error(None) == "compiled for future, but this processor lacks no-such-feature, nor-this-one"


def processors_allowed() -> int:
    """As many as the affinity mask has, or as the quotas of this process' control groups make up."""
    allowed = float(len(os.sched_getaffinity(0)))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup/cpu" if controllers else "/sys/fs/cgroup")
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text().split()
            elif (folder / "cpu.cfs_quota_us").exists():
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            else:
                continue
            if quota != "max" and int(quota) > 0:
                allowed = min(allowed, math.ceil(int(quota) / int(period)))
    return int(allowed)


def test_number_of_threads_from_the_environment(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    def threads_of(value: str) -> int:
        monkeypatch.setenv("NNEFC_NUM_THREADS", value)
        before = thread_count()
        session = sample.session(0)
        made = thread_count() - before + 1
        sample.dll.nnefc_destroy(session)
        return made

    assert [threads_of(value) for value in ("1", "2", "7")] == [1, 2, 7]
    assert threads_of("") == processors_allowed()
    for wrong in ("0", "-1", "many", "2x", "99999999999999999999", "1025"):
        monkeypatch.setenv("NNEFC_NUM_THREADS", wrong)
        assert sample.create(0)[0] == BAD_ARGUMENT
        assert f'NNEFC_NUM_THREADS is "{wrong}"' in sample.error(None)
        assert sample.create(1)[0] == OK  # a number in the options goes first


def test_threads_follow_the_affinity_mask() -> None:
    code = f"""
import os, sys
sys.path[:0] = {sys.path!r}
os.environ.pop("NNEFC_NUM_THREADS", None)
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
from test_runtime import Sample, sample_library
before = len(os.listdir("/proc/self/task"))
Sample(__import__("pathlib").Path({str(sample_library())!r})).session(0)
assert len(os.listdir("/proc/self/task")) == before
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_second_call_on_a_running_session_is_refused(sample: Sample) -> None:
    session = sample.session(2)
    statuses = []
    slow = threading.Thread(target=lambda: statuses.append(Sample(sample_library()).run_slowly(session)))
    slow.start()
    other = Sample(sample_library())
    while other.run(session) != BUSY:  # until the slow run, of 0.3 s, has begun
        assert slow.is_alive()
    assert sample.dll.nnefc_reset(session) == BUSY
    assert sample.dll.nnefc_destroy(session) == BUSY
    slow.join()
    assert statuses == [OK]
    assert sample.run(session) == OK
    assert sample.right()
    assert sample.dll.nnefc_destroy(session) == OK


def test_destroy_ends_all_threads(sample: Sample) -> None:
    before = thread_count()
    sessions = [sample.session(4) for _ in range(5)]
    assert thread_count() == before + 15
    for session in sessions:
        sample.dll.nnefc_destroy(session)
    assert thread_count() == before


def test_workers_take_no_signals(sample: Sample) -> None:
    before = set(os.listdir("/proc/self/task"))
    session = sample.session(3)
    for task in set(os.listdir("/proc/self/task")) - before:
        status = Path(f"/proc/self/task/{task}/status").read_text()
        blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
        assert all(blocked >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1))
    sample.dll.nnefc_destroy(session)


def in_child(body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new Python that forks, so that a hang or crash cannot take the tests along."""
    code = f"""
import os, sys, threading, time
sys.path[:0] = {sys.path!r}
from pathlib import Path
from typing import Any
from test_runtime import Sample, OK, BUSY
path = Path({str(sample_library())!r})
sample = Sample(path)
{body}
"""
    variables = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=variables
    )


def test_session_works_in_a_forked_child_on_one_thread() -> None:
    done = in_child("""
session = sample.session(4)
assert sample.run(session) == OK
child = os.fork()
if child == 0:
    good = all(sample.run(session, way) == OK and sample.right() for way in (1, -3, -6, -8))
    good = good and len(os.listdir("/proc/self/task")) == 1 and sample.dll.nnefc_destroy(session) == OK
    fresh = sample.session(4)  # and a child may make sessions with threads of its own
    good = good and sample.run(fresh) == OK and sample.right() and sample.dll.nnefc_destroy(fresh) == OK
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
assert sample.run(session) == OK and sample.right() and sample.dll.nnefc_destroy(session) == OK
""")
    assert done.returncode == 0, done.stderr


def test_a_child_of_the_same_number_is_a_child(tmp_path: Path) -> None:
    """In namespaces of processes inside each other, parent and child may both be number 1."""
    stub = shared_library_of("int getpid(void) { return 1; }", tmp_path / "one.so")
    done = in_child(
        """
import signal
session = sample.session(2)
child = os.fork()
if child == 0:
    signal.alarm(20)  # and no longer, if it waits for threads that it does not have
    good = sample.run(session) == OK and sample.right() and sample.dll.nnefc_destroy(session) == OK
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
assert sample.run(session) == OK and sample.right() and sample.dll.nnefc_destroy(session) == OK
""",
        LD_PRELOAD=str(stub),
    )
    assert done.returncode == 0, done.stderr


def test_session_that_ran_while_another_thread_forked_is_busy_in_the_child() -> None:
    done = in_child("""
session = sample.session(2)
slow = threading.Thread(target=sample.run_slowly, args=(session,))
slow.start()
while Sample(path).run(session) != BUSY:
    pass
child = os.fork()
if child == 0:
    os._exit(0 if sample.run(session) == BUSY and sample.dll.nnefc_destroy(session) == BUSY else 1)
assert os.waitpid(child, 0)[1] == 0
slow.join()
assert sample.run(session) == OK and sample.right()
""")
    assert done.returncode == 0, done.stderr


def test_status_names(sample: Sample) -> None:
    names = [sample.dll.nnefc_status_name(status).decode() for status in (*range(10), 10, -1)]
    assert names[:10] == [
        "ok", "bad argument", "wrong ABI", "unsupported CPU", "out of memory", "kernel error", "busy", "bad weights",
        "no device", "device error",
    ]  # fmt: skip
    assert names[10:] == ["unknown status"] * 2


def test_errors_of_create_belong_to_the_thread(sample: Sample) -> None:
    assert sample.create(-1)[0] == BAD_ARGUMENT
    seen = []
    thread = threading.Thread(target=lambda: seen.append(sample.error(None)))
    thread.start()
    thread.join()
    assert seen == [""]
    assert sample.error(None) != ""


def test_tensors_without_elements_may_be_null(tmp_path: Path) -> None:
    empty = replace(
        SAMPLE,
        inputs=(replace(SAMPLE.inputs[0], shape=(0, 3)),),
        outputs=(replace(SAMPLE.outputs[0], shape=(3, 0)),),
    )
    code = (
        "#include <stdint.h>\nint32_t nnefc_network(void *x, void *y, uint8_t *s, uint8_t *w, const uint8_t *c)"
        " { return x != 0 || y != 0; }"
    )
    library = Sample(link([object_of(code, "empty")], CONSTANTS, empty, tmp_path / "empty.so"))
    session = library.session()
    none = (c_void_p * 1)(None)
    assert library.dll.nnefc_run(session, none, none) == OK
    library.dll.nnefc_destroy(session)
