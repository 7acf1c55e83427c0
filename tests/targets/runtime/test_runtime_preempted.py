"""Threads that get no processor while another one waits for them: they are brought to its own, and go back."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from runtime_samples import ZIG_CC, folder
from test_runtime_sharing import OTHERS, loop

from nnefc.targets.link.toolchain import RUNTIME

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs: Linux and two processors"
)

SECONDS = 2  # within which a thread of a busy machine goes on


@functools.cache
def runtime() -> ctypes.CDLL:
    path = folder("stopped") / "stopped.so"
    command = [
        *ZIG_CC,
        "-shared",
        "-fPIC",
        f"-I{RUNTIME}",
        str(RUNTIME / "threads" / "preempted_workers.c"),
        "-o",
        str(path),
    ]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(path))
    library.nnefc_own_processor_time.restype = ctypes.c_int64
    library.nnefc_look_at.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.nnefc_bring_if_stopped.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
    library.nnefc_bring_if_stopped.restype = ctypes.c_bool
    return library


class Other:
    """A thread that may be brought; it works until it shall go home, and ends then."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._runtime, self._work = runtime(), work
        self._memory = (ctypes.c_uint64 * 64)()  # of an nnefc_movable
        self._begun, self._shall_end = threading.Event(), threading.Event()
        self.movable = ctypes.addressof(self._memory)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        self._begun.wait()
        assert self.thread.ident is not None
        self.clock = time.pthread_getcpuclockid(self.thread.ident)

    def _run(self) -> None:
        self._runtime.nnefc_may_be_brought(ctypes.c_void_p(self.movable))
        self._begun.set()
        while not self._shall_end.is_set():
            self._work()
        self._runtime.nnefc_go_home(ctypes.c_void_p(self.movable))
        self.processors = os.sched_getaffinity(0)

    def look(self) -> None:
        self._runtime.nnefc_look_at(self.movable, self.thread.ident)

    def bring(self, own: int) -> bool:
        """Bring it if it was stopped while this thread has run for so many nanoseconds."""
        return bool(self._runtime.nnefc_bring_if_stopped(self.movable, self.thread.ident, own))

    def end(self) -> set[int]:
        """The processors that it may run on at its end."""
        self._shall_end.set()
        self.thread.join()
        return self.processors


def test_a_thread_that_gets_no_processor_is_brought_and_goes_home() -> None:
    wakes = threading.Event()
    other = Other(wakes.wait)
    everywhere = os.sched_getaffinity(other.thread.native_id or 0)
    other.look()
    assert other.bring(own=1_000_000)
    now = os.sched_getaffinity(other.thread.native_id or 0)
    assert len(now) == 1 and now < everywhere
    other.look()
    assert not other.bring(own=1_000_000)  # it is here already
    wakes.set()
    assert other.end() == everywhere


def test_a_thread_that_runs_stays_where_it_is() -> None:
    other = Other(lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 10000))
    everywhere = os.sched_getaffinity(other.thread.native_id or 0)
    other.look()
    start, end = time.clock_gettime_ns(other.clock), time.monotonic() + SECONDS
    while time.clock_gettime_ns(other.clock) < start + 1_000_000 and time.monotonic() < end:
        time.sleep(0.001)
    assert not other.bring(own=1_000_000)
    assert os.sched_getaffinity(other.thread.native_id or 0) == everywhere
    assert other.end() == everywhere


def test_workers_of_a_session_run_everywhere_after_they_were_brought() -> None:
    before = {int(name) for name in os.listdir("/proc/self/task")}
    loop.cache_clear()
    model = loop(2)
    workers = {int(name) for name in os.listdir("/proc/self/task")} - before
    for _ in range(3):
        model(*map(np.array, (16, 0, OTHERS)))  # the worker sleeps in its pieces, and so takes no processor
    end = time.monotonic() + SECONDS
    everywhere = os.sched_getaffinity(0)
    while any(os.sched_getaffinity(worker) != everywhere for worker in workers) and time.monotonic() < end:
        time.sleep(0.001)
    assert {len(os.sched_getaffinity(worker)) for worker in workers} == {len(everywhere)}
    loop.cache_clear()
