"""How a launch is distributed: every iteration once, evenly among threads of one speed, by speed among others."""

from __future__ import annotations

import functools
import math
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from runtime_samples import C_SOURCES, ZIG_CC, folder, link, object_of

from nnefc.loader import Model, load
from nnefc.targets.link.runtime_objects import SHARED
from nnefc.targets.link.toolchain import RUNTIME, LibraryDescription, TensorDescription

MAX = 5000
LOOP = LibraryDescription(
    "loop",
    "here",
    "nnefc test",
    tuple(TensorDescription(name, "int64", ()) for name in ("iterations", "cycles", "slow")),
    (
        TensorDescription("times", "int32", (MAX,)),
        TensorDescription("pieces", "int32", ()),
        TensorDescription("of_launcher", "int32", ()),
    ),
)
# a parallel loop as TVM compiles it; slow threads need 30 ms for a task: all but the launching one, or that alone
SOURCE = """
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
typedef struct environment { void *sync; int32_t num_task; } environment;
extern int (*__TVMBackendParallelLaunch)(int (*body)(int, environment *, void *), void *data, int tasks);
int32_t nnefc_iterations(int64_t iterations, int64_t cycles);
enum { NONE, OTHERS, LAUNCHER };
typedef struct loop {
    int64_t iterations, slow;
    _Atomic int32_t *times, *of_launcher;
    int32_t *pieces;
    pthread_t launcher;
} loop;
static int task(int number, environment *environment, void *data) {
    loop *l = data;
    if (number == 0) *l->pieces = environment->num_task;
    int is_launcher = pthread_equal(pthread_self(), l->launcher) != 0;
    if (is_launcher) (*l->of_launcher)++;
    struct timespec pause = {.tv_nsec = 30000000};
    if (l->slow == (is_launcher ? LAUNCHER : OTHERS)) nanosleep(&pause, 0);
    int64_t step = (l->iterations + environment->num_task - 1) / environment->num_task;
    for (int64_t i = number * step; i < (number + 1) * step && i < l->iterations; i++) l->times[i]++;
    return 0;
}
int32_t nnefc_network(const int64_t *iterations, const int64_t *cycles, const int64_t *slow, int32_t *times,
                      int32_t *pieces, int32_t *of_launcher, uint8_t *state, uint8_t *workspace,
                      const uint8_t *constants) {
    for (int i = 0; i < MAX; i++) times[i] = 0;
    *of_launcher = *pieces = 0;
    loop l = {*iterations, *slow, (_Atomic int32_t *)times, (_Atomic int32_t *)of_launcher, pieces, pthread_self()};
    nnefc_iterations(*iterations, *cycles);
    return __TVMBackendParallelLaunch(task, &l, 0);
}
"""
NONE, OTHERS, LAUNCHER = range(3)


@functools.cache
def loop(threads: int) -> Model:
    path: Path = folder("sharing") / "loop.so"
    if not path.exists():
        link([object_of(SOURCE.replace("MAX", str(MAX)), "loop")], b"", LOOP, path)
    return load(path, threads=threads)


def run(threads: int, iterations: int, slow: int = NONE, cycles: int = 0) -> tuple[int, int]:
    """Runs a loop; returns how many pieces it had, and how many of them the launching thread did."""
    times, pieces, own = loop(threads)(*map(np.array, (iterations, cycles, slow)))
    assert times.tolist() == [1] * iterations + [0] * (MAX - iterations)
    return int(pieces), int(own)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_round_is_done_once(threads: int) -> None:
    for iterations in (0, 1, 2, 5, 16, 17, 100, 1001, MAX):
        for cycles in (0, 1, 50, 3000, 1 << 20, (1 << 63) - 1):
            run(threads, iterations, cycles=cycles)


@pytest.mark.parametrize("threads", [2, 3, 4, 16])
def test_threads_of_one_speed_get_the_same_part(threads: int) -> None:
    """Nearly as the same number of iterations for each would be, which leaves nothing to take from slower ones."""
    for iterations in (*range(1, 200), 1000, 1024, 3136, 4999):
        for cycles in (0, 4000):
            pieces, _ = run(threads, iterations, cycles=cycles)
            step = math.ceil(iterations / pieces)
            longest = math.ceil(math.ceil(iterations / step) / threads) * step
            assert longest <= 1.07 * math.ceil(iterations / threads)


def test_pieces_are_worth_taking() -> None:
    """The longer a loop takes, the more pieces; none that other threads know of too late."""
    assert run(2, 1000, cycles=2) == (1, 1)
    assert run(2, 1000, cycles=10)[0] == 2
    for cycles in (50, 100, 200, 400):
        pieces, _ = run(2, 1000, cycles=cycles)
        assert pieces >= 4 and 1000 * cycles / pieces >= 8192
    assert run(2, 3, cycles=400) == (1, 1)
    assert run(7, 16, cycles=1000)[0] == 7


def test_the_launching_thread_does_short_pieces_that_no_worker_has_begun() -> None:
    """Even if all others sleep, which some do after a while without launches."""
    for _ in range(20):
        time.sleep(0.001)
        pieces, own = run(2, 1000, cycles=10)
        assert pieces == 2 and own in (1, 2)


@pytest.mark.parametrize("iterations", [16, 1600])
def test_slow_workers_get_little(iterations: int) -> None:
    pieces, own = run(2, iterations, slow=OTHERS)
    assert pieces >= 8
    assert own >= pieces - 3  # the other has one, perhaps two


def test_a_slow_launching_thread_gets_little() -> None:
    """Half of the work at least is others', as long as the system wakes them; and what is left of its own."""
    minimum = min(run(2, 16, slow=LAUNCHER)[1] for _ in range(3))
    assert minimum <= 3


def test_one_thread_cuts_nothing() -> None:
    assert run(1, 1000) == (1, 1)


def test_launches_do_not_take_each_other_for_the_last_one_of_their_epoch(tmp_path: Path) -> None:
    """In a program with the whole runtime, of which the linker keeps what the pool needs."""
    command = [*ZIG_CC, "-ffunction-sections", "-Wl,--gc-sections", "-pthread", f"-I{RUNTIME}"]
    sources = map(
        str, [C_SOURCES / "epochs.c", *sorted(path for folder in SHARED for path in (RUNTIME / folder).glob("*.c"))]
    )
    subprocess.run([*command, *sources, "-o", str(tmp_path / "epochs")], check=True)
    done = subprocess.run([tmp_path / "epochs"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
