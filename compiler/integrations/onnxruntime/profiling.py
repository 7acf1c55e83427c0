"""Profiles of sessions as Chrome traces: loading, runs, and the kernels of a library that times them."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from nnefc.loader import Model

__all__ = ["Profiler"]

_MAX_EVENTS = 1_000_000


class Profiler:
    """Collects what a session does, and writes it to a file.

    Attributes:
        start: when it began, in nanoseconds of the system's monotonic clock.
    """

    def __init__(self, prefix: str) -> None:
        self.start = time.perf_counter_ns()
        self._prefix = prefix
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, name: str, begin: int, *, kind: str = "Session", **arguments: Any) -> None:
        """Adds what began at this time and ends now."""
        self._add(name, kind, begin, time.perf_counter_ns() - begin, arguments)

    def add_kernels(self, model: Model) -> None:
        """Adds the total times of a library's kernels, one after the other in the order of the network."""
        at = self.start
        for kernel in model.profile():
            took = int(kernel.seconds * 1e9)
            arguments = {
                "op_name": kernel.rule,
                "tensors": ", ".join(kernel.tensors),
                "calls": str(kernel.calls),
                "operations": str(kernel.operations),
                "bytes": str(kernel.bytes),
                "provider": "CPUExecutionProvider" if model.device == "cpu" else "CUDAExecutionProvider",
            }
            self._add(f"{kernel.kernel}_kernel_time", "Node", at, took, arguments)
            at += took

    def write(self) -> str:
        """Writes the file, and returns its name."""
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S_%f")[:-3]
        path = Path(f"{self._prefix}_{stamp}.json")
        path.write_text(json.dumps(self._events, indent=0), encoding="utf-8")
        return str(path)

    def _add(self, name: str, kind: str, begin: int, took: int, arguments: dict[str, Any]) -> None:
        event = {
            "cat": kind,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "ts": max(0, begin - self.start) / 1000,
            "dur": took / 1000,
            "ph": "X",
            "name": name,
            "args": arguments,
        }
        with self._lock:
            if len(self._events) < _MAX_EVENTS:
                self._events.append(event)
