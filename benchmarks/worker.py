"""One engine with one network in a process of its own, on its own processors: it does what each line of stdin asks.

A line is a JSON object: {"do": "answer", "file": PATH} writes the outputs; {"do": "time", "seconds": S, "minimum": N}
runs for S seconds and at least N times and returns the seconds of each run, with "processor" those of processors on all
threads of the process; with "maximum" no run begins after so many seconds, but the first. {"do": "take", "file": PATH}
runs once with other inputs, and returns the seconds. Each line is answered by one on stdout.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["EngineError", "Worker"]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NNEFC_NUM_THREADS")


class EngineError(Exception):
    """An engine that does not load its network, or fails with it."""


class Worker:
    """The asking side: starts the process and waits until its network is loaded and has run once."""

    def __init__(self, peer: str, model: Path, value: Path, threads: int) -> None:
        environment = dict.fromkeys(THREAD_VARIABLES, str(threads))
        self.peer = peer
        self._process = subprocess.Popen(
            [sys.executable, __file__, peer, str(model), str(value), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment,
            text=True,
        )
        self.version: str = self._read()["version"]

    @property
    def process_id(self) -> int:
        return self._process.pid

    def answer(self, file: Path) -> None:
        """Write the outputs for the values as an .npz file, in order."""
        self._ask(do="answer", file=str(file))

    def take(self, file: Path) -> float:
        """Take other inputs from an .npz file, of other sizes perhaps, and run once: the seconds of that."""
        seconds: float = self._ask(do="take", file=str(file))["seconds"]
        return seconds

    def time(self, seconds: float, minimum: int, processor: bool = False, maximum: float | None = None) -> list[float]:
        """The seconds of each run: what a clock shows, or what the process's threads take of processors."""
        reply = self._ask(do="time", seconds=seconds, minimum=minimum, processor=processor, maximum=maximum)
        times: list[float] = reply["times"]
        return times

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            ended = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
            raise EngineError(f"{self.peer} ended {ended}")
        reply: dict[str, Any] = json.loads(line)
        return reply


def serve(name: str, model: Path, value: Path, threads: int) -> None:
    """The answering side."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what an engine prints goes to stderr

    import numpy as np
    from peers import make_peer

    peer = make_peer(name, model, threads)
    with np.load(value) as file:
        values = dict(file)
    peer.run(values)
    replies.write(json.dumps({"version": peer.version}) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        reply: dict[str, Any] = {}
        match request["do"]:
            case "answer":
                np.savez(request["file"], *peer.run(values))
            case "take":
                with np.load(request["file"]) as file:
                    values = dict(file)
                start = time.perf_counter()
                peer.run(values)
                reply["seconds"] = time.perf_counter() - start
            case "time":
                times: list[float] = []
                clock = time.process_time if request["processor"] else time.perf_counter
                start = time.perf_counter()
                end = start + request["seconds"]
                last = start + (math.inf if request["maximum"] is None else request["maximum"])
                while (
                    not times
                    or time.perf_counter() < end
                    or (len(times) < request["minimum"] and time.perf_counter() < last)
                ):
                    start = clock()
                    peer.run(values)
                    times.append(clock() - start)
                reply["times"] = times
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
