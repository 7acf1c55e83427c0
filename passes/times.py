"""Measures the processor time of each pass."""

from __future__ import annotations

import threading
from collections import Counter

from nnefc.passes.manager import PassRun

__all__ = ["PassTimes"]


class PassTimes:
    """An observer of passes that adds up their times.

        times = nnefc.passes.PassTimes()
        nnefc.compile(model, observers=[times])
        print(times.table())

    Attributes:
        seconds: processor time of all runs of each pass, by name.
        runs: how often each pass has run.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self._lock = threading.Lock()  # objects are made in several threads

    def __call__(self, run: PassRun) -> None:
        with self._lock:
            self.seconds[run.step.name] += run.seconds  # type: ignore[assignment]
            self.runs[run.step.name] += 1

    @property
    def total(self) -> float:
        """Processor seconds of all passes."""
        return float(sum(self.seconds.values()))

    def table(self) -> str:
        """Returns a table of the passes, the slowest first, with the total."""
        total = self.total
        lines = [f"{'seconds':>9}  {'share':>6}  {'runs':>7}  pass"]
        for name, seconds in sorted(self.seconds.items(), key=lambda each: (-each[1], each[0])):
            lines.append(f"{seconds:9.4f}  {seconds / total if total else 0:6.1%}  {self.runs[name]:7,}  {name}")
        lines.append(f"{total:9.4f}  {1:6.1%}  {sum(self.runs.values()):7,}  total, of processor time")
        return "\n".join(lines)
