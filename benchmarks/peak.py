"""What bounds a network on this machine: the maximum multiply-adds a second, and the maximum bytes read a second.

Multiply-adds are fused ones on registers, nothing else: sums are independent of each other and more than a processor
has in flight. Bytes are those of an array that is read from end to end, again and again. Vectors are as in nnefc's.
"""

from __future__ import annotations

import ctypes
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import numpy as np

from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["MemoryReader", "build_peak", "bytes_per_second", "multiply_adds_per_second"]

SUMS = 12  # a multiply-add takes 4 cycles, and at most two start in each
ITERATIONS = 1_000_000  # a few milliseconds
REPEATS = 20
MIN_READ = 1 << 28  # bytes between two looks at the clock

SOURCE = """
typedef float vector __attribute__((vector_size(BYTES)));

/* Returns a number that depends on every sum, so that none is left out. `factor` is below one: sums stay finite. */
float run(long iterations, float factor) {{
    vector f = (vector){{}} + factor;
    vector {declared};
    for (long round = 0; round < iterations; round++) {{
        {steps}
        __asm__ volatile("" : {kept});
    }}
    vector all = {all};
    return all[0];
}}

float read_all(long passes, const vector *values, long count) {{
    vector {declared_zero};
    for (long pass = 0; pass < passes; pass++)
        for (long i = 0; i + SUMS <= count; i += SUMS) {{
            {reads}
            __asm__ volatile("" : {kept});
        }}
    vector all = {all};
    return all[0];
}}
"""


def build_peak(folder: Path) -> Path:
    """Compile the kernel for this machine into `folder`."""
    sums = [f"s{position}" for position in range(SUMS)]
    source = SOURCE.format(
        declared=", ".join(f"{name} = f + {position}.0f" for position, name in enumerate(sums)),
        steps=" ".join(f"{name} = {name} * f + f;" for name in sums),
        kept=", ".join(f'"+{_register()}"({name})' for name in sums),
        all=" + ".join(sums),
        declared_zero=", ".join(f"{name} = {{0}}" for name in sums),
        reads=" ".join(f"{name} += values[i + {position}];" for position, name in enumerate(sums)),
    )
    folder.mkdir(parents=True, exist_ok=True)
    text, library = folder / "peak.c", folder / "peak.so"
    text.write_text(source)
    flags = ["-O3", "-mcpu=native", "-ffp-contract=fast", "-shared", "-fPIC", f"-DBYTES={_width()}", f"-DSUMS={SUMS}"]
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags, str(text), "-o", str(library)], check=True)
    return library


def multiply_adds_per_second(library: Path, threads: int) -> float:
    """The best of several runs, all threads together, each on a processor of its own."""
    run = ctypes.CDLL(str(library)).run  # ctypes lets other threads run meanwhile
    run.argtypes, run.restype = (ctypes.c_long, ctypes.c_float), ctypes.c_float
    best = _best_of_each_thread(lambda position: run(ITERATIONS, 0.5), threads)
    return sum(SUMS * (_width() // 4) * ITERATIONS / seconds for seconds in best)


class MemoryReader:
    """An array that threads read from end to end, each a part on a processor of its own: it takes turns with engines.

    It is read from the cache that it fits into, if any. No thread waits for another one.
    """

    peer = "memory"

    def __init__(self, library: Path, size: int, threads: int) -> None:
        processors = sorted(os.sched_getaffinity(0))
        if threads > len(processors):
            raise click.ClickException(f"{threads} threads read memory, and there are {len(processors)} processors")
        self._read = ctypes.CDLL(str(library)).read_all
        self._read.argtypes, self._read.restype = (ctypes.c_long, ctypes.c_void_p, ctypes.c_long), ctypes.c_float
        step = SUMS * _width()
        self._size = size
        self._part = max(1, size // threads // step) * step
        self._passes = math.ceil(MIN_READ / self._part)
        self._arrays = [np.ones(self._part + _width(), np.uint8) for _ in range(threads)]
        free = queue.SimpleQueue[int]()
        for processor in processors[:threads]:
            free.put(processor)
        self._threads = ThreadPoolExecutor(threads, initializer=lambda: os.sched_setaffinity(0, {free.get()}))

    def time(self, seconds: float, minimum: int, processor: bool = False, maximum: float | None = None) -> list[float]:
        """Read for so many seconds, each thread at least so many times: the seconds that `size` bytes take."""
        readers = [self._threads.submit(self._bytes_per_second, array, seconds, minimum) for array in self._arrays]
        return [self._size / sum(reader.result() for reader in readers)]

    def close(self) -> None:
        self._threads.shutdown()

    def _bytes_per_second(self, array: np.ndarray, seconds: float, minimum: int) -> float:
        first, count, times = array.ctypes.data + -array.ctypes.data % _width(), self._part // _width(), 0
        start = time.perf_counter()
        while times < minimum or time.perf_counter() < start + seconds:
            self._read(self._passes, first, count)
            times += 1
        return times * self._passes * self._part / (time.perf_counter() - start)


def bytes_per_second(library: Path, size: int, threads: int) -> float:
    """How fast an array of `size` bytes can be read, at best; of a network without trained values, a byte."""
    size = max(size, 1)
    reader = MemoryReader(library, size, threads)
    try:
        return size / min(reader.time(0, 1)[0] for _ in range(REPEATS))
    finally:
        reader.close()


def _best_of_each_thread(run: Callable[[int], object], threads: int) -> list[float]:
    """The minimum seconds that `run` takes in each thread, while all run, each on a processor of its own."""
    processors = sorted(os.sched_getaffinity(0))[:threads]
    best = [float("inf")] * threads
    ready = threading.Barrier(threads)

    def work(position: int) -> None:
        os.sched_setaffinity(0, {processors[position]})  # of this thread alone
        ready.wait()
        for _ in range(REPEATS):
            start = time.perf_counter()
            run(position)
            best[position] = min(best[position], time.perf_counter() - start)

    workers = [threading.Thread(target=work, args=(position,)) for position in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return best


def _width() -> int:
    return parse_target("llvm").vectors.bytes


def _register() -> str:
    """The constraint that keeps a vector in a register, so that iterations are not computed two at a time or moved
    out."""
    return "v" if os.uname().machine == "x86_64" else "w"
